"""The table of bad input for data files, and what good ones mean."""

import gzip
import hashlib

import numpy as np
import pytest

from model_store.names import NameTable, build_names
from service.base.errors import BadData, BadInput, BadParameter
from service.base.rows import Dataset
from service.datasets import read_dataset, stream
from tests.datasets_helpers import as_rows, labels_of, read, refusal

GOOD = b"3 4 5\n0,2 0:1 3:0.5\n 1:2\n4 \n"


def ids(n: int) -> NameTable:
    """The labels of a model that are named by their ids."""
    return build_names(map(str, range(n)))


def sizes_of(dataset: Dataset) -> tuple[int, int]:
    """The numbers of features and labels."""
    return dataset.rows.n_features, dataset.labels.n_labels


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_the_repository_format(tmp_path, name):
    dataset = read(tmp_path / name, GOOD)
    assert as_rows(dataset.rows, dataset.labels) == [([0, 2], {0: 1.0, 3: 0.5}), ([], {1: 2.0}), ([4], {})]
    assert (dataset.n_rows, sizes_of(dataset), dataset.source) == (3, (4, 5), name)
    assert dataset.sha256 == hashlib.sha256(GOOD).hexdigest()
    assert dataset.label_names is None and dataset.unknown_labels.tolist() == [0, 0, 0]


def test_values_are_rounded_to_32_bits(tmp_path):
    numbers = "1:16777217 2:0.1000000000000000055511151231257827 3:1e-400"
    dataset = read(tmp_path / "a.txt", f"1 4 5\n2 {numbers}\n")
    assert dataset.rows.values.tolist() == [16777216.0, np.float32(0.1), 0.0]


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
        (b"1 4 5\n1 1:1\n2 2:2\n", 3, "expected 1 rows as the header says, found more, beginning with '2'"),
        (b"1 4 5\n1 1:1\n\n\n \n", 5, "expected 1 rows as the header says, found more"),
        (b"2 4 5\n1 1:1\n5 1:1\n", 3, "expected a label id below 5, found '5'"),
        (b"2 4 5\n1 1:1\n1,99999999999999999999 1:1\n", 3, "expected a label id below 5, found '9999"),
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
        (b"2 4 5\n1 1:1\n1 true:1\n", 3, "expected feature:value with a feature id, found 'true:1'"),
        (b"2 4 5\n1 1:1\n1 1:\n", 3, "expected a decimal number of at most 1100 bytes as value, found '1:'"),
        (b"2 4 5\n1 1:1\n1 1:x\n", 3, "expected a decimal number of at most 1100 bytes as value"),
        (b"2 4 5\n1 1:1\n1 1:0x10\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1_0\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1,2\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1:2\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:1e\n", 3, "expected a decimal number"),
        (b"2 4 5\n1 1:1\n1 1:" + b"0" * 1100 + b"1\n", 3, "expected a decimal number of at most 1100 bytes"),
        (b"2 4 5\n1 1:1\n1 1:nan\n", 3, "expected a value that is finite in 32 bits, found '1:nan'"),
        (b"2 4 5\n1 1:1\n1 2:1 1:-inf\n", 3, "expected a value that is finite in 32 bits, found '1:-inf'"),
        (b"2 4 5\n1 1:1\n1 2:1 1:1e400\n", 3, "expected a value that is finite in 32 bits, found '1:1e400'"),
        (b"2 4 5\n1 1:1\n1\t1:-1e400 2:1\n", 3, "a value that is finite in 32 bits, found '1:-1e400'"),
        (b"2 4 5\n1 1:1\n1 1:1e39\n", 3, "expected a value that is finite in 32 bits, found '1:1e39'"),
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
def test_bad_input(tmp_path, monkeypatch, data, line, fault, block_bytes):
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    for name in ("bad.txt", "bad.txt.gz"):
        said = refusal(tmp_path / name, data)
        assert said.startswith(f":{line}: expected ") and ", found " in said and fault in said


def test_a_number_of_1100_bytes_is_the_longest(tmp_path):
    dataset = read(tmp_path / "a.txt", b"1 4 5\n1 1:" + b"0" * 1099 + b"1 2:1\n")
    assert dataset.rows.values.tolist() == [1.0, 1.0]


def test_sizes_of_libsvm_are_those_of_its_ids_or_of_a_model(tmp_path):
    assert sizes_of(read(tmp_path / "a.svm", "1,3 2:0.5 1:1\n")) == (3, 4)
    assert sizes_of(read_dataset(tmp_path / "a.svm", labels=ids(9), n_features=8)) == (8, 9)


@pytest.mark.parametrize(
    ("data", "line", "fault"),
    [
        (b"", 1, "expected at least one row, found none"),
        (b"\n# nothing\n\n", 1, "expected at least one row, found none"),
        (b"1 1:1\n\n#x\n268435456 1:1\n", 4, "expected a label id below 268435456"),
        (b"1 1:1\n1 268435456:1\n", 2, "expected a feature id below 268435456"),
        (b"1 1:1 # a comment\n", 1, "expected feature:value with a feature id, found '#'"),
        (b"1 qid:3 1:1\n", 1, "expected feature:value with a feature id, found 'qid:3'"),
        (b"+1 1:1\n", 1, "expected label ids and commas"),
    ],
)
def test_bad_libsvm(tmp_path, data, line, fault):
    said = refusal(tmp_path / "bad.svm", data)
    assert said.startswith(f":{line}: ") and fault in said


