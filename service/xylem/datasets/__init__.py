"""Read data files into rows: .txt, .svm, .jsonl, .npz, tables, and directories of documents.

Errors name the file, the line and the fault.
"""

from xylem_store import face_of

__getattr__, __dir__, __all__ = face_of(__name__, __file__)
