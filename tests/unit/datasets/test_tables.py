import codecs
import csv
import hashlib
import io
import json
import random
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers.datasets_helpers import check_dataset, labels_of, read, refusal, refused
from tests.helpers.labelled_rows import names_of

from xylem.base.columns import TableColumns, columns_of, refuse_without_table
from xylem.base.errors import BadData, BadParameter
from xylem.base.fields import TextColumn
from xylem.base.rows import Dataset
from xylem.datasets import check_readable, delimited, parquet, read_dataset, stream
from xylem.datasets.data_stream import DataStream
from xylem.datasets.tables import TableLines
from xylem.python.frames import columns_from_memory
from xylem.python.from_memory import dataset_from_memory
from xylem_store.names import build_names

GOOD = b'text,labels\r\nfirst,a;b\r\n"two ""lines"",\nof one cell", b ;;c;\r\n\r\nthree,\r\n'


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_csv_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, mark: bytes
) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    for name in ("a.csv", "a.csv.gz"):
        dataset = read(tmp_path / name, mark + GOOD)
        assert dataset.texts == ["first", 'two "lines",\nof one cell', "three"]
        assert dataset.label_names == ["a", "b", "c"]
        assert labels_of(dataset) == [[0, 1], [1, 2], []]
        assert dataset.sha256 == hashlib.sha256(mark + GOOD).hexdigest()
        assert dataset.source == name


def test_columns_weights_and_separators(tmp_path: Path) -> None:
    content = "id\tbody\ttitle\tsubjects\n1\tlong ä\tshort\tx y\n2\t\t\ty\n"
    columns = columns_of(["title=2", "body"], "subjects", " ")
    assert columns == TableColumns((TextColumn("title", 2), TextColumn("body")), "subjects", " ")
    dataset = read(tmp_path / "a.tsv", content, columns=columns)
    assert dataset.texts == ["short\nshort\nlong ä", "\n\n"]
    assert labels_of(dataset) == [[0, 1], [1]]
    known = read(tmp_path / "a.tsv", content, columns=columns, labels=build_names(["y"]))
    assert (labels_of(known), known.unknown_labels.tolist()) == ([[0], [0]], [1, 0])


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        (b"", 1, "expected a header with the names of columns, found an empty file"),
        (b"\n\n", 1, "expected a header with the names of columns, found an empty file"),
        (b"text,labels\n", 1, "expected at least one row, found none"),
        (b"text,tags\nx,y\n", 1, "expected one column 'labels', found columns 'text', 'tags'"),
        (b"text,subject\nx,y\n", 1, "expected one column 'labels', found columns 'text', "
                                    "'subject'"),
        (b"\ntext\tsubject\nx\ty\n", 2, "expected one column 'labels', found columns 'text', "
                                        "'subject'"),
        (b"text,text,labels\nx,y,z\n", 1, "expected one column 'text', found columns 'text', "
                                          "'text'"),
        (b"a," * 100 + b"b\n", 1, "and 91 more"),
        (b"text,labels\nx,y\nx\n", 3, "expected 2 cells, as the header has, found 1"),
        (b'text,labels\n"x\ny",z\nx,y,z\n', 4, "expected 2 cells, as the header has, found 3"),
        (b'text,labels\nx,y\n"x,y\nz,a\n', 3, "expected a closing quote of a cell that "
                                              "begins in this row"),
        (b'text,labels\n"x"y,z\n', 2, "expected a comma (of a .tsv file: a tab) or a line "
                                      "end after a c"),
        (b"text,labels\nx\ry,z\n", 2, "expected lines that end in LF or CR LF, found a CR alone"),
        (b"text,labels\nx,y\nx\0,y\n", 3, "expected text, found NUL, byte 2 of the line: "
                                          "perhaps the f"),
        ("text,labels\nx,y\n".encode("utf-16"), 1, "expected UTF-8, found a byte order mark "
                                                   "of UTF-16"),
        ("text,labels\nx,y\n".encode("utf-16-be"), 1, "expected text, found NUL, byte 1 of "
                                                      "the line"),
        ("text,labels\nx,y\nab\xe9,y\n".encode("cp1252"), 3, "found byte 0xe9, byte 3 of the "
                                                             "line: perhaps"),
        (b"text,labels\nx,y\n\x81,y\n", 3, "found byte 0x81, byte 1 of the line: perhaps it "
                                           "is Windows-1252"),
        (b"text,labels\nx,\x01\n", 2, "label: expected no control characters, found one"),
        (b"text,labels\nx," + b"y" * 4097 + b"\n", 2, "label: expected at most 4096 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_bad_tables(tmp_path: Path, content: bytes, line: int, fault: str, name: str) -> None:
    said = refusal(tmp_path / name, content)
    assert said.startswith(f":{line}: ") and fault in said


def test_a_fault_far_down_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", 100)
    for bad, place in ((b"x\xff,y", 0), (b'"x', 0), (b"x", 0), (b'"x\n\n\0,y', 2)):
        said = refusal(tmp_path / "a.csv", b"text,labels\n" + b"some,a\n" * 3000 + bad + b"\n")
        assert said.startswith(f":{3002 + place}: expected"), bad


def test_a_quote_that_never_ends_takes_no_more_than_a_row_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "ROW_BYTES_MAX", 1000)
    path, rest = tmp_path / "a.csv", "line after line,x\n" * 100
    said = refusal(path, 'text,labels\nx,y\n"oh,y\n' + rest)
    assert said.startswith(":3: expected a row of at most 1000 bytes, ") and " never closed" in said
    assert read(path, "text,labels\n" + rest).n_rows == 100
    said = refusal(path, "text,labels\n" + "x" * 1001 + ",y\n")
    assert said.startswith(":2: expected a row of at most 1000 bytes")


