"""Administration, without HTTP: jobs, aliases, and versions in the store and in an object store."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
