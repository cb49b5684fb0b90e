"""Prediction: opened models answer rows; live models follow the store."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
