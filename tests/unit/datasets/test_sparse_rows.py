"""Sparse rows in text and in pairs of matrices: what good files mean, and the tables
of bad ones.
"""

import gzip
import hashlib
import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.helpers.datasets_helpers import as_rows, check_dataset, labels_of, read, refusal, refused

from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import Dataset
from xylem.datasets import read_dataset, stream
from xylem_store.names import NameTable, build_names

GOOD = b"3 4 5\n0,2 0:1 3:0.5\n 1:2\n4 \n"


def ids(n: int) -> NameTable:
    """The labels of a model that are named by their ids."""
    return build_names(map(str, range(n)))


def sizes_of(dataset: Dataset) -> tuple[int, int]:
    """The numbers of features and labels."""
    return dataset.rows.n_features, dataset.labels.n_labels


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_the_repository_format(tmp_path: Path, name: str) -> None:
    dataset = read(tmp_path / name, GOOD)
    assert as_rows(dataset.rows, dataset.labels) == [
        ([0, 2], {0: 1.0, 3: 0.5}),
        ([], {1: 2.0}),
        ([4], {}),
    ]
    assert (dataset.n_rows, sizes_of(dataset), dataset.source) == (3, (4, 5), name)
    assert dataset.sha256 == hashlib.sha256(GOOD).hexdigest()
    assert dataset.label_names is None and dataset.unknown_labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("data", "line", "fault"),
    [
        (b"", 1, "expected a header `points features labels`, found an empty file"),
        (b"\n", 1, "expected a header `points features labels`, found ''"),
        (b"1 2\n", 1, "expected a header"),
        (b"1 2 3 4\n", 1, "expected a header"),
        (b"1 2 x\n", 1, "expected a header `points features labels`, found '1 2 x'"),
        (b"1 2 3.0\n", 1, "expected a header"),
        (b"-1 2 3\n", 1, "expected a header"),
        (b"0 2 3\n", 1, "expected 1 to 2147483648 points in the header, found '0 2 3'"),
        (b"99999999999999999999 2 3\n", 1, "expected 1 to 2147483648 points"),
        (b"1 268435457 3\n", 1, "expected at most 268435456 features and labels"),
        (b"1 3 99999999999999999999\n", 1, "expected at most 268435456 features and labels"),
        (b"2 4 5\n1 1:1\n", 2, "expected 2 rows as the header says, found 1"),
        (b"2 4 5\n", 1, "expected 2 rows as the header says, found 0"),
        (
            b"1 4 5\n1 1:1\n2 2:2\n",
            3,
            "expected 1 rows as the header says, found more, beginning with '2'",
        ),
        (b"1 4 5\n1 1:1\n\n\n \n", 5, "expected 1 rows as the header says, found more"),
        (b"2 4 5\n1 1:1\n5 1:1\n", 3, "expected a label id below 5, found '5'"),
        (
            b"2 4 5\n1 1:1\n1,99999999999999999999 1:1\n",
            3,
            "expected a label id below 5, found '9999",
        ),
        (b"2 4 5\n1 1:1\n1 4:1\n", 3, "expected a feature id below 4, found '4:1'"),
        (b"2 4 5\n1 1:1\n1 1:1 99999999999999999999:1\n", 3, "expected a feature id below 4"),
        (b"2 4 5\n1 1:1\n-1 1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n1, 1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n,1 1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n1.0 1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n1:1 2:1\n", 3, "a row without labels begins with a space), found '1:1'"),
        (b"2 4 5\n1 1:1\ncat 1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n1 2\n", 3, "expected a colon after the feature id, found '2'"),
        (b"2 4 5\n1 1:1\n1 2 3:1\n", 3, "expected a colon after the feature id, found '2'"),
        (b"2 4 5\n1 1:1\n1 1 :1\n", 3, "expected a colon after the feature id, found '1'"),
        (b"2 4 5\n1 1:1\n1 -1:1\n", 3, "expected feature:value with a feature id, found '-1:1'"),
        (
            b"2 4 5\n1 1:1\n1 true:1\n",
            3,
            "expected feature:value with a feature id, found 'true:1'",
        ),
        (
            b"2 4 5\n1 1:1\n1 1:\n",
            3,
            "expected a decimal number of at most 1100 bytes as value, found '1:'",
        ),
        (b"2 4 5\n1 1:1\n1 1:x\n", 3, "expected a decimal number of at most 1100 bytes as value"),
        (b"2 4 5\n1 1:1\n1 1:0x10\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1_0\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1,2\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1:2\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1e\n", 3, "expected a decimal number"),
        (
            b"2 4 5\n1 1:1\n1 1:" + b"0" * 1100 + b"1\n",
            3,
            "expected a decimal number of at most 1100 bytes",
        ),
        (
            b"2 4 5\n1 1:1\n1 1:nan\n",
            3,
            "expected a value that is finite in 32 bits, found '1:nan'",
        ),
        (
            b"2 4 5\n1 1:1\n1 2:1 1:-inf\n",
            3,
            "expected a value that is finite in 32 bits, found '1:-inf'",
        ),
        (
            b"2 4 5\n1 1:1\n1 2:1 1:1e400\n",
            3,
            "expected a value that is finite in 32 bits, found '1:1e400'",
        ),
        (
            b"2 4 5\n1 1:1\n1\t1:-1e400 2:1\n",
            3,
            "a value that is finite in 32 bits, found '1:-1e400'",
        ),
        (
            b"2 4 5\n1 1:1\n1 1:1e39\n",
            3,
            "expected a value that is finite in 32 bits, found '1:1e39'",
        ),
        (b"2 4 5\n1 1:1\n1 1:3e38 1:3e38\n", 3, "values sum to an infinite one"),
        (b"2 4 5\n1 1:1\n1 1:1\x002:1\n", 3, "found '1:1\\x002:1'"),
        (b"2 4 5\n1 1:1\n1\x0b1:1\n", 3, "expected label ids and commas"),
        (b"2 4 5\n1 1:1\n\xff\xfe 1:1\n", 3, "found '\\\\xff\\\\xfe'"),
        (b"2 4 5\n1 1:1\n1 1:1\r2:1\n", 3, "expected a decimal number"),
        (b"2 4 5\n# words\n1 1:1\n", 2, "expected label ids and commas"),
        (b"\xef\xbb\xbf\xef\xbb\xbf1 4 5\n1 1:1\n", 1, "expected a header"),
    ],
)
@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
def test_bad_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    line: int,
    fault: str,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    for name in ("bad.txt", "bad.txt.gz"):
        said = refusal(tmp_path / name, data)
        assert said.startswith(f":{line}: expected ") and ", found " in said and fault in said


