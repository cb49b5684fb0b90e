"""The application without HTTP: a request becomes rows, and rows become an answer."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
