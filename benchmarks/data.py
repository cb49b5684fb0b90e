"""Data sets as every system takes them: the same rows as text and as matrices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from model_store.names import build_names
from service.datasets import Dataset, read_dataset
from service.features import default_kind, fit_featurizer, parse_features
from service.rows import LabelRows, SparseRows

_SUFFIXES = (".txt.gz", ".txt", ".jsonl.gz", ".jsonl")


@dataclass(frozen=True)
class Prepared:
    """A data set: `train` and `test`, each as .txt, .rows.npz and .labels.npz, are in `work`."""

    name: str
    work: Path
    n_rows: int
    n_labels: int


def find(directory: Path, part: str) -> Path:
    for suffix in _SUFFIXES:
        if (path := directory / f"{part}{suffix}").exists():
            return path
    raise SystemExit(f"{directory}: expected {part} with one of {', '.join(_SUFFIXES)}, found none")


def prepare(directory: Path, out: Path) -> Prepared:
    """Write the rows of a data set's train and test files for all systems, if they are not there yet."""
    work = out / directory.resolve().name
    if not (work / "ready").exists():
        work.mkdir(parents=True, exist_ok=True)
        train, train_rows, test, test_rows = _read(directory)
        _write(work, "train", train_rows, train.labels)
        _write(work, "test", test_rows, test.labels)
        np.save(work / "unknown.npy", test.unknown_labels)
        (work / "ready").touch()
    labels = sp.load_npz(work / "train.labels.npz")
    return Prepared(directory.resolve().name, work, *labels.shape)


def _read(directory: Path) -> tuple[Dataset, SparseRows, Dataset, SparseRows]:
    train_file, test_file = find(directory, "train"), find(directory, "test")
    train = read_dataset(train_file)
    if train.rows is not None:
        names = build_names(map(str, range(train.labels.n_labels)))
        test = read_dataset(test_file, labels=names, n_features=train.rows.n_features)
        assert test.rows is not None
        return train, train.rows, test, test.rows
    assert train.label_names is not None
    featurizer, train_rows = fit_featurizer(train, parse_features(default_kind(train), {}))
    test = read_dataset(test_file, labels=build_names(train.label_names))
    return train, train_rows, test, featurizer.transform_dataset(test)


def _write(work: Path, part: str, rows: SparseRows, labels: LabelRows) -> None:
    shape = (rows.n_rows, rows.n_features)
    matrix = sp.csr_matrix((rows.values, rows.indices, rows.indptr), shape, copy=True)
    ones = np.ones(len(labels.indices), np.float32)
    sp.save_npz(work / f"{part}.rows.npz", matrix, compressed=False)
    truth = sp.csr_matrix((ones, labels.indices, labels.indptr), (labels.n_rows, labels.n_labels))
    sp.save_npz(work / f"{part}.labels.npz", truth, compressed=False)
    with (work / f"{part}.txt").open("w") as out:
        out.write(f"{rows.n_rows} {rows.n_features} {labels.n_labels}\n")
        for row in range(rows.n_rows):
            cut, true = (slice(*array.indptr[row : row + 2]) for array in (rows, labels))
            pairs = zip(rows.indices[cut].tolist(), rows.values[cut], strict=True)
            features = " ".join(f"{feature}:{value}" for feature, value in pairs)
            out.write(f"{','.join(map(str, labels.indices[true].tolist()))} {features}\n")
