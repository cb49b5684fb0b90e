import codecs
import csv
import gzip
import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.names import build_names
from service.base.columns import TableColumns, TextColumn, columns_of, refuse_without_table
from service.base.errors import BadData, BadParameter
from service.base.rows import Dataset
from service.datasets import check_readable, delimited, read_dataset, stream, tables
from service.datasets.reader import DataStream
from service.datasets.tables import TableLines
from tests.datasets_helpers import check_dataset
from tests.unit.datasets.test_json_lines import labels_of

GOOD = b'text,labels\r\nfirst,a;b\r\n"two ""lines"",\nof one cell", b ;;c;\r\n\r\nthree,\r\n'


def read(folder: Path, content: bytes, name: str = "a.csv", **options: Any) -> Dataset:
    path = folder / name
    path.write_bytes(content)
    dataset = read_dataset(path, **options)
    check_dataset(dataset)
    return dataset


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_csv_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, mark: bytes) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block_bytes)
    for name, content in (("a.csv", mark + GOOD), ("a.csv.gz", gzip.compress(mark + GOOD))):
        dataset = read(tmp_path, content, name)
        assert dataset.texts == ["first", 'two "lines",\nof one cell', "three"]
        assert dataset.label_names == ["a", "b", "c"]
        assert labels_of(dataset) == [[0, 1], [1, 2], []]
        assert dataset.sha256 == hashlib.sha256(mark + GOOD).hexdigest()
        assert dataset.source == name


def test_columns_weights_and_separators(tmp_path: Path) -> None:
    content = "id\tbody\ttitle\tsubjects\n1\tlong ä\tshort\tx y\n2\t\t\ty\n".encode()
    columns = columns_of(["title=2", "body"], "subjects", " ")
    assert columns == TableColumns((TextColumn("title", 2), TextColumn("body")), "subjects", " ")
    dataset = read(tmp_path, content, "a.tsv", columns=columns)
    assert dataset.texts == ["short\nshort\nlong ä", "\n\n"]
    assert labels_of(dataset) == [[0, 1], [1]]
    known = read(tmp_path, content, "a.tsv", columns=columns, labels=build_names(["y"]))
    assert (labels_of(known), known.unknown_labels.tolist()) == ([[0], [0]], [1, 0])


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        (b"", 1, "expected a header with the names of columns, found an empty file"),
        (b"\n\n", 1, "expected a header with the names of columns, found an empty file"),
        (b"text,labels\n", 1, "expected at least one row, found none"),
        (b"text,tags\nx,y\n", 1, "expected one column 'labels', found columns 'text', 'tags'"),
        (b"\ntext;labels\nx;y\n", 2, "expected one column 'text', found columns 'text;labels'"),
        (b"text,text,labels\nx,y,z\n", 1, "expected one column 'text', found columns 'text', 'text'"),
        (b"a," * 100 + b"b\n", 1, "and 91 more"),
        (b"text,labels\nx,y\nx\n", 3, "expected 2 cells, as the header has, found 1"),
        (b'text,labels\n"x\ny",z\nx,y,z\n', 4, "expected 2 cells, as the header has, found 3"),
        (b'text,labels\nx,y\n"x,y\nz,a\n', 3, "expected a closing quote of a cell that begins in this row"),
        (b'text,labels\n"x"y,z\n', 2, "expected a comma (of a .tsv file: a tab) or a line end after a c"),
        (b"text,labels\nx\ry,z\n", 2, "expected lines that end in LF or CR LF, found a CR alone"),
        (b"text,labels\nx,y\nx\0,y\n", 3, "expected text, found NUL, byte 2 of the line: perhaps the f"),
        ("text,labels\nx,y\n".encode("utf-16"), 1, "expected UTF-8, found a byte order mark of UTF-16"),
        ("text,labels\nx,y\n".encode("utf-16-be"), 1, "expected text, found NUL, byte 1 of the line"),
        ("text,labels\nx,y\nab\xe9,y\n".encode("cp1252"), 3, "found byte 0xe9, byte 3 of the line: perhaps"),
        (b"text,labels\nx,y\n\x81,y\n", 3, "found byte 0x81, byte 1 of the line: perhaps it is Windows-1252"),
        (b"text,labels\nx,\x01\n", 2, "label: expected no control characters, found one"),
        (b"text,labels\nx," + b"y" * 4097 + b"\n", 2, "label: expected at most 4096 bytes"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path: Path, content: bytes, line: int, fault: str) -> None:
    for name in ("a.csv", "a.csv.gz"):
        with pytest.raises(BadData) as caught:
            read(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
        assert f"{name}:{line}: " in str(caught.value) and fault in str(caught.value)
        assert len(str(caught.value)) < 700 + len(str(tmp_path))


def test_a_fault_far_down_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", 100)
    for bad, place in ((b"x\xff,y", 0), (b'"x', 0), (b"x", 0), (b'"x\n\n\0,y', 2)):
        with pytest.raises(BadData, match=rf"a\.csv:{3002 + place}: expected"):
            read(tmp_path, b"text,labels\n" + b"some,a\n" * 3000 + bad + b"\n")


def test_a_quote_that_never_ends_takes_no_more_than_a_row_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "ROW_BYTES_MAX", 1000)
    rest = b"line after line,x\n" * 100
    with pytest.raises(BadData, match=r"a\.csv:3: expected a row of at most 1000 bytes, .* never closed"):
        read(tmp_path, b'text,labels\nx,y\n"oh,y\n' + rest)
    assert read(tmp_path, b"text,labels\n" + rest).n_rows == 100
    with pytest.raises(BadData, match=r"a\.csv:2: expected a row of at most 1000 bytes"):
        read(tmp_path, b"text,labels\n" + b"x" * 1001 + b",y\n")


