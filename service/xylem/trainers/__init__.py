"""Trainers make a TreeEnsemble from rows and their labels."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
