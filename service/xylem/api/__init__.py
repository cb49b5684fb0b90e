"""HTTP and the names of JSON fields: the only place that knows them."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