def test_cells_may_be_larger_than_the_parser_s_own_limit(tmp_path: Path) -> None:
    text = "long " * 60_000
    assert read(tmp_path, f"text,labels\n{text},a\n".encode()).texts == [text]
    with pytest.raises(BadData, match=r"a\.csv:2: expected a line of at most"):
        read(tmp_path, b"text,labels\n" + b"x" * (stream.LINE_BYTES_MAX + 1) + b",y\n")


def random_rows(seed: int, n: int) -> list[tuple[str, list[str]]]:
    rng = random.Random(seed)
    letters = "ab ,;\t\"'\nä€\u2028\ufeff"
    texts = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(n)]
    return [(text, [f"l{rng.randrange(9)}" for _ in range(rng.randrange(4))]) for text in texts]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_writer_writes_is_read_as_lines_of_json_are(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, 60)
    lines = "".join(json.dumps({"text": t, "labels": labels}) + "\n" for t, labels in rows)
    wanted = read(tmp_path, lines.encode(), "a.ndjson")
    for suffix, delimiter, end in ((".csv", ",", "\r\n"), (".csv", ",", "\n"), (".tsv", "\t", "\n")):
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
        writer.writerow(["labels", "text"])
        writer.writerows([";".join(labels), text] for text, labels in rows)
        found = read(tmp_path, out.getvalue().encode(), f"a{suffix}")
        assert found.texts == wanted.texts and found.label_names == wanted.label_names
        assert labels_of(found) == labels_of(wanted)


def test_a_stream_of_parts_is_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,labels\n" + "".join(f"row {i},l{i * 7 % 31}\n" for i in range(500)))
    monkeypatch.setattr("service.datasets.json_lines.BLOCK_BYTES", 2000)
    parts = DataStream(path)
    assert len(list(parts.parts())) > 10
    final = parts.settle()
    whole = read_dataset(path)
    assert (parts.label_names, parts.sha256) == (whole.label_names, whole.sha256)
    assert final is not None and sorted(final.tolist()) == list(range(31))
    again = list(parts.parts())
    assert [text for part in again for text in part.texts or []] == whole.texts
    assert np.concatenate([part.labels.indices for part in again]).tolist() == whole.labels.indices.tolist()
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
        pytest.raises(BadData, match=r"a\.csv:1: "),
    ):
        table.read1(1)
    with pytest.raises(BadData, match="expected a file that can be read"):
        TableLines(tmp_path / "none.csv", TableColumns())


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ((["a=0"], None, None), "text column 'a': expected a weight from 1 to 9, found 0"),
        ((["a=10"], None, None), "text column 'a': expected a weight from 1 to 9, found 10"),
        (([""], None, None), "text column: expected a name, found an empty one"),
        ((["a", "a=2"], None, None), "text column: expected distinct names"),
        ((["a"] * 65, None, None), "text column: expected at most 64, found 65"),
        ((None, "", None), "label column: expected a name, found an empty one"),
        ((None, None, ""), "label separator: expected 1 to 16 characters, found 0"),
        ((None, None, "x" * 17), "label separator: expected 1 to 16 characters, found 17"),
    ],
)
def test_bad_columns(options: Any, fault: str) -> None:
    with pytest.raises(BadParameter) as caught:
        columns_of(*options)
    assert str(caught.value).startswith(fault)