def test_cells_may_be_larger_than_the_parser_s_own_limit(tmp_path: Path) -> None:
    text = "long " * 60_000
    assert read(tmp_path / "a.csv", f"text,labels\n{text},a\n").texts == [text]
    said = refusal(tmp_path / "a.csv", "text,labels\n" + "x" * (stream.LINE_BYTES_MAX + 1) + ",y\n")
    assert said.startswith(":2: expected a line of at most")


def random_rows(seed: int, n: int) -> list[tuple[str, list[str]]]:
    rng = random.Random(seed)
    letters = "ab ,;\t\"'\nä€\u2028\ufeff"
    texts = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(n)]
    return [(text, [f"l{rng.randrange(9)}" for _ in range(rng.randrange(4))]) for text in texts]


def same_rows_of_json(folder: Path, rows: list[tuple[str, list[str]]]) -> Dataset:
    """The same rows, read as lines of JSON."""
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    return read(folder / "same.jsonl", "\n".join(lines))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_writer_writes_is_read_as_lines_of_json_are(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, 60)
    wanted = same_rows_of_json(tmp_path, rows)
    for suffix, delimiter, end in (
        (".csv", ",", "\r\n"),
        (".csv", ",", "\n"),
        (".tsv", "\t", "\n"),
    ):
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
        writer.writerow(["labels", "text"])
        writer.writerows([";".join(labels), text] for text, labels in rows)
        found = read(tmp_path / f"a{suffix}", out.getvalue())
        assert found.texts == wanted.texts and found.label_names == wanted.label_names
        assert labels_of(found) == labels_of(wanted)


def test_a_stream_of_parts_is_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,labels\n" + "".join(f"row {i},l{i * 7 % 31}\n" for i in range(500)))
    monkeypatch.setattr("xylem.datasets.json_lines.BLOCK_BYTES", 2000)
    parts = DataStream(path)
    assert len(list(parts.parts())) > 10
    final = parts.settle()
    whole = read_dataset(path)
    assert (parts.label_names, parts.sha256) == (whole.label_names, whole.sha256)
    assert sorted(final.tolist()) == list(range(31))
    again = list(parts.parts())
    assert [text for part in again for text in part.texts] == whole.texts
    assert (
        np.concatenate([part.labels.indices for part in again]).tolist()
        == whole.labels.indices.tolist()
    )
    path.write_text(path.read_text().replace("row 9,", "row x,"))
    with pytest.raises(BadData, match="it has changed"):
        list(parts.parts())


def test_lines_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,one\n2,ä\n")
    with TableLines(path, TableColumns()) as table:
        assert table.read1(1) == b'{"text":"one"}\n'
        assert table.read1(1 << 20) + table.read1(9) == '{"text":"ä"}\n'.encode()
        assert table.tell() == table.n_bytes == path.stat().st_size
    with (
        TableLines(path, TableColumns(), with_labels=True) as table,
        refused(BadData, r"a\.csv:1: "),
    ):
        table.read1(1)
    with pytest.raises(BadData, match="expected a file that can be read"):
        TableLines(tmp_path / "none.csv", TableColumns())


def test_bad_columns() -> None:
    for options, fault in (
        ((["a=0"], None, None), "text column 'a': expected a weight from 1 to 9, or auto, found 0"),
        (
            (["a=10"], None, None),
            "text column 'a': expected a weight from 1 to 9, or auto, found 10",
        ),
        (([""], None, None), "text column: expected a name, found an empty one"),
        ((["a", "a=2"], None, None), "text column: expected distinct names"),
        ((["a"] * 65, None, None), "text column: expected at most 64, found 65"),
        ((None, "", None), "label column: expected a name, found an empty one"),
        ((None, None, ""), "label separator: expected 1 to 16 characters, found 0"),
        ((None, None, "x" * 17), "label separator: expected 1 to 16 characters, found 17"),
    ):
        with refused(BadParameter, f"^{fault}"):
            columns_of(*options)


def test_columns_are_for_tables_only() -> None:
    chosen = columns_of(["a=b=2", "=3x"], None, None)
    assert chosen.texts == (TextColumn("a=b", 2), TextColumn("=3x"))
    refuse_without_table(chosen, Path("a.jsonl"), Path("b.csv.gz"))
    refuse_without_table(TableColumns(), Path("a.jsonl"))
    refuse_without_table(chosen, Path("a.ndjson.gz"), None)
    for columns in (columns_of(None, "tags", None), columns_of(["a"], "tags", None)):
        ends = r"\.csv, \.tsv, \.parquet, found 'a\.jsonl'"
        with pytest.raises(BadParameter, match=f"expected a file that ends in {ends}"):
            refuse_without_table(columns, Path("a.jsonl"), None)
    with pytest.raises(BadParameter, match=r"ends in .*\.jsonl, \.ndjson, found 'a\.svm'"):
        refuse_without_table(chosen, Path("a.svm"))


