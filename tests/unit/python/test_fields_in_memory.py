"""Models in this process have fields: of mappings, and of the columns of frames."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.titled_rows import FIELDS, text_of, titled_rows

import xylem
from xylem.errors import BadInput

ROWS = [{"title": row.get("title", ""), "body": row.get("body", "")} for row in titled_rows(90)]
LABELS = [row["labels"] for row in titled_rows(90)]
TEXTS = [text_of(row) for row in ROWS]


def train(instances: Any, **options: Any) -> xylem.Model:
    return xylem.train(instances, LABELS, trainer="ovr", progress=False, **options)


def test_mappings_of_fields_are_their_texts(tmp_path: Path) -> None:
    wanted = train(TEXTS)
    model = train(ROWS, text_column=FIELDS)
    expected = wanted.predict(TEXTS)
    model.save(tmp_path, "m")
    for one in (model, xylem.load(tmp_path, "m")):
        assert one.predict(ROWS) == one.predict(TEXTS) == expected
        assert one.predict(ROWS, text_column=FIELDS) == expected
        assert one.explain(ROWS[0]) == one.explain(TEXTS[0])
        assert one.score(ROWS[:2], LABELS[:2]) == one.score(TEXTS[:2], LABELS[:2])
        figures = [one.evaluate(rows, LABELS, progress=False) for rows in (ROWS, TEXTS)]
        assert {**figures[0], "us_per_row": 0} == {**figures[1], "us_per_row": 0}
        assert one.predict(ROWS, chunk_characters=500) == expected
    assert model.predict([{"title": None, "body": "a"}]) == model.predict(["\n\n\na"])
    compared = model.compare(wanted, TEXTS, LABELS, progress=False)
    assert compared["metrics"]["P@1"]["a"] == compared["metrics"]["P@1"]["b"]


def test_frames_use_the_fields_of_the_model() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    frame["year"] = 2020
    model = train(frame, text_column=FIELDS)
    expected = train(TEXTS).predict(TEXTS)
    assert model.predict(frame) == model.predict(frame, text_column=FIELDS) == expected
    tuned = model.tune_thresholds(frame, LABELS, progress=False)
    assert tuned.predict(frame, threshold="tuned") == tuned.predict(TEXTS, threshold="tuned")
    with pytest.raises(BadInput, match="expected the fields of the version, title=3, body"):
        model.predict(frame, text_column=["title", "body"])
    with pytest.raises(BadInput, match="text_column: expected one column 'title', found columns"):
        model.predict(frame[["body"]])


def test_a_weight_is_chosen() -> None:
    model = train(ROWS, text_column=["title=auto", "body"])
    chosen = model.report["fields"]["chosen"]
    assert [tried["features"] for tried in model.report["fields"]["tried"]] == [
        f"title={weight}" for weight in (1, 2, 3, 5)
    ]
    again = train(ROWS, text_column=[chosen, "body"])
    assert model.predict(ROWS) == again.predict(ROWS)


def test_what_is_wrong_with_fields() -> None:
    model = train(ROWS, text_column=FIELDS)
    for rows, fault in (
        ([{"titel": "a"}], "^row 0: expected only title, body, found another field"),
        ([ROWS[0], {}], "^row 1: expected one of the fields title, body, found none"),
        ([ROWS[0], {"title": 3}], "^row 1: field 'title': expected a text, or null for none, fou"),
        ([ROWS[0], "text"], "^row 1: expected a mapping as the rows before, found str 'text'"),
    ):
        with pytest.raises(BadInput, match=fault):
            model.predict(rows)
    with pytest.raises(BadInput, match="which this model takes, found named feat"):
        train(TEXTS).predict([{"title": 1.0}])
    with pytest.raises(BadInput, match="expected the weight auto for one column at most"):
        train(ROWS, text_column=["title=auto", "body=auto"])
    with pytest.raises(BadInput, match="found auto, which only a training can choose"):
        pytest.importorskip("optuna")
        xylem.tune(ROWS, LABELS, text_column=["title=auto", "body"], progress=False)
