"""Data files to rows: readers of .txt, .svm, .jsonl and .npz, with errors that name file, line and fault."""

from service.datasets.dataset import Dataset
from service.datasets.reader import read_dataset

__all__ = ["Dataset", "read_dataset"]
