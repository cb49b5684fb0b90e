"""Data files to rows: readers of .txt, .svm, .jsonl and .npz, with errors that name file, line and fault."""

from xylem.datasets.reader import check_readable, read_dataset

__all__ = ["check_readable", "read_dataset"]