def test_values_are_rounded_to_32_bits_and_at_most_1100_bytes(tmp_path: Path) -> None:
    numbers = ("16777217", "0.1000000000000000055511151231257827", "1e-400", "0" * 1099 + "1")
    pairs = " ".join(f"{feature}:{number}" for feature, number in enumerate(numbers))
    dataset = read(tmp_path / "a.txt", f"1 4 5\n2 {pairs}\n")
    assert dataset.rows.values.tolist() == [16777216.0, np.float32(0.1), 0.0, 1.0]


def test_sizes_of_libsvm_are_those_of_its_ids_or_of_a_model(tmp_path: Path) -> None:
    assert sizes_of(read(tmp_path / "a.svm", "1,3 2:0.5 1:1\n")) == (3, 4)
    assert sizes_of(read_dataset(tmp_path / "a.svm", labels=ids(9), n_features=8)) == (8, 9)


def test_bad_libsvm(tmp_path: Path) -> None:
    for data, line, fault in (
        (b"", 1, "expected at least one row, found none"),
        (b"\n# nothing\n\n", 1, "expected at least one row, found none"),
        (b"1 1:1\n\n#x\n268435456 1:1\n", 4, "expected a label id below 268435456"),
        (b"1 1:1\n1 268435456:1\n", 2, "expected a feature id below 268435456"),
        (b"1 1:1 # a comment\n", 1, "expected feature:value with a feature id, found '#'"),
        (b"1 qid:3 1:1\n", 1, "expected feature:value with a feature id, found 'qid:3'"),
        (b"+1 1:1\n", 1, "expected label ids and commas"),
    ):
        said = refusal(tmp_path / "bad.svm", data)
        assert said.startswith(f":{line}: ") and fault in said


def test_sizes_of_a_model_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert sizes_of(read(path, GOOD, labels=ids(7), n_features=6)) == (6, 7)
    expected = ":1: expected at most {} as in the model or names file, found {}"
    assert refusal(path, GOOD, n_features=3).startswith(expected.format("3 features", 4))


