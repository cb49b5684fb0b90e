"""Frames and series of pandas, polars, pyarrow and Hugging Face, each by the library itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import xylem
from xylem.base.errors import BadInput

TEXTS = ["red apple", "old car", "green apple", "fast car"] * 4
LABELS = [["fruit"], ["car"], ["fruit", "food"], ["car"]] * 4

Make = Callable[[dict[str, list[Any]]], Any]


@pytest.fixture(params=["pandas", "polars", "datasets", "pyarrow"])
def make(request: pytest.FixtureRequest) -> Make:
    """A library's function from columns to a frame; skipped where it is not installed."""
    library = pytest.importorskip(request.param)
    if library.__file__ is None or "tests" in Path(library.__file__).parts:  # a directory of ours
        pytest.skip(f"{request.param} is not installed")
    return {
        "pandas": lambda: library.DataFrame,
        "polars": lambda: lambda columns: library.DataFrame(columns, strict=False),
        "datasets": lambda: library.Dataset.from_dict,
        "pyarrow": lambda: library.table,
    }[request.param]()


def test_a_frame_is_its_columns(make: Make) -> None:
    frame = make({"title": TEXTS, "tags": LABELS})
    wanted = xylem.train(TEXTS, LABELS, trainer="ovr")
    expected, report = wanted.predict(TEXTS), wanted.evaluate(TEXTS, LABELS)
    ways: list[tuple[tuple[Any, ...], dict[str, str]]] = [
        ((frame,), {"text_column": "title", "label_column": "tags"}),
        ((frame, LABELS), {"text_column": "title"}),
        ((frame["title"], frame["tags"]), {}),
    ]
    for given, columns in ways:
        model = xylem.train(*given, trainer="ovr", **columns)  # type: ignore[arg-type]
        assert model.predict(TEXTS) == expected
        found = model.evaluate(*given, **columns)  # type: ignore[arg-type]
        assert {**found, "us_per_row": 0} == {**report, "us_per_row": 0}
    assert wanted.predict(frame, text_column="title") == wanted.predict(frame["title"]) == expected
    empty = make({"title": [], "tags": []})
    with pytest.raises(BadInput, match="instances: expected one at least, found none"):
        xylem.train(empty, text_column="title", label_column="tags")
    assert wanted.predict(empty, text_column="title") == []


def test_columns_that_are_missing_or_in_the_way(make: Make) -> None:
    frame = make({"title": TEXTS, "tags": LABELS})
    model = xylem.train(TEXTS, LABELS, trainer="ovr")
    there = "'title', 'tags'"
    for given, columns, fault in (
        ((frame, LABELS), {}, f"text_column: expected the name of a column, .* {there}"),
        (
            (frame, LABELS),
            {"text_column": "text"},
            f"text_column: expected one column 'text', .* {there}",
        ),
        (
            (frame,),
            {"text_column": "title", "label_column": "x"},
            f"label_column: expected one .* {there}",
        ),
        (
            (frame, LABELS),
            {"text_column": "title", "label_column": "tags"},
            "label_column: .* found both",
        ),
        ((frame,), {"text_column": "title"}, "labels: expected a list of labels .* found NoneType"),
        ((TEXTS, frame), {}, "labels: row 0: expected columns of 0 and 1 in a frame of labels"),
        ((TEXTS, LABELS), {"text_column": "title"}, "text_column: expected a frame .* found list"),
    ):
        for face in (lambda *a, **k: xylem.train(*a, trainer="ovr", **k), model.evaluate):
            with pytest.raises(BadInput, match=fault):
                face(*given, **columns)
    with pytest.raises(BadInput, match=f"text_column: .* {there}"):
        model.predict(frame)


def test_a_frame_of_labels_has_a_column_for_each(make: Make) -> None:
    names = ("fruit", "car", "food")
    wanted = xylem.train(TEXTS, LABELS, trainer="ovr").predict(TEXTS)
    for yes, no in ((1, 0), (True, False), (1, -1), (1.0, None)):
        flags = {name: [yes if name in labels else no for labels in LABELS] for name in names}
        assert xylem.train(TEXTS, make(flags), trainer="ovr").predict(TEXTS) == wanted
        assert xylem.train(make({"t": TEXTS}), make(flags), text_column="t", trainer="ovr")
    with pytest.raises(BadInput, match=r"row 1: .* found int 2 in column 'a'"):
        xylem.train(TEXTS, make({"a": [1, 2] * 8}))
    with pytest.raises(BadInput, match=r"labels: expected 16 rows"):
        xylem.train(TEXTS, make({"a": [1, 0]}))


def test_nullable_frames_are_indicators() -> None:
    pandas = pytest.importorskip("pandas")
    flags = {name: [int(name in labels) for labels in LABELS] for name in ("fruit", "car", "food")}
    frame = pandas.DataFrame(flags)
    wanted = xylem.train(TEXTS, LABELS, trainer="ovr").predict(TEXTS)
    for kind in ("Int64", "boolean", "Float64", object):
        nullable = frame.astype(kind)
        if kind in ("Int64", "boolean"):
            nullable.iloc[0, 2] = pandas.NA  # where there was a 0
        assert xylem.train(TEXTS, nullable, trainer="ovr").predict(TEXTS) == wanted
        rows = xylem.train(TEXTS, nullable.to_numpy(object), trainer="ovr").predict(TEXTS)
        assert [[int(label) for label, _ in row] for row in rows] == [
            [list(flags).index(label) for label, _ in row] for row in wanted
        ]


def test_missing_values_are_named_by_their_row(make: Make) -> None:
    columns = {"text_column": "title", "label_column": "tags"}
    for texts, labels, fault in (
        (["a", None, "c"], [["x"], ["y"], ["x"]], "^row 1: expected a string, .*: a missing value"),
        (["a", "b", "c"], [["x"], ["y"], [""]], "^expected texts with a word of two characters"),
    ):
        with pytest.raises(BadInput, match=fault):
            xylem.train(make({"title": texts, "tags": labels}), **columns)  # type: ignore[arg-type]


def test_a_missing_field_is_an_empty_text(make: Make) -> None:
    titles = ["red apple", "blue snow"] * 9
    bodies = ["sweet", None] * 9
    labels = [["fruit"], ["winter"]] * 9
    frame = make({"title": titles, "body": bodies})
    model = xylem.train(frame, labels, text_column=["title=3", "body"])
    rows = [{"title": t, "body": b} for t, b in zip(titles, bodies, strict=True)]
    assert model.predict(frame) == model.predict(rows)
    with pytest.raises(BadInput, match="row 0: expected a string, found int 3"):
        model.predict(make({"title": ["a"], "body": [3]}))


def test_pandas_by_place_and_its_own_missing_values() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"], "tags": [["x"], float("nan")]}, index=[7, 3])
    frame["text"] = ["one word", "two words"]
    report = xylem.train(frame, text_column="text", label_column="tags").report
    assert report["data"]["without_labels"] == 1, "a missing value is no label"
    frame["text"] = ["a", "b"]
    with pytest.raises(
        BadInput, match="row 0: expected a string, found NAType <NA>: a missing value"
    ):
        xylem.train(pandas.Series([pandas.NA, "a"], dtype="object"), LABELS[:2])
    twice = pandas.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(BadInput, match="expected one column 'text', found columns 'text', 'text'"):
        xylem.train(twice, [["x"]], text_column="text")


def test_a_lazy_frame_is_refused() -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({"text": TEXTS}).lazy()
    with pytest.raises(
        BadInput, match="expected a frame whose rows are there, found LazyFrame: collect it"
    ):
        xylem.train(lazy, LABELS, text_column="text")
