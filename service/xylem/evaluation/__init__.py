"""Measures of rankings and decisions, calibrated probabilities, and comparisons of two models."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
