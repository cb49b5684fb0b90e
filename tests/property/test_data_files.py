"""No bytes give anything but BadData or what a slow reader finds in them."""

import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from tests.helpers.datasets_helpers import as_rows, check_dataset
from tests.oracles.data_files import RefusedError, parse_svm, parse_txt

from xylem.base.errors import BadData
from xylem.datasets import read_dataset, stream

TXT = b"5 9 7\n0,2 0:1 3:0.5\n 1:2 8:-1e-3\n6 \n1,1,0 3:.25 3:1 0:2\n\n"
SVM = b"# words\n0,2 0:1 3:0.5\n 1:2 8:-1e-3\n6 \n\n1,1,0 3:.25 3:1 0:2\r\n"
TEXTS = b'{"text": "one two", "labels": ["a", "b"]}\n{"labels": [], "text": "\xc3\xa4"}\n'
NAMED = b'{"features": {"x": 1, "y": -0.5}, "labels": ["a"]}\n{"features": {}, "labels": []}\n'
ORACLES = {"a.txt": parse_txt, "a.svm": parse_svm}

ALPHABET = b" \t\r\n,:.+-eE0123456789#naif\x00\xff"
places = st.floats(0, 1, exclude_max=True)
edits = st.lists(st.tuples(st.integers(0, 2), places, st.sampled_from(ALPHABET)), max_size=4)
blocks = st.sampled_from([1, 3, 16, 1 << 20])


def edited(data: bytes, changes: list[tuple[int, float, int]]) -> bytes:
    """Replace, insert or delete bytes."""
    out = bytearray(data)
    for kind, where, byte in changes:
        i = int(where * len(out))
        if kind == 0 and out:
            out[i] = byte
        elif kind == 1:
            out.insert(i, byte)
        elif out:
            del out[i]
    return bytes(out)


def read_bytes(name: str, data: bytes, block_bytes: int = 16, labels: bytes = b"") -> Any:
    """The data set of a file, and the labels of an .npz pair beside it; None: it is refused."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK_BYTES", block_bytes)
        path, beside = Path(folder) / name, Path(folder) / "a.Y.npz"
        path.write_bytes(data)
        beside.write_bytes(labels)
        try:
            dataset = read_dataset(path)
        except BadData as error:
            assert str(error).startswith((str(path), str(beside)))
            return None
        check_dataset(dataset)
        return dataset


def agrees(name: str, data: bytes, block_bytes: int) -> None:
    """What is read of a file, or that it is refused, is what the slow reader says."""
    dataset = read_bytes(name, data, block_bytes)
    try:
        expected = ORACLES[name](data)
    except RefusedError:
        assert dataset is None
        return
    assert dataset is not None
    found = as_rows(dataset.rows, dataset.labels), dataset.labels.n_labels, dataset.rows.n_features
    assert found == expected


@pytest.mark.parametrize(("name", "data"), [("a.txt", TXT), ("a.svm", SVM)], ids=["txt", "svm"])
@settings(max_examples=300)
@given(edits, blocks)
def test_an_edited_file(name: str, data: Any, changes: Any, block_bytes: int) -> None:
    agrees(name, edited(data, changes), block_bytes)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(ALPHABET), max_size=40).map(bytes), blocks)
def test_random_bytes(data: bytes, block_bytes: int) -> None:
    agrees("a.txt", b"2 9 7\n" + data, block_bytes)
    agrees("a.svm", data, block_bytes)


number = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e30, 1e30).map(repr),
    st.integers(-(10**30), 10**30).map(str),
)
pairs = st.lists(st.tuples(st.integers(0, 8), number), max_size=8)
rows_of_numbers = st.lists(
    st.tuples(st.lists(st.integers(0, 6), max_size=4), pairs), min_size=1, max_size=8
)


@settings(max_examples=300)
@given(rows_of_numbers, blocks)
def test_rows_written_are_rows_read(
    rows: list[tuple[list[int], list[tuple[int, str]]]], block_bytes: int
) -> None:
    lines = [
        ",".join(map(str, labels)) + "".join(f" {i}:{v}" for i, v in pairs)
        for labels, pairs in rows
    ]
    body = "\n".join(line or " " for line in lines).encode()
    agrees("a.txt", b"%d 9 7\n" % len(rows) + body, block_bytes)
    agrees("a.svm", body, block_bytes)


@settings(max_examples=200)
@given(st.sampled_from([TEXTS, NAMED]), edits, st.binary(max_size=3), st.floats(0, 1), blocks)
def test_an_edited_jsonl_file(
    data: bytes, changes: list[tuple[int, float, int]], more: bytes, where: float, block_bytes: int
) -> None:
    data = edited(data, changes)
    i = int(where * len(data))
    read_bytes("a.jsonl", data[:i] + more + data[i:], block_bytes)


def packed(dense: np.ndarray) -> bytes:
    file = io.BytesIO()
    sp.save_npz(file, sp.csr_matrix(dense), compressed=False)
    return file.getvalue()


X = packed(np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 0, -1]]))
Y = packed(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.int8))


@settings(max_examples=200)
@given(
    st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4),
    st.booleans(),
    st.floats(0, 1),
)
def test_an_edited_npz_pair(changes: list[tuple[float, int]], of_labels: bool, cut: float) -> None:
    pair = [bytearray(X), bytearray(Y)]
    chosen = pair[of_labels]
    for where, byte in changes:
        chosen[int(where * len(chosen))] = byte
    if cut < 0.2:
        del chosen[int(5 * cut * len(chosen)) :]
    read_bytes("a.X.npz", bytes(pair[0]), labels=bytes(pair[1]))


@settings(max_examples=200)
@given(st.integers(0), st.integers(0, 255))
def test_an_edited_gzip_file(where: int, byte: int) -> None:
    data = bytearray(gzip.compress(TXT, mtime=0))
    data[where % len(data)] = byte
    dataset = read_bytes("a.txt.gz", bytes(data))
    if dataset is not None:
        assert as_rows(dataset.rows, dataset.labels) == parse_txt(TXT)[0]
