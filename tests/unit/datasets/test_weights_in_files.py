"""Weights of rows and of labels, in files of every format that has them."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xylem.base import BadData, BadParameter
from xylem.base.columns import TableColumns, columns_of
from xylem.base.rows import Dataset
from xylem.datasets import DataStream, TableLines, read_dataset
from xylem.datasets.data_reports import collect_reports

WEIGHTS = columns_of(None, None, None, weight_column="w")


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    """Write lines of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, *weights: str) -> Path:
    """Write a table with a text, a label and a weight in each row."""
    lines = [f"text {i},a;b,{weight}\n" for i, weight in enumerate(weights)]
    path.write_text("text,labels,w\n" + "".join(lines))
    return path


def pairs_of(dataset: Dataset) -> list[dict[str, float]]:
    """Return the weight of each label of each row, by name."""
    labels = dataset.labels
    assert labels.weights is not None and dataset.label_names is not None
    pairs = zip(labels.indices.tolist(), labels.weights.labels.tolist(), strict=True)
    named = [(dataset.label_names[label], round(weight, 5)) for label, weight in pairs]
    bounds = labels.indptr.tolist()
    return [dict(named[first:last]) for first, last in pairwise(bounds)]


def test_a_table_has_weights_of_rows(tmp_path: Path) -> None:
    with collect_reports() as reports:
        dataset = read_dataset(table(tmp_path / "t.csv", "2.5", "0", "1e3"), columns=WEIGHTS)
    assert dataset.texts == ["text 0", "text 2"]
    assert pairs_of(dataset) == [{"a": 2.5, "b": 2.5}, {"a": 1000.0, "b": 1000.0}]
    assert reports[0].weight == 1002.5 and reports[0].options == ("--weight-column", "w")
    assert "3 rows of weight 1,002.5" in reports[0].lines()[0]
    assert reports[0].as_json()["weight"] == 1002.5


def test_weights_are_never_guessed(tmp_path: Path) -> None:
    rows = [{"text": f"t{i}", "labels": ["a"], "weight": "no number"} for i in range(3)]
    assert read_dataset(write_lines(tmp_path / "t.jsonl", *rows)).labels.weights is None
    (tmp_path / "t.csv").write_text("text,labels,weight\none,a,3\ntwo,b,1\n")
    with collect_reports() as reports:
        assert read_dataset(tmp_path / "t.csv").labels.weights is None
    assert reports[0].weight is None and "weight" not in reports[0].as_json()


def test_the_column_of_weights_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    cells = [f"text {i},{('red', 'blue')[i % 2]},{i % 3 + 1}\n" for i in range(8)]
    path.write_text("text,colour,w\n" + "".join(cells))
    assert read_dataset(path, columns=WEIGHTS).label_names == ["blue", "red"]
    path.write_text(
        "text,red,blue,w\n" + "".join(f"text {i},{i % 2},{1 - i % 2},1\n" for i in range(8))
    )
    assert read_dataset(path, columns=WEIGHTS).label_names == ["blue", "red"]