def test_sizes_of_a_model_hold(tmp_path):
    path = tmp_path / "a.txt"
    assert sizes_of(read(path, GOOD, labels=ids(7), n_features=6)) == (6, 7)
    expected = ":1: expected at most {} as in the model or names file, found {}"
    assert refusal(path, GOOD, labels=ids(4)).startswith(expected.format("4 labels", 5))
    assert refusal(path, GOOD, n_features=3).startswith(expected.format("3 features", 4))


def test_what_a_model_does_not_know_of_libsvm_is_counted_or_left_out(tmp_path):
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


def test_names_of_labels(tmp_path):
    path, names, model = tmp_path / "a.txt", tmp_path / "labels.txt", build_names(["a", "b", "c", "d"])
    names.write_bytes(b"e\nd\r\nc\nb\na")
    assert read(path, GOOD, label_names_file=names).label_names == ["e", "d", "c", "b", "a"]
    dataset = read(path, GOOD, label_names_file=names, labels=model)
    assert labels_of(dataset) == [[2], [], [0]]
    assert dataset.unknown_labels.tolist() == [1, 0, 0] and dataset.unknown_names == ["e"]
    assert dataset.label_names is None and dataset.labels.n_labels == 4
    assert "expected at most 4 labels" in refusal(path, GOOD, labels=model)
    assert read(path, GOOD, labels=build_names(list("abcdef"))).labels.n_labels == 6


@pytest.mark.parametrize(
    ("names", "place", "fault"),
    [
        (b"", "", "expected the names of labels, found an empty file"),
        (b"a\n\nb\nc\nd\n", ":2", "expected a name of at least one byte"),
        (b"a\nb\nc\nd\na\n", ":5", "expected distinct names, found one that occurs twice: 'a'"),
        (b"a\nb\nc\x01\nd\ne\n", ":3", "expected no control characters"),
        (b"a\n\xff\nc\nd\ne\n", ":2", "expected UTF-8, found byte 0xff"),
        (b"a\n" + b"x" * 4097 + b"\nc\nd\ne\n", ":2", "expected at most 4096 bytes"),
    ],
)
def test_bad_names_files(tmp_path, names, place, fault):
    data, path = tmp_path / "a.txt", tmp_path / "labels.txt"
    data.write_bytes(GOOD)
    path.write_bytes(names)
    with pytest.raises(BadData) as caught:
        read_dataset(data, label_names_file=path)
    assert str(caught.value).startswith(f"{path}{place}: ") and fault in str(caught.value)


def test_fewer_names_than_labels_are_refused(tmp_path):
    names = tmp_path / "labels.txt"
    names.write_text("a\nb\n")
    said = refusal(tmp_path / "a.txt", GOOD, label_names_file=names)
    assert "expected at most 2 labels as in the model or names file, found 5" in said


def test_every_cut_of_a_gzip_file_is_refused(tmp_path):
    packed = gzip.compress(GOOD, mtime=0)
    for cut in range(len(packed)):
        path = tmp_path / "a.txt.gz"
        path.write_bytes(packed[:cut])
        with pytest.raises(BadData, match=r"a\.txt\.gz: expected (whole )?gzip data"):
            read_dataset(path)


@pytest.mark.parametrize(
    ("name", "data", "fault"),
    [
        ("a.txt.gz", GOOD, "expected gzip data, as the suffix .gz says, found other data"),
        ("a.txt", gzip.compress(GOOD, mtime=0), "expected no compression, found gzip data"),
        ("a.xls", GOOD, "a name that ends in .txt, .svm, .jsonl, .ndjson, .npz, .csv, .tsv, .parquet"),
        ("a.gz", GOOD, "expected a name that ends in"),
        ("txt", GOOD, "expected a name that ends in"),
        ("a.txt.bz2", GOOD, "expected a name that ends in"),
        ("absent.txt", None, "expected a readable file, found"),
        ("absent.jsonl", None, "expected a readable file, found"),
        ("absent.X.npz", None, "expected a readable file, found"),
    ],
)
def test_files_that_are_not_there_or_not_what_their_name_says(tmp_path, name, data, fault):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadData) as caught:
        read_dataset(path)
    assert str(caught.value).startswith(f"{path}: ") and fault in str(caught.value)


def test_contradicting_arguments_are_bad_input(tmp_path):
    jsonl = tmp_path / "a.jsonl"
    jsonl.write_text('{"text": "a", "labels": ["b"]}\n')
    with pytest.raises(BadParameter, match="expected a names file with numeric formats only"):
        read_dataset(jsonl, label_names_file=jsonl)
    assert issubclass(BadData, BadInput)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n2 2:2\n"])
def test_the_longest_line(tmp_path, monkeypatch, end):
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
def test_progress_ends_at_the_size_of_the_file(tmp_path, name):
    path, seen = tmp_path / name, []
    rows = b"".join(b"%d %d:1.5\n" % (i % 5, i % 4) for i in range(300_000))
    dataset = read(path, b"300000 4 5\n" + rows, on_progress=lambda *so_far: seen.append(so_far))
    assert dataset.n_rows == 300_000
    assert len(seen) > 1 and seen == sorted(seen) and seen[-1] == (path.stat().st_size,) * 2
