"""Corpora of Annif: directories of documents, and lines, tables and JSON with subjects."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model_store.names import build_names
from service.base.columns import DEFAULT_COLUMNS
from service.base.errors import BadData, BadParameter
from service.base.rows import Dataset
from service.datasets import check_readable, json_lines, read_dataset
from service.datasets.reader import DataStream
from service.datasets.tables import TableLines
from tests.datasets_helpers import check_dataset, labels_of, read, refusal

A, B, C = (f"http://example.org/subject/{letter}" for letter in "abc")
TEXTS = ["a cat, and\nanother", 'a "dog', "ein Vögelchen", ""]
SUBJECTS = [[A, B], [B], [], [C]]


def directory(folder: Path) -> Path:
    """A corpus with all that is allowed: byte order marks, CR LF, empty lines, other files."""
    folder.mkdir()
    for name, text in zip("abcd", TEXTS, strict=True):
        (folder / f"{name}.txt").write_bytes(text.replace("\n", "\r\n").encode())
    (folder / "a.tsv").write_bytes(f"\ufeff<{A}>\tcats\r\n\r\n<{B}>\tdogs\r\n<{B}>\tdogs".encode())
    (folder / "b.tsv").write_text(f"<{B}>\n   \n")
    (folder / "d.tsv").write_text(f"<{C}>\tnothing\tmore\n")
    (folder / "d.key").write_text("passed over: there are URIs\n")
    (folder / "readme.md").write_bytes(b"\xff")
    (folder / ".hidden.txt").write_bytes(b"\xff")
    (folder / "below.txt").mkdir()
    return folder


def names_of(dataset: Dataset) -> list[list[str]]:
    return [[dataset.label_names[i] for i in row] for row in labels_of(dataset)]


def test_a_directory(tmp_path):
    path = directory(tmp_path / "corpus")
    check_readable(path)
    done = []
    dataset = read_dataset(path, on_progress=lambda *at: done.append(at))
    check_dataset(dataset)
    assert (dataset.texts, names_of(dataset)) == (TEXTS, SUBJECTS)
    assert dataset.source == "corpus" and done[-1] == (4, 4)
    assert dataset.warning == "1 of 4 documents have no file of subjects: rows without labels"
    order = ("a.txt", "a.tsv", "b.txt", "b.tsv", "c.txt", "d.txt", "d.tsv")
    content = b"".join((path / name).read_bytes() for name in order)
    assert dataset.sha256 == hashlib.sha256(content).hexdigest()
    known = read_dataset(path, labels=build_names([B]))
    assert (labels_of(known), known.unknown_labels.tolist()) == ([[0], [0], [], []], [1, 0, 0, 1])
    with pytest.raises(BadParameter, match="names file with numeric formats only"):
        read_dataset(path, label_names_file=tmp_path / "names")


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_directory_in_parts(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block)
    path = directory(tmp_path / "corpus")
    stream = DataStream(path)
    first = list(stream.parts())
    assert len(first) == (4 if block == 1 else 1)
    stream.settle()
    parts = list(stream.parts())
    whole = read_dataset(path)
    assert [text for part in parts for text in part.texts] == whole.texts
    assert [row for part in parts for row in labels_of(part)] == labels_of(whole)
    assert (stream.label_names, stream.sha256) == (whole.label_names, whole.sha256)
    assert stream.warning == whole.warning
    (path / "e.txt").write_text("more")
    with pytest.raises(BadData, match="it has changed"):
        list(stream.parts())


def test_keys_are_labels(tmp_path):
    for name in "xyz":
        (tmp_path / f"{name}.txt").write_text("text")
    (tmp_path / "x.key").write_text("cats and dogs\n\n birds \n")
    (tmp_path / "y.tsv").write_text("\tno URI\n")
    (tmp_path / "z.key").write_text("\n")
    found = read_dataset(tmp_path)
    assert names_of(found) == [["birds", "cats and dogs"], ["no URI"], []] and found.warning is None


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "expected data files, or documents named [*].txt in the directory, found none"),
        ({"a.txt": b"\xff"}, "a.txt:1: expected UTF-8, found byte 0xff, byte 1 of the line"),
        ({"a.txt": b"ok\nna\xefve\n"}, "a.txt:2: expected UTF-8, found byte 0xef, byte 3 of the line"),
        ({"a.txt": b"x", "a.tsv": b"<u>\tl\n<v>\tcaf\xe9\n"}, "a.tsv:2: .* byte 0xe9, byte 8 of the line"),
        ({"a.txt": b"x", "a.key": "köt".encode("utf-16")}, "a.key:1: .* byte order mark of UTF-16"),
        ({"a.txt": b"x\0"}, "a.txt:1: expected text, found NUL, byte 2"),
        ({"a.txt": b"x", "a.tsv": b"<u\tl\n"}, "a.tsv:1: expected <URI>, a tab and a label, found '<u"),
        ({"a.txt": b"x", "a.tsv": b"<u>\t<v>\n"}, "a.tsv:1: expected <URI>, a tab and a label"),
        ({"b.txt": b"x", "a.txt": b"x", "b.key": b"\x01"}, "b.txt: label: "),
        ({"a.txt": b"x" * 40 + b"\n" + b"x" * 40}, "a.txt:2: expected at most 60 characters in a file"),
        ({"a.txt": b"\x1f\x8b"}, "a.txt: expected no compression"),
    ],
)
def test_faults_name_the_file(tmp_path, monkeypatch, files, fault):
    monkeypatch.setattr("service.datasets.annif.LINE_BYTES_MAX", 60)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=fault):
        read_dataset(tmp_path)


def test_lines_of_text_and_uris(tmp_path):
    path = tmp_path / "a.tsv"
    found = read(path, f'a "dog\t<{A}>  <{B}>\n\nnone\t\nmany, "quoted"\t<{C}>')
    assert found.texts == ['a "dog', "none", 'many, "quoted"']
    assert names_of(found) == [[A, B], [], [C]]
    with TableLines(path, DEFAULT_COLUMNS, with_labels=True) as lines:  # what jobs split
        assert [json.loads(line)["labels"] for line in lines.read1(1 << 20).splitlines()] == [[A, B], [], [C]]
    first = read(path, f"none\t\nsome\t<{A}>\n")
    assert (first.texts, names_of(first)) == (["none", "some"], [[], [A]])
    for line, shown in (("no tab", "'no tab'"), ("text\tlabel", "'label'"), (f"a\t<{A}>\tb", "<http.*")):
        with pytest.raises(BadData, match=f"a.tsv:2: expected a text, a tab, and URIs .* found .*{shown}"):
            read(path, f"text\t<{A}>\n{line}\n")


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("a.csv", f"text,subject_uris\na,{A} <{B}>\nb,\n", [[A, B], []]),
        ("a.csv", "text,subjects\na,cats; dogs\n", [["cats", "dogs"]]),
        ("a.csv", f"subjects,subject_uris,text\ncats;dogs,{A} {B},a\n", [[A, B]]),
        ("a.tsv", f"labels\ttext\tsubject_uris\nx\ta\t{A}\n", [["x"]]),
    ],
)
def test_tables_with_subjects(tmp_path, name, content, names):
    assert names_of(read(tmp_path / name, content)) == names


def test_a_table_without_subjects(tmp_path):
    said = refusal(tmp_path / "a.csv", "text,subject\na,b\n")
    assert "expected one column 'labels', found columns 'text', 'subject'" in said


def test_parquet_with_subjects(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"], "subject_uris": [[A, B], []]}), tmp_path / "a.parquet")
    assert names_of(read_dataset(tmp_path / "a.parquet")) == [[A, B], []]


def test_lines_of_json_with_subjects(tmp_path):
    lines = [
        {"text": "a", "subjects": [{"uri": A, "label": "cats"}, {"label": "dogs"}]},
        {"text": "b", "subjects": [], "document_id": 7},
        {"text": "c", "subjects": "passed over", "labels": ["x"]},
    ]
    found = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert names_of(found) == [["dogs", A], [], ["x"]]
    for subjects, fault in (
        ("x", 'expected an array as `subjects`, found "x"'),
        (["x"], 'expected objects with `uri` or `label` in `subjects`, found "x"'),
        ([{}], "expected objects with `uri` or `label` in `subjects`, found an object"),
        ([{"uri": 3}], "expected strings in `labels`, found 3"),
    ):
        said = refusal(tmp_path / "a.jsonl", json.dumps({"text": "a", "subjects": subjects}))
        assert said.startswith(f":1: {fault}")
