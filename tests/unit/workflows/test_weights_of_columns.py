"""Versions keep their fields, workflows use them without their names, and weights are chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.titled_rows import FIELDS, columns, titled_rows, write_titled

from xylem.base import no_progress
from xylem.base.errors import BadParameter
from xylem.base.fields import TextFields
from xylem.engine.features.registry import load_featurizer
from xylem.vocabulary.featurizers import featurizer_of
from xylem.workflows.choose_features import FIELD_WEIGHTS
from xylem.workflows.extend import extend_and_publish
from xylem.workflows.labelled import read_labelled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.training_work import TrainReport
from xylem_store.errors import Corrupt
from xylem_store.origin import read_report
from xylem_store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    write_titled(tmp_path, 150)
    write_titled(tmp_path, 60, 1, "valid")
    return Store(tmp_path / "store")


def train(store: Store, name: str, *texts: str, **changes: Any) -> TrainReport:
    """Train `m` on a file beside the store, which is measured on another one of its kind."""
    home = store.root.parent
    request = TrainRequest(
        trainer=changes.pop("trainer", "label-tree"),
        data=home / name,
        valid=home / name.replace("rows", "valid"),
        columns=columns(*texts),
        **changes,
    )
    return train_and_publish(store, "m", request)


def fields_of(store: Store, version: int) -> TextFields:
    return featurizer_of(store.open("m", version)).fields


def bits_of(store: Store, version: int) -> dict[str, bytes]:
    """The arrays of a version, but for what it tells of itself."""
    arrays = store.open("m", version).arrays
    return {name: array.tobytes() for name, array in arrays.items() if not name.endswith("/json")}


@pytest.mark.parametrize(
    "how", [{}, {"trainer": "plt", "parameters": ("solver=sgd",), "stream": True}]
)
def test_fields_and_their_text_give_the_same_version(store: Store, how: dict[str, Any]) -> None:
    metrics = [
        train(store, name, *texts, **how).metrics
        for name, texts in (("rows-text.jsonl", ()), ("rows.jsonl", FIELDS), ("rows.csv", FIELDS))
    ]
    assert metrics[0] == metrics[1] == metrics[2]
    assert bits_of(store, 1) == bits_of(store, 2) == bits_of(store, 3)
    assert [fields_of(store, version).options for version in (1, 2, 3)] == [[], FIELDS, FIELDS]


def test_a_version_reads_its_fields_without_their_names(store: Store) -> None:
    home = store.root.parent
    train(store, "rows.jsonl", *FIELDS)
    model = store.open("m", 1)
    expected = read_labelled(model, home / "valid-text.jsonl", no_progress)
    for name in ("valid.jsonl", "valid.csv"):
        for texts in ((), FIELDS):
            rows = read_labelled(model, home / name, no_progress, columns(*texts)).rows
            assert [part.tobytes() for part in rows[:3]] == [
                part.tobytes() for part in expected.rows[:3]
            ]
    with pytest.raises(BadParameter, match=r"expected the fields of the version, title=3, body"):
        read_labelled(model, home / "valid.jsonl", no_progress, columns("title", "body"))


def test_versions_that_go_on_keep_the_fields(store: Store) -> None:
    home = store.root.parent
    train(store, "rows.jsonl", *FIELDS, keep_rows=True)
    new = [{**row, "labels": ["new"]} for row in titled_rows(9, 5)]
    data = write_lines(home / "new.jsonl", new)
    request = TrainRequest(trainer="", data=data, base="m@1")
    extend_and_publish(store, "m", request)
    train(store, "rows.csv", base="m@1")
    assert fields_of(store, 2) == fields_of(store, 3) == fields_of(store, 1)
    other = request.model_copy(update={"columns": columns("body", "title=3")})
    with pytest.raises(BadParameter, match="expected the fields of the version"):
        extend_and_publish(store, "m", other)
    with pytest.raises(BadParameter, match="expected the fields of the version, title=3, body"):
        train(store, "rows.csv", "title=auto", "body", base="m@1")


@pytest.mark.parametrize("features", [{}, {"features.kind": "auto"}])
def test_the_weight_of_a_column_is_chosen(store: Store, features: dict[str, Any]) -> None:
    reports = [
        train(store, name, "title=auto", "body", parameters=features)
        for name in ("rows.jsonl", "rows.csv")
    ]
    chosen = reports[0].fields
    assert chosen is not None and reports[1].fields is not None
    assert [tried["features"] for tried in chosen["tried"]] == [f"title={w}" for w in FIELD_WEIGHTS]
    best = max(tried["precision"] for tried in chosen["tried"])
    precision = {tried["features"]: tried["precision"] for tried in chosen["tried"]}
    assert precision[chosen["chosen"]] == best
    assert chosen["gained"] == round(best - precision["title=1"], 2)
    assert (chosen["rows"], chosen["held_out"]) == (150, 30)
    weight = chosen["chosen"].partition("=")[2]
    named = "title" if weight == "1" else f"title={weight}"
    again = train(store, "rows.jsonl", named, "body", parameters=features)
    assert again.metrics == reports[0].metrics == reports[1].metrics
    assert fields_of(store, 1).options == fields_of(store, 3).options == [named, "body"]
    assert bits_of(store, 1) == bits_of(store, 2) == bits_of(store, 3)
    report = read_report(store.open("m", 1).arrays)["fields"]
    assert report["chosen"] == chosen["chosen"] and "us_per_row" not in report["tried"][0]


def test_a_weight_is_chosen_on_rows_in_memory_alone(store: Store) -> None:
    stream = {"trainer": "plt", "parameters": ("solver=sgd",), "stream": True}
    with pytest.raises(BadParameter, match="title=auto: expected rows in memory, found a stream"):
        train(store, "rows.jsonl", "title=auto", "body", **stream)
    write_titled(store.root.parent, 40, name="rows")
    with pytest.raises(BadParameter, match="'title': expected 50 rows or more with auto, found 40"):
        train(store, "rows.jsonl", "title=auto", "body")
    assert not (store.root / "models" / "m" / "versions").exists()


@pytest.mark.parametrize("fields", ["title", ["title=auto"], ["title=1"], [3], 3, {"title": 1}])
def test_fields_of_a_manifest_that_are_none(store: Store, fields: Any) -> None:
    train(store, "rows.jsonl", *FIELDS)
    model = store.open("m", 1)
    features = json.loads(json.dumps({**model.manifest.features, "fields": fields}))
    with pytest.raises(Corrupt, match="manifest"):
        load_featurizer(features, model.arrays, model.manifest.n_features)
