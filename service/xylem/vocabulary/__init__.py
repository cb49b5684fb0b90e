"""Vocabularies of concepts that have names: read, and found in texts by their names."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
