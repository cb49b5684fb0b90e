"""The base of all other parts: errors, settings, logs, rows. It imports no other part."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
