"""Lines of JSON and tables have the same texts of the same fields."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.titled_rows import FIELDS, columns, text_of, titled_rows, write_titled

from xylem.base.columns import TableColumns
from xylem.base.errors import BadData, BadParameter
from xylem.base.fields import TextFields
from xylem.datasets import read_dataset
from xylem.datasets.data_stream import DataStream

THESE = TextFields.of_options(FIELDS)


def test_lines_and_tables_have_the_same_texts(tmp_path: Path) -> None:
    write_titled(tmp_path, 40)
    expected = [text_of(row) for row in titled_rows(40)]
    for name in ("rows.jsonl", "rows.csv"):
        named = read_dataset(tmp_path / name, columns=columns(*FIELDS))
        of_version = read_dataset(tmp_path / name, columns=TableColumns(fields=THESE))
        assert named.texts == of_version.texts == expected
        assert named.fields == THESE and of_version.fields == ()
        assert named.report is not None
        assert named.report.without_fields == {"title": 2, "body": 2}
        assert named.report.as_json()["without_fields"] == {"title": 2, "body": 2}
        assert "2 without title, 2 without body" in named.report.lines()[0]
        stream = DataStream(tmp_path / name, columns=columns(*FIELDS))
        parts = list(stream.parts())
        assert [text for part in parts for text in part.texts or ()] == expected
        assert {part.fields for part in parts} == {THESE}
    assert read_dataset(tmp_path / "rows-text.jsonl").texts == expected


def test_a_row_may_have_its_fields_in_an_object_or_a_text_alone(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"fields": {"title": "a", "id": 7}, "title": "no", "labels": []},
        {"text": "alone", "labels": ["x"]},
        {"title": "b", "body": None, "id": 3, "labels": []},
        {"id": 4, "labels": []},
    ]
    path = write_lines(tmp_path / "a.jsonl", rows)
    expected = ["a\na\na\n", "alone", "b\nb\nb\n", "\n\n\n"]
    dataset = read_dataset(path, columns=TableColumns(fields=THESE))
    assert dataset.texts == expected
    assert dataset.report is not None and dataset.report.without_text == 1
    write_lines(tmp_path / "b.jsonl", [*rows, {"body": "c", "labels": []}])
    assert read_dataset(tmp_path / "b.jsonl", columns=columns(*FIELDS)).texts == [
        *expected,
        "\n\n\nc",
    ]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"title": 3, "labels": []}], r"a\.jsonl:1: field 'title': expected a text, or null"),
        ([{"title": ["a"], "labels": []}], r"a\.jsonl:1: field 'title': .* found an array of 1"),
        ([{"title": "a", "labels": []}] * 3, r"text in the field 'body' of a row, found none in"),
        ([{"text": "a", "labels": []}], r"text in the field 'title' of a row, found none in all"),
        ([{"features": {"a": 1}, "labels": []}], r"text in the field 'title' of a row, found none"),
        ([{"title": "a"}], r"a\.jsonl:1: expected keys `labels` and one of `text`"),
    ],
)
def test_fields_that_are_none(tmp_path: Path, rows: list[dict[str, Any]], fault: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(BadData, match=fault):
        read_dataset(path, columns=columns(*FIELDS))
    with pytest.raises(BadData, match=fault):
        list(DataStream(path, columns=columns(*FIELDS)).parts())


def test_fields_without_their_names(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"fields": {"title": "a"}, "labels": []}])
    with pytest.raises(BadData, match=r"found 'fields', 'labels': name its fields by --text-col"):
        read_dataset(path)


def test_a_weight_is_not_chosen_on_a_stream(tmp_path: Path) -> None:
    write_titled(tmp_path, 9)
    with pytest.raises(BadParameter, match="title=auto: expected rows in memory, found a stream"):
        DataStream(tmp_path / "rows.jsonl", columns=columns("title=auto", "body"))


def test_the_columns_of_a_version(tmp_path: Path) -> None:
    mine = columns(*FIELDS).for_version(THESE)
    assert mine.texts == () and mine.fields == THESE
    assert columns("abstract").for_version(TextFields.of_options(["text"])).texts.names == [
        "abstract"
    ]
    assert columns("abstract").for_version(TextFields()).texts.names == ["abstract"]
    for texts in (["title", "body"], ["body", "title=3"], ["text"]):
        with pytest.raises(BadParameter, match=r"fields of the version, title=3, body, or no name"):
            columns(*texts).for_version(THESE)
    with pytest.raises(BadParameter, match="'title': expected a weight as a number"):
        columns("title=auto").for_version(TextFields())
    other = columns("title=auto", "abstract").for_any_version
    assert other.for_version(THESE).fields == THESE
    assert other.for_version(TextFields()).fields.options == ["title", "abstract"]
