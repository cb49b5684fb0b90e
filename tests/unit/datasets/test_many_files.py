"""Data sets of many files: read as one file would be, and their faults name the file."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.labelled_rows import table

from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.base.files import RemotePath, file_path, names_in, whole_file
from xylem.datasets import check_readable, read_dataset
from xylem.datasets.data_stream import DataStream
from xylem.datasets.files import find_files
from xylem.datasets.reader import read_texts
from xylem.serving.batches.line_files import opened

ROWS = [{"text": f"alpha {i} beta", "labels": [f"l{i % 7}", f"l{i % 3}"]} for i in range(900)]
LINES = [json.dumps(row).encode() + b"\n" for row in ROWS]


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rows in four files, packed in each way; and what is passed over."""
    made = tmp_path / "rows"
    made.mkdir()
    (made / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(LINES[:300])[:-1])
    (made / "b.jsonl.zst").write_bytes(
        zstd(b"".join(LINES[300:400])) + zstd(b"".join(LINES[400:500]))
    )
    (made / "c.ndjson.gz").write_bytes(gzip.compress(b"".join(LINES[500:700])))
    (made / "d.jsonl").write_bytes(b"".join(LINES[700:]))
    (made / "_SUCCESS").write_bytes(b"")
    (made / "notes.md").write_text("none")
    return made


@pytest.fixture
def bucket() -> Iterator[str]:
    """An object store with the rows in three files of Parquet."""
    fs = fsspec.filesystem("memory")
    for part in range(3):
        with fs.open(f"/bucket/rows/p{part}.parquet", "wb") as file:
            pq.write_table(pa.Table.from_pylist(ROWS[300 * part : 300 * (part + 1)]), file)
    yield "memory://bucket/rows"
    fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize("name", ["", "*[.]*jso*", "*"])
def test_files_of_a_folder_or_pattern_are_read_as_one(
    folder: Path, tmp_path: Path, name: str
) -> None:
    if name == "*":
        (folder / "notes.md").unlink()
        (folder / "_SUCCESS").unlink()
    one = tmp_path / "one.jsonl"
    one.write_bytes(b"".join(LINES))
    whole = read_dataset(one)
    done = []
    found = read_dataset(folder / name, on_progress=lambda *so_far: done.append(so_far))
    assert (found.texts, found.label_names) == (whole.texts, whole.label_names)
    assert np.array_equal(found.labels.indices, whole.labels.indices)
    assert (
        done == sorted(done)
        and done[-1] == (sum(f.n_bytes for f in find_files(folder / name)),) * 2
    )
    assert found.source == "rows"
    stream = DataStream(folder / name)
    for _ in range(2):
        assert [text for part in stream.parts() for text in part.texts] == whole.texts
    assert stream.sha256 == found.sha256
    assert read_texts(folder / name) == whole.texts


def test_files_of_an_object_store(bucket: str, folder: Path) -> None:
    path = file_path(f"{bucket}/*.parquet")
    assert isinstance(path, RemotePath) and str(path) == f"{bucket}/*.parquet"
    found = read_dataset(path)
    check_readable(path)
    assert found.texts == read_dataset(folder).texts == read_dataset(file_path(f"{bucket}/")).texts
    assert read_dataset(file_path(f"{bucket}/p1.parquet")).texts == found.texts[300:600]
    assert file_path("file:///tmp/x") == Path("/tmp/x") and file_path("a:b") == Path("a:b")
    with pytest.raises(BadParameter, match="expected the name of a file, found an empty one"):
        file_path("")


