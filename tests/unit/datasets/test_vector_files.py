"""Files of vectors that stand beside data files: row for row, or refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.vectors import vectors_of

from xylem.base.columns import DEFAULT_COLUMNS, TableColumns
from xylem.base.errors import BadData, BadParameter
from xylem.datasets.data_stream import DataStream
from xylem.datasets.reader import read_dataset
from xylem.datasets.tables import TableLines

TEXTS = [f"word{i % 7} other{i % 3}" for i in range(40)]
VECTORS = vectors_of(TEXTS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "rows.jsonl", ({"text": t, "labels": ["a"]} for t in TEXTS))


def beside(data: Path, array: Any, **options: Any) -> TableColumns:
    """Return how the data are read, after the array was written as their vectors."""
    file = data.with_name("vectors.npy")
    np.save(file, array, **options)
    return DEFAULT_COLUMNS.with_vectors([file], data)


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_each_row_gets_its_vector(data: Path, dtype: str, order: Any) -> None:
    columns = beside(data, VECTORS.astype(dtype, order=order))
    dataset = read_dataset(data, columns=columns)
    expected = VECTORS.astype(dtype).astype(np.float32)
    assert dataset.vectors is not None and dataset.vectors.dtype == np.float32
    np.testing.assert_array_equal(dataset.vectors, expected)
    chosen = dataset.take(np.array([5, 2]))
    np.testing.assert_array_equal(np.array(chosen.vectors), expected[[5, 2]])
    stream = DataStream(data, None, columns)
    parts = [part.vectors for part in stream.parts()]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(np.concatenate(list(stream.vectors())), expected)


def test_lines_and_tables_get_them_as_instances(data: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,labels\n" + "".join(f"{text},a\n" for text in TEXTS))
    blank = data.with_name("blank.jsonl")
    blank.write_text("\n[1]\nno JSON\n" + "".join(data.read_text().splitlines(True)[2:]))
    for path in (data, table, blank):
        with TableLines(path, beside(path, VECTORS)) as lines:
            read = lines.read1(1 << 30).splitlines()
        instances = [line for line in read if line not in (b"", b"[1]", b"no JSON")]
        for i, line in enumerate(instances, len(TEXTS) - len(instances)):
            instance = json.loads(line)
            assert instance["text"] == TEXTS[i]
            assert np.array(instance["vector"], np.float32).tobytes() == VECTORS[i].tobytes()
    assert len(read) - len(instances) == 3


def refuse(data: Path, columns: TableColumns, message: str) -> None:
    """Check that the data are refused in memory, as a stream, and as lines of instances."""
    with pytest.raises(BadData, match=message):
        read_dataset(data, columns=columns)
    with pytest.raises(BadData, match=message):
        list(DataStream(data, None, columns).parts())
    with pytest.raises(BadData, match=message), TableLines(data, columns) as lines:
        while lines.read1(1 << 20):
            pass


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (VECTORS[0], r"found float32\[24\]"),
        (VECTORS.astype(np.int64), r"found int64\[40, 24\]"),
        (np.array([["a"]] * 40), r"found <U1\[40, 1\]"),
        (np.array([[{}]] * 40), "found another: Array can't be memory-mapped: Python objects"),
        (VECTORS[:39], "expected as many rows as rows.jsonl has, (more than 39|40), found 39"),
        (np.vstack([VECTORS, VECTORS]), "expected as many rows as rows.jsonl has, 40, found 80"),
        (VECTORS[:, :0], "expected vectors of 1 to 4096 numbers, found 0"),
        (np.zeros((40, 4097), np.float32), "expected vectors of 1 to 4096 numbers, found 4097"),
        (np.where(np.arange(40)[:, None] == 7, np.inf, VECTORS), "row 7: expected .*, found inf"),
        (VECTORS * np.where(np.arange(40)[:, None] == 9, np.nan, 1), "row 9: .*, found nan"),
        (VECTORS.astype(np.float64) * 1e39, "row 0: .* finite 32-bit numbers, found -?inf"),
    ],
)
def test_other_arrays_are_refused(data: Path, array: Any, found: str) -> None:
    refuse(data, beside(data, array), f"vectors.npy: .*{found}")


@pytest.mark.parametrize(
    "content", [b"", b"text\n", b"PK\x03\x04", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00"]
)
def test_other_files_are_refused(data: Path, content: bytes) -> None:
    columns = beside(data, VECTORS)
    (file,) = (file for _, file in columns.vectors)
    file.write_bytes(content)
    refuse(data, columns, "vectors.npy: expected a .npy file with a matrix of floats")
    file.unlink()
    refuse(data, columns, "found another: .*No such file")


def test_a_file_cut_short_is_refused(data: Path) -> None:
    columns = beside(data, VECTORS)
    (file,) = (file for _, file in columns.vectors)
    file.write_bytes(file.read_bytes()[:-4])
    refuse(data, columns, "vectors.npy: expected a .npy file")


def test_rows_of_features_have_no_vectors(tmp_path: Path) -> None:
    message = "expected vectors beside texts, found rows of features beside them"
    svm = tmp_path / "rows.svm"
    svm.write_text("1 2:0.5\n")
    named = write_lines(tmp_path / "named.jsonl", [{"features": {"a": 1}, "labels": ["b"]}])
    for path in (svm, named):
        with pytest.raises(BadData, match=message):
            read_dataset(path, columns=beside(path, VECTORS[:1]))


def test_each_file_of_data_has_its_own() -> None:
    train, valid, one, other = map(Path, ("train.jsonl", "valid.jsonl", "a.npy", "b.npy"))
    columns = DEFAULT_COLUMNS.with_vectors([one, other], train, None, valid)
    assert (columns.vectors_of(train), columns.vectors_of(valid)) == (one, other)
    assert columns.vectors_of(one) is None
    assert DEFAULT_COLUMNS.with_vectors(None, train) == DEFAULT_COLUMNS
    message = r"expected a file for each file of data, 2 \(train.jsonl, valid.jsonl\), found 1"
    with pytest.raises(BadParameter, match=message):
        DEFAULT_COLUMNS.with_vectors([one], train, valid)
    with pytest.raises(BadParameter, match="vectors cannot be used with join rows"):
        DEFAULT_COLUMNS._replace(join="id").with_vectors([one], train)
