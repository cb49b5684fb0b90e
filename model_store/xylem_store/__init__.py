"""Models as bytes on disk: the format, the store and the checks. It does not import the service."""

from xylem_store.faces import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
