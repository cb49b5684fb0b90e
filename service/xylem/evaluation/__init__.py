"""Metrics of rankings and decisions, and the figures that `xylem evaluate --json` prints."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