def test_without_the_reader_of_parquet_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for use in (read_dataset, check_readable):
        with pytest.raises(BadParameter, match=r"pip install 'xylem-serve\[data\]'"):
            use(tmp_path / "a.parquet")


def write_parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_parquet(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
    rows = random_rows(seed, 60)
    wanted = same_rows_of_json(tmp_path, rows)
    texts, labels = [text for text, _ in rows], [labels for _, labels in rows]
    joined = pa.array([";".join(some) or None for some in labels])
    lists = pa.array(labels), pa.array(labels, pa.large_list(pa.large_string()))
    for kind in (*lists, joined, joined.dictionary_encode()):
        path = write_parquet(tmp_path / "a.parquet", labels=kind, text=texts)
        found = read_dataset(path)
        check_dataset(found)
        assert found.texts == wanted.texts and found.label_names == wanted.label_names
        assert labels_of(found) == labels_of(wanted)
        assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_numbers_of_parquet_are_labels_and_null_is_an_empty_text(tmp_path: Path) -> None:
    dataset = read_dataset(
        write_parquet(tmp_path / "a.parquet", text=["a", None, "c"], labels=[10, 9, None])
    )
    assert (dataset.texts, dataset.label_names) == (["a", "", "c"], ["10", "9"])
    assert labels_of(dataset) == [[0], [1], []]


def test_bad_columns_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "LINE_BYTES_MAX", 100)
    for columns, fault in (
        (
            {"text": ["a"], "tags": ["b"]},
            "expected one column 'labels', found columns 'text', 'tags'",
        ),
        ({"text": [{"a": 1}], "labels": ["b"]}, "column 'text': expected text, found struct"),
        ({"text": [1.5], "labels": ["b"]}, "column 'text': expected text, found double"),
        (
            {"text": ["a"], "labels": [[["b"]]]},
            "column 'labels': expected text, whole numbers, or lists",
        ),
        (
            {"text": ["a"], "labels": [float("nan")]},
            "column 'labels': expected text, whole numbers",
        ),
        ({"text": ["a"], "labels": [["b", "x\ny"]]}, "label: expected no control characters"),
        ({"text": pa.array([], "string"), "labels": pa.array([], "string")}, "at least one row"),
        (
            {"text": ["a", "b" * 101], "labels": ["x", "y"]},
            ":2: expected a row of at most 100 bytes",
        ),
    ):
        path = write_parquet(tmp_path / "a.parquet", **columns)
        with refused(BadData, f"^{path}:.*{fault.removeprefix(':')}"):
            read_dataset(path)


def test_damaged_parquet(tmp_path: Path) -> None:
    texts = [f"text {i} {i * i}" for i in range(2000)]
    whole = write_parquet(tmp_path / "a.parquet", text=texts, labels=["x"] * 2000).read_bytes()
    rng = random.Random(1)
    path = tmp_path / "b.parquet"
    for content in (b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], whole[100:]):
        assert refusal(path, content).startswith(": expected")
    for _ in range(60):
        broken = bytearray(whole)
        broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        try:
            assert read_dataset(path).n_rows > 0
        except BadData as error:
            assert str(error).startswith(f"{path}:")
    assert "found .parquet.gz" in refusal(tmp_path / "b.parquet.gz", whole)


@pytest.mark.parametrize("form", ["Sequence", "list"])
def test_classes_that_a_schema_names(form: str, tmp_path: Path) -> None:
    entry = {"names": ["tea", "a;b", "cup"], "_type": "ClassLabel"}
    feature = [entry] if form == "list" else {"feature": entry, "_type": form}
    features = {"text": {"dtype": "string"}, "label": entry, "labels": feature}
    columns = {"text": ["a", "b", "c"], "label": [1, -1, 2], "labels": [[0, 2], [], [1, None, 7]]}
    described = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(described), tmp_path / "a.parquet")
    for name, wanted in (
        ("labels", [["cup", "tea"], [], ["7", "a;b"]]),
        ("label", [["a;b"], [], ["cup"]]),
    ):
        dataset = read_dataset(tmp_path / "a.parquet", columns=TableColumns(labels=name))
        assert names_of(dataset) == wanted
        in_memory = columns_from_memory(pq.read_table(tmp_path / "a.parquet"), None, "text", name)
        assert names_of(dataset_from_memory(*in_memory)) == wanted
    for other in (b"{", b"[]", b'{"info": {"features": {"labels": 3}}}', b'{"info": null}'):
        table = pa.table(columns).replace_schema_metadata({"huggingface": other})
        pq.write_table(table, tmp_path / "b.parquet")
        assert names_of(read_dataset(tmp_path / "b.parquet")) == [["0", "2"], [], ["1", "7"]]
