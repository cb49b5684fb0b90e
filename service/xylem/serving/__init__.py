"""The application without HTTP: it turns a request into rows, and rows into an answer."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