def test_svm_files_and_tables_are_joined_and_faults_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "1.svm").write_text("0 0:1\n1 2:1\n")
    (tmp_path / "2.svm").write_text("3 4:0.5\n")
    (tmp_path / "1.csv").write_text("text,labels\none of 1,x;1\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"text,labels\none of 2,x;2\n"))
    found = read_dataset(tmp_path / "*.svm")
    assert (found.n_rows, found.labels.n_labels, found.rows.n_features) == (3, 4, 5)
    assert read_dataset(tmp_path / "*.csv*").label_names == ["1", "2", "x"]
    (tmp_path / "2.svm").write_text("3 4:0.5\n3 4:x\n")
    with pytest.raises(BadData, match=r"/2\.svm:2: expected a decimal number"):
        read_dataset(tmp_path / "*.svm")
    for number in range(1000):
        (tmp_path / f"{number:03}.jsonl").write_bytes(b"".join(LINES[:2]))
    (tmp_path / "567.jsonl").write_bytes(LINES[0] + b'{"text": 1, "labels": []}\n')
    with pytest.raises(BadData, match=r"/567\.jsonl:2: expected a string as `text`, found 1"):
        read_dataset(tmp_path / "*.jsonl")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("rows/*.csv", r"rows/\*\.csv: expected such files, found none"),
        ("empty", "empty: expected data files, or documents named .* in the directory, found none"),
        ("mixed", r"mixed: expected files of one kind, found \.csv, \.jsonl"),
        (
            "both",
            r"both: expected documents \(\*\.txt\) or files of data, found \*\.jsonl among them",
        ),
        ("sized/*", r"expected one \.txt file, or many of \.svm, .*, found 2"),
        ("cut.jsonl.zst", "expected whole Zstandard data, found damage"),
        ("other.jsonl.zst", "expected Zstandard data, as the suffix .zst says, found other data"),
        (
            "hidden.jsonl",
            "expected no compression, found Zstandard data: let the file's name end in .zst",
        ),
        ("memory://bucket/none/*.jsonl", "expected such files, found none"),
        ("memory://bucket/none.jsonl", "expected a readable file, found: FileNotFoundError"),
        ("nothing://x/y.jsonl", "expected the URL of an object store, found: Protocol not known"),
        ("s3://me:secret@x/y.jsonl", "expected a URL without user and password"),
    ],
)
def test_names_of_nothing_that_can_be_read(
    folder: Path, tmp_path: Path, name: str, fault: str
) -> None:
    for directory in ("empty", "mixed", "both", "sized"):
        (tmp_path / directory).mkdir()
    for file in (
        "mixed/a.csv",
        "mixed/b.jsonl",
        "both/a.txt",
        "both/b.jsonl",
        "sized/a.txt",
        "sized/b.txt",
    ):
        (tmp_path / file).write_text("x")
    packed = zstd(b"".join(LINES))
    (tmp_path / "cut.jsonl.zst").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "other.jsonl.zst").write_bytes(LINES[0])
    (tmp_path / "hidden.jsonl").write_bytes(packed)
    with pytest.raises(BadInput, match=fault) as refused:
        read_dataset(file_path(name) if "://" in name else tmp_path / name)
    assert "secret" not in str(refused.value)


class Refusing(fsspec.AbstractFileSystem):
    """An object store whose driver has errors of its own."""

    class Denied(Exception):
        """No right to look."""

    def info(self, path: str, **_: object) -> dict[str, object]:
        """Refuse."""
        raise self.Denied("no credentials")

    _open = ls = info


def test_a_driver_without_credentials_is_told_in_a_sentence() -> None:
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    with pytest.raises(BadData, match="expected a readable file, found: Denied: no credentials"):
        read_dataset(file_path("refusing://bucket/rows.jsonl"))
    refused = pytest.raises(BadData, match="expected a readable file, found: Denied")
    with refused, opened("refusing://bucket/rows.jsonl"):
        pass


def test_a_name_with_signs_of_a_pattern_is_a_name_if_it_exists(tmp_path: Path) -> None:
    (tmp_path / "a[1]*.jsonl").write_bytes(LINES[0])
    (tmp_path / "a1.jsonl").write_bytes(LINES[1])
    assert read_dataset(tmp_path / "a[1]*.jsonl").texts == ["alpha 0 beta"]
    assert read_dataset(tmp_path / "a[1]*l").texts == ["alpha 1 beta"]


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, bucket: str, remote: bool) -> None:
    out = file_path(f"{bucket}/out") if remote else tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), whole_file(out / "a") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert names_in(out) == set()
    with whole_file(out / "a") as file:
        file.write(b"whole")
        assert "a" not in names_in(out)
    assert names_in(out) == {"a"}
    with (out / "a").open("rb") as written:
        assert written.read() == b"whole"


def test_rows_of_findings_are_those_of_one_of_the_files(tmp_path: Path) -> None:
    for name, label in (("a", "fruit"), ("b", " Fruit"), ("c", "None")):
        lines = [{"text": f"{name} {i}", "labels": [label]} for i in range(9)]
        write_lines(tmp_path / f"{name}.jsonl", lines)
        cells = [(line["text"], label) for line in lines]
        (tmp_path / f"{name}.csv").write_text(table(("text", "labels"), cells))
    for pattern, first in (("*.jsonl", 1), ("*.csv", 2)):
        suffix = pattern[1:]
        dataset = read_dataset(tmp_path / pattern)
        stream = DataStream(tmp_path / pattern)
        assert [part.n_rows for part in stream.parts()][-1] and stream.report == dataset.report
        assert dataset.report is not None
        places = {finding.code: finding.place for finding in dataset.report.findings}
        assert places == {
            "similar-labels": (first, f"b{suffix}"),
            "null-labels": (first, f"c{suffix}"),
        }
        assert f"first in row {first} of c{suffix}" in str(dataset.report.findings)
        assert f"'Fruit' (9, row {first} of b{suffix})" in dataset.report.lines()[1]
        assert dataset.report.findings[0].as_json()["file"] in (f"b{suffix}", f"c{suffix}")
    (tmp_path / "d.csv").write_text(table(("text", "labels"), [("x", "y"), ("text", "labels")]))
    with pytest.raises(BadData, match=r"found the header again in row 3 of d\.csv"):
        read_dataset(tmp_path / "*.csv")
    for name in "ab":
        (tmp_path / f"{name}.svm").write_text("1 3:1\n" * 9 + "2 3:1\n" * 5)
    numbers = read_dataset(tmp_path / "*.svm").report
    assert numbers is not None and [place for _, _, place in numbers.examples] == [
        (1, ""),
        (10, ""),
    ]
