"""The server: its parts joined to an application, and the processes that serve it."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