def test_labels_beyond_those_of_a_model_are_counted(
    tmp_path: Path,
) -> None:
    """A file may have labels that came after the model: no
    prediction can hit them, and they are named.
    """
    paths = (tmp_path / "a.txt", tmp_path / "a.svm", write_pair(tmp_path, packed(X), packed(Y)))
    paths[0].write_text("3 4 3\n0,2 0:1.5 3:2\n1\n 0:3 3:1\n")
    paths[1].write_text("0,2 0:1.5 3:2\n1 1:0\n 0:3 3:1\n")
    for path in paths:
        dataset = read_dataset(path, labels=ids(2), n_features=4)
        check_dataset(dataset)
        assert (labels_of(dataset), dataset.labels.n_labels) == ([[0], [1], []], 2), path
        assert dataset.unknown_labels.tolist() == [1, 0, 0], path
        assert dataset.unknown_names == ["2"], path


def test_libsvm_features_unknown_to_a_model_are_counted(tmp_path: Path) -> None:
    """A file without a header may have ids that the training rows did not have."""
    content = "1,3 2:0.5 1:4\n3,4 5:1\n2,0 0:2\n 268435455:1\n268435455 0:1\n"
    dataset = read(tmp_path / "a.svm", content, labels=ids(3), n_features=2)
    expected = [([1], {1: 4.0}), ([], {}), ([0, 2], {0: 2.0}), ([], {}), ([], {0: 1.0})]
    assert as_rows(dataset.rows, dataset.labels) == expected
    assert dataset.unknown_labels.tolist() == [1, 2, 0, 0, 1] and "3" in dataset.unknown_names
    assert sizes_of(dataset) == (2, 3)
    names = tmp_path / "names.txt"
    names.write_text("a\nb\nc\n")
    said = refusal(tmp_path / "a.svm", content, label_names_file=names)
    assert said.startswith(":1: expected a label id below 3")


def test_names_of_labels(tmp_path: Path) -> None:
    path, names, model = (
        tmp_path / "a.txt",
        tmp_path / "labels.txt",
        build_names(["a", "b", "c", "d"]),
    )
    names.write_bytes(b"e\nd\r\nc\nb\na")
    assert read(path, GOOD, label_names_file=names).label_names == ["e", "d", "c", "b", "a"]
    dataset = read(path, GOOD, label_names_file=names, labels=model)
    assert labels_of(dataset) == [[2], [], [0]]
    assert dataset.unknown_labels.tolist() == [1, 0, 0] and dataset.unknown_names == ["e"]
    assert dataset.label_names is None and dataset.labels.n_labels == 4
    assert read(path, GOOD, labels=model).unknown_names == ["4"]
    (tmp_path / "few.txt").write_text("a\nb\n")
    said = refusal(path, GOOD, label_names_file=tmp_path / "few.txt")
    assert "expected at most 2 labels as in the model or names file, found 5" in said
    assert read(path, GOOD, labels=build_names(list("abcdef"))).labels.n_labels == 6
    with pytest.raises(BadParameter, match="expected a names file with numeric formats only"):
        read(tmp_path / "a.jsonl", '{"text": "a", "labels": ["b"]}\n', label_names_file=names)


def test_bad_names_files(tmp_path: Path) -> None:
    for names, place, fault in (
        (b"", "", "expected the names of labels, found an empty file"),
        (b"a\n\nb\nc\nd\n", ":2", "expected a name of at least one byte"),
        (b"a\nb\nc\nd\na\n", ":5", "expected distinct names, found one that occurs twice: 'a'"),
        (b"a\nb\nc\x01\nd\ne\n", ":3", "expected no control characters"),
        (b"a\n\xff\nc\nd\ne\n", ":2", "expected UTF-8, found byte 0xff"),
        (b"a\n" + b"x" * 4097 + b"\nc\nd\ne\n", ":2", "expected at most 4096 bytes"),
    ):
        (tmp_path / "labels.txt").write_bytes(names)
        with refused(BadData, f"^{tmp_path}/labels.txt{place}: .*{fault}"):
            read(tmp_path / "a.txt", GOOD, label_names_file=tmp_path / "labels.txt")


def test_every_cut_of_a_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(GOOD, mtime=0)
    for cut in range(len(packed)):
        path = tmp_path / "a.txt.gz"
        path.write_bytes(packed[:cut])
        with pytest.raises(BadData, match=r"a\.txt\.gz: expected (whole )?gzip data"):
            read_dataset(path)


def test_zeros_behind_gzip_are_padding_other_bytes_are_refused(tmp_path: Path) -> None:
    """As bodies of requests are read (test_encodings.py)."""
    path = tmp_path / "a.txt.gz"
    packed = gzip.compress(GOOD, mtime=0)
    path.write_bytes(packed)
    expected = read_dataset(path)
    path.write_bytes(packed + bytes(600))
    assert read_dataset(path).sha256 == expected.sha256
    for tail in (b"more", b"\0more"):
        path.write_bytes(packed + tail)
        with pytest.raises(BadData, match=r"a\.txt\.gz: expected whole gzip data, found damage"):
            read_dataset(path)


