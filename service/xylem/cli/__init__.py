"""The `xylem` command: thin commands over the workflows, the store, admin and the server."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
