"""The HTTP interface: the only part that knows HTTP and the names of JSON fields."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