def test_files_that_are_not_there_or_not_what_their_name_says(tmp_path: Path) -> None:
    for name, data, fault in (
        ("a.txt.gz", GOOD, "expected gzip data, as the suffix .gz says, found other data"),
        ("a.txt", gzip.compress(GOOD, mtime=0), "expected no compression, found gzip data"),
        (
            "a.xls",
            GOOD,
            "a name that ends in .txt, .svm, .jsonl, .ndjson, .npz, .csv, .tsv, .parquet",
        ),
        ("a.gz", GOOD, "expected a name that ends in"),
        ("txt", GOOD, "expected a name that ends in"),
        ("a.txt.bz2", GOOD, "expected a name that ends in"),
        ("absent.txt", None, "expected a readable file, found"),
        ("absent.jsonl", None, "expected a readable file, found"),
        ("absent.X.npz", None, "expected a readable file, found"),
    ):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with refused(BadData, f"^{path}: .*{fault}"):
            read_dataset(path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n2 2:2\n"])
def test_the_longest_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Any) -> None:
    path, longest = tmp_path / "a.txt", b"1 1:1" + b" " * 35
    monkeypatch.setattr(stream, "LINE_BYTES_MAX", 40)
    for block_bytes in (7, 16, 1 << 20):
        monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
        n = 2 + end.count(b"2 2")
        assert read(path, b"%d 4 5\n0 0:1\n" % n + longest + end).n_rows == n
    monkeypatch.setattr(stream, "BLOCK_BYTES", 16)
    said = refusal(path, b"2 4 5\n0 0:1\n" + longest + b" " + end)
    assert said.startswith(":3: expected a line of at most 40 bytes, found a longer one")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_progress_ends_at_the_size_of_the_file(tmp_path: Path, name: str) -> None:
    path, seen = tmp_path / name, []
    rows = b"".join(b"%d %d:1.5\n" % (i % 5, i % 4) for i in range(300_000))
    dataset = read(path, b"300000 4 5\n" + rows, on_progress=lambda *so_far: seen.append(so_far))
    assert dataset.n_rows == 300_000
    assert len(seen) > 1 and seen == sorted(seen) and seen[-1] == (path.stat().st_size,) * 2


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
        (folder / f"a.{letter}.{suffix}").write_bytes(
            gzip.compress(data) if suffix == "npz.gz" else data
        )
    return folder / f"a.X.{suffix}"


