"""What the command line and the service do with files: train, evaluate, tune."""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
