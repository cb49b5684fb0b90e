"""Data files to rows: readers of .txt, .svm, .jsonl and .npz, with errors that name file, line and fault."""

from service.datasets.dataset import Dataset
from service.datasets.reader import check_readable, read_dataset

__all__ = ["Dataset", "check_readable", "read_dataset"]