@pytest.mark.parametrize("suffix", ["npz", "npz.gz"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
def test_a_pair(tmp_path: Path, suffix: str, kind: type) -> None:
    x, y = packed(abs(X).astype(kind)), packed(Y)
    dataset = read_dataset(write_pair(tmp_path, x, y, suffix))
    check_dataset(dataset)
    first = 1.5 if np.dtype(kind).kind == "f" else 1.0
    expected = [([0, 2], {1: first, 3: 2.0}), ([1], {}), ([], {0: 3.0, 3: 1.0})]
    assert as_rows(dataset.rows, dataset.labels) == expected
    assert sizes_of(dataset) == (4, 3)
    assert dataset.sha256 == hashlib.sha256(x + y).hexdigest()


def test_unsorted_repeated_and_zero_entries(tmp_path: Path) -> None:
    x = packed_arrays(
        **csr_arrays(X, indices=np.array([3, 3, 3, 0]), data=np.array([1.0, 2.0, 4.0, 5.0]))
    )
    y = packed_arrays(**csr_arrays(Y, indices=np.array([2, 2, 1]), data=np.array([1.0, 1.0, 0.0])))
    dataset = read_dataset(write_pair(tmp_path, x, y))
    check_dataset(dataset)
    assert as_rows(dataset.rows, dataset.labels) == [
        ([2], {3: 3.0}),
        ([], {}),
        ([], {0: 5.0, 3: 4.0}),
    ]


def test_sizes_and_names_of_a_model_hold_for_a_pair(tmp_path: Path) -> None:
    path = write_pair(tmp_path, packed(X), packed(Y))
    dataset = read_dataset(path, labels=build_names(["a", "b", "c", "d"]), n_features=9)
    assert sizes_of(dataset) == (9, 4)
    names = tmp_path / "names.txt"
    names.write_text("a\nb\n")
    with pytest.raises(
        BadData, match="expected at most the 2 columns of the model or names file, found 3"
    ):
        read_dataset(path, label_names_file=names)
    with pytest.raises(
        BadData, match="expected at most the 3 columns of the model or names file, found 4"
    ):
        read_dataset(path, n_features=3)


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
        (
            packed_arrays(**csr_arrays(X, data=np.array(["1"] * 4))),
            "expected numbers in data, found <U1",
        ),
        (
            packed_arrays(**csr_arrays(X, data=X.data * 1j)),
            "expected numbers in data, found complex128",
        ),
        (
            packed_arrays(**csr_arrays(X, data=X.data * np.nan)),
            "row 0: expected values that are finite",
        ),
        (
            packed_arrays(**csr_arrays(X, data=X.data * 1e300)),
            "row 0: expected values that are finite",
        ),
        (
            packed_arrays(**csr_arrays(X, data=X.data[:2])),
            "expected 4 indices and data, found 4 and 2",
        ),
        (
            packed_arrays(**csr_arrays(X, data=X.data.reshape(2, 2))),
            "expected arrays in one dimension",
        ),
        (
            packed_arrays(**csr_arrays(X, indices=X.indices + 2)),
            "expected columns in [0, 4), found 2 to 5",
        ),
        (
            packed_arrays(**csr_arrays(X, indices=X.indices - 1)),
            "expected columns in [0, 4), found -1 to 2",
        ),
        (
            packed_arrays(**csr_arrays(X, indices=X.indices * 1.0)),
            "expected integers in shape, indptr",
        ),
        (
            packed_arrays(**csr_arrays(X, indptr=np.array([0, 3, 2, 4]))),
            "expected 4 ascending offsets",
        ),
        (
            packed_arrays(**csr_arrays(X, indptr=np.array([1, 2, 2, 4]))),
            "expected 4 ascending offsets",
        ),
        (packed_arrays(**csr_arrays(X, indptr=np.array([0, 4]))), "expected 4 ascending offsets"),
        (
            packed_arrays(**csr_arrays(X, indptr=np.array([0, 2, 2, 3]))),
            "expected 3 indices and data",
        ),
        (
            packed_arrays(**csr_arrays(X, shape=np.array([3, 4, 1]))),
            "expected 1 to 2147483648 rows",
        ),
        (packed_arrays(**csr_arrays(X, shape=np.array([3, 1 << 40]))), "at most 268435456 columns"),
        (packed(X[:0]), "expected 1 to 2147483648 rows"),
        (packed(X[:2]), "expected 2 rows as in a.X.npz, found 3"),
    ],
)
def test_bad_pairs(tmp_path: Path, x: bytes, fault: str) -> None:
    with pytest.raises(BadData) as caught:
        read_dataset(write_pair(tmp_path, x, packed(Y)))
    assert fault in str(caught.value)
    assert "allow_pickle=`" not in str(
        caught.value
    )  # numpy's advice for what it takes for a pickle


def test_what_cannot_be_right_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Zeros shrink to a thousandth: 128 MB would be unpacked for a file of 130 kB."""
    for changes, fault in (
        (
            {"indices": np.zeros(1 << 24, np.int32)},
            "expected 4 indices and data, found 16777216 and 4",
        ),
        ({"data": np.zeros(1 << 24)}, "expected 4 indices and data, found 4 and 16777216"),
        (
            {"indptr": np.zeros(1 << 24, np.int64)},
            "expected 4 ascending offsets in indptr, found 16777216",
        ),
        ({"shape": np.zeros(1 << 24, np.int64)}, "expected a shape of two numbers, found 16777216"),
        ({"format": np.zeros(1 << 24, "S1")}, "expected a matrix of format csr"),
    ):
        file = io.BytesIO()
        np.savez_compressed(file, **csr_arrays(X, **changes))
        path = write_pair(tmp_path, file.getvalue(), packed(Y))
        tracemalloc.start()
        try:
            with refused(BadData, fault):
                read_dataset(path)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


def test_labels_and_names_that_are_no_pairs(tmp_path: Path) -> None:
    y = packed_arrays(**csr_arrays(Y, data=np.array([1, np.nan, 1])))
    path = write_pair(tmp_path, packed(X), y)
    with pytest.raises(BadData, match=r"a\.Y\.npz: expected numbers in data, found nan"):
        read_dataset(path)
    (tmp_path / "a.Y.npz").unlink()
    with pytest.raises(BadData, match=r"a\.Y\.npz: expected a readable file, found"):
        read_dataset(path)
    with pytest.raises(BadData, match=r"expected a pair of files, NAME\.X\.npz"):
        read_dataset(path.rename(tmp_path / "a.npz"))
