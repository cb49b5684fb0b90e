"""Functions that the tests of data sets share."""

import contextlib
import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.oracles.data_files import Row
from xylem.base.errors import BadData
from xylem.base.rows import Dataset, LabelRows, SparseRows
from xylem.datasets import read_dataset


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    """Write values as lines of JSON; return the file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_rows(rows: SparseRows, labels: LabelRows) -> list[Row]:
    """Return rows in the form of the oracle: (label ids, {feature: value}) for each row."""
    oracle_rows = []
    for i in range(labels.n_rows):
        pairs = slice(rows.indptr[i], rows.indptr[i + 1])
        row = dict(zip(rows.indices[pairs].tolist(), rows.values[pairs], strict=True))
        oracle_rows.append((labels.indices[labels.indptr[i] : labels.indptr[i + 1]].tolist(), row))
    return oracle_rows


def check_sparse(rows: SparseRows) -> None:
    """Check all invariants of SparseRows."""
    assert [array.dtype for array in rows[:3]] == [np.int64, np.int32, np.float32]
    assert rows.indptr[0] == 0 and rows.indptr[-1] == len(rows.indices) == len(rows.values)
    assert np.isfinite(rows.values).all()
    _check_ids(rows.indptr, rows.indices, rows.n_features)


def assert_same_bits(rows: SparseRows, expected: SparseRows) -> None:
    """Check that the arrays are equal bit by bit, and of the same types."""
    for array, expected_array in zip(rows[:3], expected[:3], strict=True):
        assert isinstance(array, np.ndarray) and isinstance(expected_array, np.ndarray)
        assert array.dtype == expected_array.dtype and array.tobytes() == expected_array.tobytes()


def texts_alone(texts: list[str]) -> Dataset:
    """Return a data set of texts without labels."""
    labels = LabelRows(np.zeros(len(texts) + 1, np.int64), np.empty(0, np.int32), 1)
    return Dataset(
        "texts", "0" * 64, len(texts), labels, np.zeros(len(texts), np.int32), texts=texts
    )


def assert_same_rows(rows: SparseRows, matrix: Any, rtol: float = 1e-6) -> None:
    """Check that rows are those of a sparse matrix of scipy."""
    expected = sp.csr_matrix(matrix)
    expected.sort_indices()
    check_sparse(rows)
    assert expected.shape == (rows.n_rows, rows.n_features)
    assert np.array_equal(rows.indptr, expected.indptr) and np.array_equal(
        rows.indices, expected.indices
    )
    np.testing.assert_allclose(rows.values, expected.data, rtol=rtol)


def check_dataset(dataset: Dataset) -> None:
    """Check all invariants of Dataset."""
    instances = [
        part for part in (dataset.rows, dataset.texts, dataset.named_rows) if part is not None
    ]
    assert len(instances) == 1 and dataset.n_rows >= 1
    if dataset.rows is not None:
        assert dataset.rows.n_rows == dataset.n_rows
        check_sparse(dataset.rows)
    else:
        assert len(instances[0]) == dataset.n_rows
    labels = dataset.labels
    assert labels.indptr.dtype == np.int64 and labels.indices.dtype == np.int32
    assert labels.n_rows == dataset.n_rows == len(dataset.unknown_labels)
    assert labels.indptr[0] == 0 and labels.indptr[-1] == len(labels.indices)
    _check_ids(labels.indptr, labels.indices, labels.n_labels)
    assert len(dataset.sha256) == 64 and (dataset.unknown_labels >= 0).all()
    if dataset.label_names is not None:
        assert len(dataset.label_names) == labels.n_labels


def _check_ids(indptr: np.ndarray, indices: np.ndarray, n: int) -> None:
    assert (np.diff(indptr) >= 0).all()
    for start, end in itertools.pairwise(indptr):
        row = indices[start:end]
        assert (np.diff(row) > 0).all()
        assert not len(row) or (row[0] >= 0 and row[-1] < n)


def read(path: Path, content: bytes | str, **options: Any) -> Dataset:
    """Write a file, compressed if its name ends in .gz; return the data set read from it."""
    data = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    dataset = read_dataset(path, **options)
    check_dataset(dataset)
    return dataset


@contextlib.contextmanager
def refused(kind: Any, words: str, case: object = "") -> Iterator[SimpleNamespace]:
    """Expect an error of a class, whose message matches `words`; `value` is set to it.

    case  the case of a loop, which is printed if the error is missing or has another message
    """
    error_info = SimpleNamespace(value=None)
    try:
        yield error_info
    except kind as error:
        error_info.value = error
        assert re.search(words, str(error), re.DOTALL), (case, str(error))
    else:
        pytest.fail(f"{case} was not refused: {words}")


def refusal(path: Path, content: bytes | str, **options: Any) -> str:
    """Return the message with which a file of this content is refused, without the file's name."""
    with refused(BadData, "", (path, content[:500])) as error_info:
        read(path, content, **options)
    message = str(error_info.value)
    assert (
        message.startswith(str(path))
        and "\n" not in message
        and len(message) < 700 + len(str(path))
    ), message
    return message.removeprefix(str(path))


def labels_of(dataset: Dataset) -> list[list[int]]:
    """Return the label ids of each row."""
    ptr, ids = dataset.labels.indptr.tolist(), dataset.labels.indices.tolist()
    return [ids[first:last] for first, last in itertools.pairwise(ptr)]