def test_labels_have_weights(tmp_path: Path) -> None:
    rows = (
        {"text": "one", "labels": ["a"], "w": 1},
        {"text": "two", "labels": {"b": 0.5, "a": 2, " b ": 0.7, "c": 0}, "w": 2},
        {"features": {"f": 1}, "labels": {"b": 0.25}, "w": 4},
    )
    path = write_lines(tmp_path / "t.jsonl", *rows[:2])
    expected = [{"a": 1.0}, {"a": 2.0, "b": 0.7}]
    dataset = read_dataset(path)
    assert pairs_of(dataset) == expected and dataset.label_names == ["a", "b", "c"]
    assert pairs_of(read_dataset(path, columns=WEIGHTS)) == [{"a": 1.0}, {"a": 4.0, "b": 1.4}]
    named = read_dataset(write_lines(tmp_path / "n.jsonl", rows[2]), columns=WEIGHTS)
    assert pairs_of(named) == [{"b": 1.0}]
    joined = columns_of(None, None, None, join_rows="text")
    rows = ({"text": "x", "labels": {"a": 0.5, "b": 1}}, {"text": "x", "labels": {"a": 0.75}})
    path = write_lines(tmp_path / "j.jsonl", *rows)
    assert pairs_of(read_dataset(path, columns=joined)) == [{"a": 0.75, "b": 1.0}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_stream_has_the_weights_of_the_file(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.datasets.stream.BLOCK_BYTES", 512)
    monkeypatch.setattr("xylem.datasets.json_lines.BLOCK_BYTES", 512)
    weights = np.random.default_rng(0).integers(0, 4, 300)
    path = table(tmp_path / "t.csv", *map(str, weights))
    if suffix == "jsonl":
        rows = (
            {"text": f"text {i}", "labels": {"b": 0.5, "a": i + 1}, "w": int(weight)}
            for i, weight in enumerate(weights)
        )
        path = write_lines(tmp_path / "t.jsonl", *rows)
    whole = read_dataset(path, columns=WEIGHTS)
    stream = DataStream(path, columns=WEIGHTS)
    for _ in range(2):
        parts = [part.labels for part in stream.parts()]
        stream.settle()
    assert len(parts) > 1 and whole.n_rows == (weights > 0).sum()
    joined = type(whole.labels).join(parts)
    for array, array_of_parts in zip(
        (whole.labels.weights or ()), joined.weights or (), strict=True
    ):
        np.testing.assert_array_equal(array, array_of_parts)


@pytest.mark.parametrize("in_column", [False, True])
def test_a_stream_has_no_vectors_of_rows_that_are_not_there(
    in_column: bool, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(0).random((30, 2)).astype(np.float32)
    rows = [
        {"text": f"text {i}", "labels": ["a"], "w": i % 3, "v": vectors[i].tolist()}
        for i in range(30)
    ]
    path = write_lines(tmp_path / "t.jsonl", *rows)
    np.save(tmp_path / "t.npy", vectors)
    columns = (
        WEIGHTS._replace(vector="v")
        if in_column
        else WEIGHTS.with_vectors([tmp_path / "t.npy"], path)
    )
    vectors_with_weight = vectors[np.arange(30) % 3 > 0]
    stream = DataStream(path, columns=columns)
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate(list(stream.vectors())), vectors_with_weight)
        parts = [part.vectors for part in stream.parts() if part.vectors is not None]
        np.testing.assert_array_equal(np.concatenate(parts), vectors_with_weight)
        stream.settle()
    np.testing.assert_array_equal(read_dataset(path, columns=columns).vectors, vectors_with_weight)


def test_a_table_as_lines_keeps_the_weights(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "2", "0.5")
    with TableLines(path, WEIGHTS, with_labels=True) as lines:
        rows = [json.loads(line) for line in lines.read1(1 << 20).splitlines()]
    assert [row["w"] for row in rows] == [2, 0.5]


WRONG = "expected a weight of 0, or from 0.000001 to 1,000,000, found"


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ("-1", "-1.0"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("many", "many"),
        ("", ""),
        ("2e6", "2000000"),
    ],
)
def test_a_wrong_weight_names_its_line(weight: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=rf"t\.csv:3: `w`: {WRONG} '{found}"):
        read_dataset(table(tmp_path / "t.csv", "1", weight), columns=WEIGHTS)


@pytest.mark.parametrize("weight", [-0.5, None, "2", True, 1e-9, [1]])
def test_a_wrong_weight_in_json_names_its_line(weight: Any, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "labels": ["a"], "w": 1}]
    path = write_lines(tmp_path / "t.jsonl", *rows, {**rows[0], "w": weight})
    with pytest.raises(BadData, match=rf"t\.jsonl:2: `w`: {WRONG}"):
        read_dataset(path, columns=WEIGHTS)
    path = write_lines(tmp_path / "t.jsonl", *rows, {**rows[0], "labels": {"dogs": weight}})
    with pytest.raises(BadData, match=rf"t\.jsonl:2: label 'dogs': {WRONG}"):
        read_dataset(path)


def test_weights_that_cannot_be(tmp_path: Path) -> None:
    zeros = table(tmp_path / "t.csv", "0", "0")
    fault = r"t\.csv: expected a weight above 0 in `w`, found 0 in all rows"
    with pytest.raises(BadData, match=fault):
        read_dataset(zeros, columns=WEIGHTS)
    with pytest.raises(BadData, match=fault):
        list(DataStream(zeros, columns=WEIGHTS).parts())
    with pytest.raises(
        BadData, match="expected one column 'v', found columns 'text', 'labels', 'w'"
    ):
        read_dataset(zeros, columns=TableColumns(weight="v"))
    (tmp_path / "t.svm").write_text("0 1:1\n")
    for read in (read_dataset, lambda path, columns: list(DataStream(path, None, columns).parts())):
        with pytest.raises(BadParameter, match=r"weight column: .* lines of JSON, found 't\.svm'"):
            read(tmp_path / "t.svm", columns=WEIGHTS)
    for options in ({"weight_column": ""}, {"weight_column": "w", "join_rows": "id"}):
        with pytest.raises(BadParameter, match="weight column: expected a name, and rows that are"):
            columns_of(None, None, None, **options)  # type: ignore[arg-type]


def test_rows_of_weight_0_take_their_vectors_with_them(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "1", "0", "2")
    np.save(tmp_path / "v.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    columns = WEIGHTS.with_vectors([tmp_path / "v.npy"], path)
    whole = read_dataset(path, columns=columns)
    (part,) = DataStream(path, columns=columns).parts()
    for dataset in (whole, part):
        assert dataset.texts == ["text 0", "text 2"] and dataset.vectors is not None
        assert dataset.vectors.tolist() == [[0, 1], [4, 5]]
