"""Metrics of rankings and decisions, and the figures of an evaluation
as `xylem evaluate --json` has them.
"""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
