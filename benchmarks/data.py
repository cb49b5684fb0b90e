"""Data sets as every system takes them: the same rows as text and as matrices."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xylem.base.rows import Dataset, LabelRows, SparseRows
from xylem.datasets import read_dataset
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import default_kind, fit_featurizer
from xylem_store.names import build_names

_SUFFIXES = (".txt.gz", ".txt", ".jsonl.gz", ".jsonl")

# Files of texts, which are not made into features yet.
TEXTS = (".jsonl.gz", ".jsonl")


@dataclass(frozen=True)
class Prepared:
    """A data set: `train` and `test`, each as .txt, .rows.npz and .labels.npz, are in `work`.

    split  number of the official split, 0 when the data set is divided in one way
    """

    name: str
    work: Path
    n_rows: int
    n_labels: int
    split: int = 0

    @property
    def title(self) -> str:
        """Return the name, and which split it is."""
        return f"{self.name}, split {self.split}" if self.split else self.name


def find(directory: Path, part: str, suffixes: Sequence[str] = _SUFFIXES) -> Path:
    for suffix in suffixes:
        if (path := directory / f"{part}{suffix}").exists():
            return path
    raise SystemExit(f"{directory}: expected {part} with one of {', '.join(suffixes)}, found none")


def prepare(directory: Path, out: Path) -> Prepared:
    """Write the rows of a data set's train and test files for all
    systems, if they are not there yet.
    """
    work = out / directory.resolve().name
    if not (work / "ready").exists():
        work.mkdir(parents=True, exist_ok=True)
        train, train_rows, test, test_rows = _read(directory)
        write_rows(work, "train", train_rows, train.labels)
        write_rows(work, "test", test_rows, test.labels)
        np.save(work / "unknown.npy", test.unknown_labels)
        (work / "ready").touch()
    labels = sp.load_npz(work / "train.labels.npz")
    return Prepared(directory.resolve().name, work, *labels.shape)


def prepare_splits(directory: Path, splits: Sequence[int], out: Path) -> list[Prepared]:
    """Prepare official splits of a data set, or its one division when
    there are none or none is asked for.

    As the Extreme Classification Repository gives them: column k of trSplit.txt and of tstSplit.txt
    has the numbers, from 1, of the rows of data.txt that split k trains and tests on.
    """
    if not splits or not (directory / "trSplit.txt").exists():
        return [prepare(directory, out)]
    name = directory.resolve().name
    found = []
    for split in splits:
        source = out / name / "splits" / f"split-{split}"
        if not (out / name / source.name / "ready").exists():
            _write_split(directory, split, source)
        prepared = prepare(source, out / name)
        found.append(replace(prepared, name=name, split=split))
    return found


def _write_split(directory: Path, split: int, source: Path) -> None:
    """Write the rows of an official split as train.txt and test.txt."""
    source.mkdir(parents=True, exist_ok=True)
    file = find(directory, "data")
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    header, *lines = content.decode().splitlines()
    for part, numbers in (("train", "trSplit.txt"), ("test", "tstSplit.txt")):
        columns = np.loadtxt(directory / numbers, np.int64, ndmin=2)
        if not 1 <= split <= columns.shape[1]:
            raise SystemExit(f"{directory}: expected splits 1 to {columns.shape[1]}, found {split}")
        chosen = columns[:, split - 1]
        text = [
            f"{len(chosen)} {header.split(maxsplit=1)[1]}",
            *(lines[number - 1] for number in chosen),
        ]
        (source / f"{part}.txt").write_text("\n".join(text) + "\n")


def _read(directory: Path) -> tuple[Dataset, SparseRows, Dataset, SparseRows]:
    """Return both parts, and their rows as a model gets them by
    default: ids too are scaled to length 1.
    """
    train = read_dataset(find(directory, "train"))
    featurizer, train_rows = fit_featurizer(train, parameters_of({"kind": default_kind(train)}))
    names = train.label_names or map(str, range(train.labels.n_labels))
    test = read_dataset(
        find(directory, "test"),
        labels=build_names(names),
        n_features=train.rows.n_features if train.rows is not None else None,
    )
    return train, train_rows, test, featurizer.transform_dataset(test)


def write_rows(work: Path, part: str, rows: SparseRows, labels: LabelRows) -> None:
    """Write rows and their labels as .txt, .rows.npz and .labels.npz."""
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
