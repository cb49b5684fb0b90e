"""The server: it builds the application, and runs the processes that serve it."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
