import gzip
import hashlib
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from model_store.names import build_names
from service.base.errors import BadData
from service.datasets import read_dataset
from tests.datasets_helpers import as_rows, check_dataset

X = sp.csr_matrix(np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 0, -1]]))
Y = sp.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.int8))


def packed(matrix: Any) -> bytes:
    file = io.BytesIO()
    sp.save_npz(file, matrix)
    return file.getvalue()


def packed_arrays(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def csr_arrays(matrix: Any, **other: Any) -> dict[str, Any]:
    return {
        "format": b"csr",
        "shape": np.array(matrix.shape),
        "indptr": matrix.indptr,
        "indices": matrix.indices,
        "data": matrix.data,
    } | other


def write_pair(folder: Path, x: bytes, y: bytes, suffix: str = "npz") -> Path:
    for letter, data in (("X", x), ("Y", y)):
        (folder / f"a.{letter}.{suffix}").write_bytes(gzip.compress(data) if suffix == "npz.gz" else data)
    return folder / f"a.X.{suffix}"


@pytest.mark.parametrize("suffix", ["npz", "npz.gz"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
def test_a_pair(tmp_path, suffix, kind):
    x, y = packed(abs(X).astype(kind)), packed(Y)
    dataset = read_dataset(write_pair(tmp_path, x, y, suffix))
    check_dataset(dataset)
    first = 1.5 if np.dtype(kind).kind == "f" else 1.0
    expected = [([0, 2], {1: first, 3: 2.0}), ([1], {}), ([], {0: 3.0, 3: 1.0})]
    assert as_rows(dataset.rows, dataset.labels) == expected
    assert (dataset.rows.n_features, dataset.labels.n_labels) == (4, 3)
    assert dataset.sha256 == hashlib.sha256(x + y).hexdigest()


def test_unsorted_repeated_and_zero_entries(tmp_path):
    x = packed_arrays(**csr_arrays(X, indices=np.array([3, 3, 3, 0]), data=np.array([1.0, 2.0, 4.0, 5.0])))
    y = packed_arrays(**csr_arrays(Y, indices=np.array([2, 2, 1]), data=np.array([1.0, 1.0, 0.0])))
    dataset = read_dataset(write_pair(tmp_path, x, y))
    check_dataset(dataset)
    assert as_rows(dataset.rows, dataset.labels) == [([2], {3: 3.0}), ([], {}), ([], {0: 5.0, 3: 4.0})]


def test_sizes_and_names_of_a_model(tmp_path):
    path = write_pair(tmp_path, packed(X), packed(Y))
    dataset = read_dataset(path, labels=build_names(["a", "b", "c", "d"]), n_features=9)
    assert (dataset.rows.n_features, dataset.labels.n_labels) == (9, 4)
    with pytest.raises(BadData, match="expected at most the 2 columns of the model or names file, found 3"):
        read_dataset(path, labels=build_names(["a", "b"]))


@pytest.mark.parametrize(
    ("x", "fault"),
    [
        (b"", "expected a matrix saved by scipy.sparse.save_npz, found damage"),
        (b"no zip", "expected a matrix saved by scipy.sparse.save_npz, found damage"),
        (packed(X)[:-30], "expected a matrix saved by scipy.sparse.save_npz, found damage"),
        (packed(X.tocsc()), "expected a matrix of format csr (X.tocsr()), found b'csc'"),
        (packed(X.tocoo()), "expected a matrix of format csr (X.tocsr()), found b'coo'"),
        (packed_arrays(x=np.arange(3)), "in it, found no format"),
        (packed_arrays(format=b"csr", shape=np.array([3, 4])), "in it, found no indptr"),
        (packed_arrays(**csr_arrays(X, data=np.array([None] * 4, object))), "found damage"),
        (packed_arrays(**csr_arrays(X, data=np.array(["1"] * 4))), "expected numbers in data, found <U1"),
        (packed_arrays(**csr_arrays(X, data=X.data * 1j)), "expected numbers in data, found complex128"),
        (packed_arrays(**csr_arrays(X, data=X.data * np.nan)), "row 0: expected values that are finite"),
        (packed_arrays(**csr_arrays(X, data=X.data * 1e300)), "row 0: expected values that are finite"),
        (packed_arrays(**csr_arrays(X, data=X.data[:2])), "expected 4 indices and data, found 4 and 2"),
        (packed_arrays(**csr_arrays(X, data=X.data.reshape(2, 2))), "expected arrays in one dimension"),
        (packed_arrays(**csr_arrays(X, indices=X.indices + 2)), "expected columns in [0, 4), found 2 to 5"),
        (packed_arrays(**csr_arrays(X, indices=X.indices - 1)), "expected columns in [0, 4), found -1 to 2"),
        (packed_arrays(**csr_arrays(X, indices=X.indices * 1.0)), "expected integers in shape, indptr"),
        (packed_arrays(**csr_arrays(X, indptr=np.array([0, 3, 2, 4]))), "expected 4 ascending offsets"),
        (packed_arrays(**csr_arrays(X, indptr=np.array([1, 2, 2, 4]))), "expected 4 ascending offsets"),
        (packed_arrays(**csr_arrays(X, indptr=np.array([0, 4]))), "expected 4 ascending offsets"),
        (packed_arrays(**csr_arrays(X, indptr=np.array([0, 2, 2, 3]))), "expected 3 indices and data"),
        (packed_arrays(**csr_arrays(X, shape=np.array([3, 4, 1]))), "expected 1 to 2147483648 rows"),
        (packed_arrays(**csr_arrays(X, shape=np.array([3, 1 << 40]))), "at most 268435456 columns"),
        (packed(X[:0]), "expected 1 to 2147483648 rows"),
        (packed(X[:2]), "expected 2 rows as in a.X.npz, found 3"),
    ],
)
def test_bad_pairs(tmp_path, x, fault):
    with pytest.raises(BadData) as caught:
        read_dataset(write_pair(tmp_path, x, packed(Y)))
    assert fault in str(caught.value)
    assert "allow_pickle=`" not in str(caught.value)  # numpy's advice for what it takes for a pickle


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"indices": np.zeros(1 << 24, np.int32)}, "expected 4 indices and data, found 16777216 and 4"),
        ({"data": np.zeros(1 << 24)}, "expected 4 indices and data, found 4 and 16777216"),
        ({"indptr": np.zeros(1 << 24, np.int64)}, "expected 4 ascending offsets in indptr, found 16777216"),
        ({"shape": np.zeros(1 << 24, np.int64)}, "expected a shape of two numbers, found 16777216"),
        ({"format": np.zeros(1 << 24, "S1")}, "expected a matrix of format csr"),
    ],
)
def test_what_cannot_be_right_is_refused_before_it_is_unpacked(tmp_path, changes, fault):
    """Zeros shrink to a thousandth: 128 MB would be unpacked for a file of 130 kB."""
    file = io.BytesIO()
    np.savez_compressed(file, **csr_arrays(X, **changes))
    path = write_pair(tmp_path, file.getvalue(), packed(Y))
    tracemalloc.start()
    try:
        with pytest.raises(BadData) as caught:
            read_dataset(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert fault in str(caught.value)


def test_a_label_that_is_no_number(tmp_path):
    y = packed_arrays(**csr_arrays(Y, data=np.array([1, np.nan, 1])))
    with pytest.raises(BadData, match=r"a\.Y\.npz: expected numbers in data, found nan"):
        read_dataset(write_pair(tmp_path, packed(X), y))


def test_names_of_pairs(tmp_path):
    path = write_pair(tmp_path, packed(X), packed(Y))
    with pytest.raises(BadData, match=r"expected a pair of files, NAME\.X\.npz"):
        read_dataset(path.rename(tmp_path / "a.npz"))
    (tmp_path / "a.npz").rename(path)
    (tmp_path / "a.Y.npz").unlink()
    with pytest.raises(BadData, match=r"a\.Y\.npz: expected a readable file, found"):
        read_dataset(path)
