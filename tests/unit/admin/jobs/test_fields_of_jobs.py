"""Jobs keep fields through splits and joins, and use those of a version without their names."""

from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import ANYWAY, Place
from tests.helpers.titled_rows import FIELDS, titled_rows, write_titled

from xylem.base.errors import BadInput, BadParameter
from xylem.vocabulary.featurizers import featurizer_of


def fields_of(place: Place, version: int) -> list[str]:
    return featurizer_of(place.store.open("m", version)).fields.options


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
@pytest.mark.parametrize("held_out", [{"valid": None, "split": 0.3}, {"valid": "valid.csv"}])
def test_jobs_of_a_model_with_fields(place: Place, name: str, held_out: dict[str, Any]) -> None:
    write_titled(place.data, 150)
    write_titled(place.data, 60, 1, "valid")
    tuned = {"thresholds": {"method": "fta"}, "promotion": ANYWAY}
    done = place.train(data=name, text_column=FIELDS, **held_out, **tuned)
    assert done.promotion.promoted and fields_of(place, 2) == FIELDS
    other = ["title=2", "body"]
    done = place.train(data=name, text_column=other, **held_out, promotion=ANYWAY)
    assert done.promotion.promoted and fields_of(place, 3) == other
    new = [{**row, "labels": ["new"]} for row in titled_rows(9, 5)]
    write_lines(place.data / "new.jsonl", new)
    extension = {"model": "m", "version": 2, "data": ["new.jsonl"], "rows": [name]}
    place.do("extend", extension)
    assert fields_of(place, 4) == FIELDS
    place.do("threshold-tuning", {"model": "m", "data": name, "method": "fta"})
    answers = [
        place.predictions(place.batch(data=file, version=2)) for file in (name, "rows-text.jsonl")
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 150


def test_a_weight_is_chosen_by_a_job(place: Place) -> None:
    write_titled(place.data, 150)
    done = place.train(data="rows.csv", text_column=["title=auto", "body"], valid=None, split=0.3)
    weight = fields_of(place, 2)[0].partition("=")[2] or "1"
    assert done.result["fields"]["chosen"] == f"title={weight}"


def test_a_weight_is_chosen_by_trainings_alone(place: Place) -> None:
    write_titled(place.data, 9)
    body = {"model": "m", "data": "rows.csv", "method": "fta", "text_column": ["title=auto"]}
    with pytest.raises(BadInput, match="expected a weight as a number, found auto"):
        place.submit("threshold-tuning", body)


def test_columns_that_contradict_a_version(place: Place) -> None:
    write_titled(place.data, 150)
    place.train(data="rows.jsonl", valid="rows.jsonl", text_column=FIELDS)
    for kind, request in (
        ("batch", {"data": "rows.csv"}),
        ("threshold-tuning", {"data": "rows.csv", "method": "fta"}),
        ("extend", {"data": "rows.csv", "rows": ["rows.csv"], "split": 0.2}),
    ):
        body = {"model": "m", **request, "text_column": ["body", "title"]}
        with pytest.raises(BadParameter, match="expected the fields of the version, title=3, body"):
            place.do(kind, body)