def test_columns_are_for_tables_only() -> None:
    chosen = columns_of(["a=b=2", "=3x"], None, None)
    assert chosen.texts == (TextColumn("a=b", 2), TextColumn("=3x"))
    refuse_without_table(chosen, Path("a.jsonl"), Path("b.csv.gz"))
    refuse_without_table(TableColumns(), Path("a.jsonl"))
    with pytest.raises(BadParameter, match=r"expected a file that ends in .*, found 'a\.jsonl'"):
        refuse_without_table(chosen, Path("a.jsonl"), None)


def test_without_the_reader_of_parquet_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for use in (read_dataset, check_readable):
        with pytest.raises(BadParameter, match=r"pip install 'xylem-serve\[data\]'"):
            use(tmp_path / "a.parquet")


class TestParquet:
    """Only where pyarrow is installed."""

    @pytest.fixture
    def pa(self) -> Any:
        pytest.importorskip("pyarrow.parquet")
        import pyarrow

        return pyarrow

    def write(self, path: Path, pa: Any, **columns: Any) -> Path:
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.table(columns), path)
        return path

    @pytest.mark.parametrize("seed", range(3))
    def test_rows(self, tmp_path: Path, pa: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "BATCH_ROWS", 7)
        rows = random_rows(seed, 60)
        lines = "".join(json.dumps({"text": t, "labels": labels}) + "\n" for t, labels in rows)
        wanted = read(tmp_path, lines.encode(), "a.jsonl")
        texts, labels = [text for text, _ in rows], [labels for _, labels in rows]
        joined = [";".join(some) or None for some in labels]
        for kind in (
            pa.array(labels),
            pa.array(labels, pa.large_list(pa.large_string())),
            pa.array(joined),
            pa.array(joined).dictionary_encode(),
        ):
            path = self.write(tmp_path / "a.parquet", pa, labels=kind, text=texts)
            found = read_dataset(path)
            check_dataset(found)
            assert found.texts == wanted.texts and found.label_names == wanted.label_names
            assert labels_of(found) == labels_of(wanted)
            assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_numbers_are_labels_and_nothing_is_an_empty_text(self, tmp_path: Path, pa: Any) -> None:
        path = self.write(tmp_path / "a.parquet", pa, text=["a", None, "c"], labels=[10, 9, None])
        dataset = read_dataset(path)
        assert (dataset.texts, dataset.label_names) == (["a", "", "c"], ["10", "9"])
        assert labels_of(dataset) == [[0], [1], []]

    def test_refusals(self, tmp_path: Path, pa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for columns, fault in (
            ({"text": ["a"], "tags": ["b"]}, "expected one column 'labels', found columns 'text', 'tags'"),
            ({"text": [{"a": 1}], "labels": ["b"]}, "column 'text': expected text, found struct"),
            ({"text": [1.5], "labels": ["b"]}, "column 'text': expected text, found double"),
            ({"text": ["a"], "labels": [[["b"]]]}, "column 'labels': expected text, whole numbers, or lists"),
            ({"text": ["a"], "labels": [float("nan")]}, "column 'labels': expected text, whole numbers"),
            ({"text": ["a"], "labels": [["b", "x\ny"]]}, "label: expected no control characters"),
            ({"text": pa.array([], "string"), "labels": pa.array([], "string")}, "at least one row"),
        ):
            path = self.write(tmp_path / "a.parquet", pa, **columns)
            with pytest.raises(BadData) as caught:
                read_dataset(path)
            assert fault in str(caught.value) and str(caught.value).startswith(f"{path}:")
        monkeypatch.setattr(tables, "LINE_BYTES_MAX", 100)
        path = self.write(tmp_path / "a.parquet", pa, text=["a", "b" * 101], labels=["x", "y"])
        with pytest.raises(BadData, match=r"a\.parquet:2: expected a row of at most 100 bytes"):
            read_dataset(path)

    def test_damage(self, tmp_path: Path, pa: Any) -> None:
        texts = [f"text {i} {i * i}" for i in range(2000)]
        whole = self.write(tmp_path / "a.parquet", pa, text=texts, labels=["x"] * 2000).read_bytes()
        rng = random.Random(1)
        path = tmp_path / "b.parquet"
        for content in (b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], whole[100:]):
            path.write_bytes(content)
            with pytest.raises(BadData, match=r"b\.parquet: expected"):
                read_dataset(path)
        for _ in range(60):
            broken = bytearray(whole)
            broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(broken))
            try:
                assert read_dataset(path).n_rows > 0
            except BadData as error:
                assert str(error).startswith(f"{path}:")
        path.with_suffix(".parquet.gz").write_bytes(gzip.compress(whole))
        with pytest.raises(BadData, match=r"found \.parquet\.gz"):
            read_dataset(path.with_suffix(".parquet.gz"))
