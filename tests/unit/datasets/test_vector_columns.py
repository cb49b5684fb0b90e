"""Columns of vectors, in lines of JSON and in Parquet: each row has its vector, or is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.vectors import vectors_of

from xylem.base.columns import DEFAULT_COLUMNS
from xylem.base.errors import BadData, BadParameter
from xylem.base.rows import Dataset
from xylem.datasets.data_reports import collect_reports
from xylem.datasets.data_stream import DataStream
from xylem.datasets.reader import STDIN, read_dataset
from xylem.datasets.tables import TableLines

TEXTS = [f"word{i % 7} other{i % 3}" for i in range(40)]
VECTORS = vectors_of(TEXTS)
COLUMN = DEFAULT_COLUMNS._replace(vector="emb")


def lines_of(path: Path, vectors: list[Any]) -> Path:
    """Write a line of JSON for each vector; "no key" leaves it out."""
    return write_lines(
        path,
        (
            {"text": TEXTS[i], "labels": ["a"], **({} if v == "no key" else {"emb": v})}
            for i, v in enumerate(vectors)
        ),
    )


def table_of(path: Path, vectors: pa.Array, **columns: Any) -> Path:
    """Write a Parquet file with a text, a label and a vector in each row."""
    n = len(vectors)
    cells = {"text": TEXTS[:n], "labels": ["a"] * n, "emb": vectors, **columns}
    parquet.write_table(pa.table(cells), path)
    return path


def whole_and_parts(path: Path) -> list[Dataset]:
    """Return the rows of a file in memory, and joined from the parts of a stream."""
    stream = DataStream(path, None, COLUMN)
    parts = [part.vectors for part in stream.parts()]
    blocks = list(stream.vectors())
    assert np.concatenate(parts).tobytes() == np.concatenate(blocks).tobytes()
    dataset = read_dataset(path, columns=COLUMN)
    assert dataset.vectors is not None
    assert np.concatenate(parts).tobytes() == dataset.vectors.tobytes()
    return [dataset, *stream.parts()]


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson"])
def test_lines_of_json_have_vectors(tmp_path: Path, suffix: str) -> None:
    path = lines_of(tmp_path / f"rows{suffix}", VECTORS.tolist())
    with collect_reports() as reports:
        whole, *_ = whole_and_parts(path)
    np.testing.assert_array_equal(np.array(whole.vectors), VECTORS)
    assert reports[0].options == ("--vector-column", "emb")
    assert read_dataset(path).vectors is None  # nothing is guessed


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), VECTORS.shape[1]),
    ],
)
def test_parquet_has_lists_of_numbers(tmp_path: Path, kind: pa.DataType) -> None:
    cells = pa.array(VECTORS.tolist(), kind)
    path = table_of(tmp_path / "rows.parquet", cells)
    whole, *_ = whole_and_parts(path)
    np.testing.assert_array_equal(np.array(whole.vectors), VECTORS)
    with TableLines(path, COLUMN) as lines:
        instance = json.loads(lines.readline())
    assert np.array(instance["vector"], np.float32).tobytes() == VECTORS[0].tobytes()


@pytest.mark.parametrize("kind", [pa.int8(), pa.float16()])
def test_whole_and_half_numbers_are_numbers(tmp_path: Path, kind: pa.DataType) -> None:
    cells = pa.array([np.array([1, 2]).astype(kind.to_pandas_dtype())] * 3, pa.list_(kind))
    dataset = read_dataset(table_of(tmp_path / "rows.parquet", cells), columns=COLUMN)
    np.testing.assert_array_equal(np.array(dataset.vectors), [[1, 2]] * 3)


def test_weights_and_vectors_stand_in_one_table(tmp_path: Path) -> None:
    path = table_of(tmp_path / "rows.parquet", pa.array([[1.0], [2.0], [3.0]]), w=[1.0, 0.0, 2.0])
    both = COLUMN._replace(weight="w")
    dataset = read_dataset(path, columns=both)
    np.testing.assert_array_equal(np.array(dataset.vectors), [[1], [3]])
    with TableLines(path, both, with_labels=True) as lines:
        first = json.loads(lines.readline())
    assert first == {"text": TEXTS[0], "labels": ["a"], "w": 1.0, "emb": [1.0]}


def test_the_column_has_neither_text_nor_labels(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    names = [f"thing {i}" for i in range(30)]
    colours = ["red", "blue"] * 15
    table = pa.table({"name": names, "emb": [[0.5] * 9] * 30, "colour": colours})
    parquet.write_table(table, path)
    dataset = read_dataset(path, columns=COLUMN)
    assert (dataset.texts, dataset.label_names) == (names, ["blue", "red"])


def refuse(path: Path, message: str, error: type[Exception] = BadData) -> None:
    """Check that a file is refused in memory and as a stream."""
    with pytest.raises(error, match=message):
        read_dataset(path, columns=COLUMN)
    with pytest.raises(error, match=message):
        list(DataStream(path, None, COLUMN).parts())


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("no key", "expected a vector, found none"),
        (None, "expected a vector, found none"),
        ("0.5 0.25", 'expected a vector, found "0.5 0.25"'),
        (0.5, "expected a vector, found 0.5"),
        ([], "expected a vector, found an array of 0"),
        ([0.5, "a"], 'expected a vector of numbers, found "a" among them'),
        ([0.5, None], "expected a vector of numbers, found null among them"),
        ([0.5, True], "expected a vector of numbers, found true among them"),
        ([[0.5], [1.0]], "expected a vector of numbers, found an array of 1 among them"),
        ([0.5] * 3, "expected a vector of 2 numbers, as in the rows before, found one of 3"),
        ([0.5, 1e39], "expected a vector of finite 32-bit numbers, found inf"),
    ],
)
def test_a_cell_without_a_vector_is_refused(tmp_path: Path, cell: Any, found: str) -> None:
    refuse(lines_of(tmp_path / "rows.jsonl", [[1, 2.5], cell]), f"rows.jsonl:2: `emb`: {found}")


def test_a_first_vector_of_too_many_numbers(tmp_path: Path) -> None:
    read_dataset(lines_of(tmp_path / "rows.jsonl", [[0.5] * 4096]), columns=COLUMN)
    message = "rows.jsonl: `emb`: expected vectors of 1 to 4096 numbers, found 4097"
    refuse(lines_of(tmp_path / "rows.jsonl", [[0.5] * 4097]), message)


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([[1.0], None], "rows.parquet:2: `emb`: expected a vector, found none"),
        ([[1.0], [float("nan")]], "rows.parquet:2: `emb`: .* finite 32-bit numbers, found nan"),
        ([[1.0], [1.0, None]], "rows.parquet:2: `emb`: .* found null among them"),
        ([1.0, 2.0], "rows.parquet: column 'emb': expected lists of numbers, found double"),
        (["a", "b"], "rows.parquet: column 'emb': expected lists of numbers, found string"),
        ([["a"]], "rows.parquet: column 'emb': expected lists of numbers, found list"),
        ([[[1.0]]], "rows.parquet: column 'emb': expected lists of numbers, found list"),
    ],
)
def test_other_columns_of_parquet_are_refused(tmp_path: Path, cells: Any, found: str) -> None:
    refuse(table_of(tmp_path / "rows.parquet", pa.array(cells)), found)


def test_a_table_must_have_the_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"text": ["a"], "labels": ["b"]}), path)
    refuse(path, "expected one column 'emb', found columns 'text', 'labels'")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "text,labels,emb\na,b,0.5\n"),
        ("rows.tsv", "text\tlabels\temb\na\tb\t0.5\n"),
        ("rows.svm", "1 2:0.5\n"),
        ("rows.txt", "__label__a a text\n"),
        ("corpus/one.txt", "a text"),
    ],
)
def test_other_formats_have_no_vectors(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    data = path.parent if path.parent != tmp_path else path
    message = (
        "vector column: expected a file of .jsonl, .ndjson, .parquet, whose cells have many "
        f"numbers, found '{data.name}': give its vectors in a .npy file"
    )
    refuse(data, message, BadParameter)
    if name.endswith(("csv", "tsv")):
        with pytest.raises(BadParameter, match=message):
            TableLines(path, COLUMN)


def test_features_have_no_vector_beside_them(tmp_path: Path) -> None:
    row = {"features": {"a": 1}, "labels": ["b"], "emb": [0.5]}
    path = write_lines(tmp_path / "rows.jsonl", [row])
    refuse(path, "rows.jsonl:1: expected a text beside a vector, found `features`")


def test_standard_input_is_read_once() -> None:
    with pytest.raises(BadParameter, match="expected a file, which is read for its vectors first"):
        DataStream(STDIN, None, COLUMN)


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(BadParameter, match="vector column cannot be used with join rows"):
        DEFAULT_COLUMNS._replace(join="id").with_vectors(None, column="emb")
    with pytest.raises(BadParameter, match="vector column: expected a name, found an empty one"):
        DEFAULT_COLUMNS.with_vectors(None, column="")
    with pytest.raises(BadParameter, match="vectors cannot be used with a vector column"):
        DEFAULT_COLUMNS.with_vectors([Path("a.npy")], Path("rows.jsonl"), column="emb")


def test_a_file_of_vectors_replaces_the_column(tmp_path: Path) -> None:
    path = lines_of(tmp_path / "rows.jsonl", ["no key"] * 3)
    np.save(tmp_path / "rows.npy", VECTORS[:3])
    columns = COLUMN._replace(vectors=((path, tmp_path / "rows.npy"),))
    dataset = read_dataset(path, columns=columns)
    np.testing.assert_array_equal(np.array(dataset.vectors), VECTORS[:3])
    assert columns.has_vectors(path) and columns.has_vectors(tmp_path / "other.jsonl")
