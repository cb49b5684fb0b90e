"""Data files to rows: readers of .txt, .svm, .jsonl and .npz, with
errors that name file, line and fault.
"""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
