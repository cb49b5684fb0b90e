"""Work on files that the command line and the service share: training, evaluating, tuning."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
