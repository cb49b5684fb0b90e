"""Predictions of opened models: features of instances, searches of trees, and their answers."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
