"""Vocabularies of concepts that have names: reading them, and finding their concepts in texts."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
