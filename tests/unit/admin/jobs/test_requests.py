"""Requests of jobs: good ones, and what is wrong with others."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import refused
from tests.helpers.jobs_helpers import TRAINING as SMALL_TRAINING
from tests.helpers.schemas import openapi

from xylem.admin.jobs.data import DataRoot
from xylem.admin.jobs.kinds import check_request, parameter_faults, parameter_schemas, read_request
from xylem.base.columns import columns_of
from xylem.base.errors import BadFields, BadRequest
from xylem.base.settings import Limits
from xylem.engine.features.parameters import PARAMETERS
from xylem.trainers import TRAINERS

OVR = {"model": "m", "trainer": "ovr"}
COMBINE = {"model": "m", "members": ["tree", "titles@2", "titles@best"], "vocabulary": "names.txt"}
TUNING = {"model": "m", "data": "valid.jsonl"}
TRAINING: dict[str, Any] = {
    **SMALL_TRAINING,
    "parameters": {"trees": 3, "features.ngram_max": 2},
    "weights": "float32",
    "seed": 0,
    "thresholds": {"method": "ofo"},
    "promotion": {
        "alias": "latest",
        "if": [{"metric": "P@5", "least_change": -0.2}, {"metric": "macro_f", "least_change": 0.0}],
    },
}


@pytest.fixture
def data(tmp_path: Path) -> DataRoot:
    for name in ("train.jsonl", "valid.jsonl", "rows.txt", "pair.X.npz", "names.txt", "train.csv"):
        (tmp_path / name).write_text("{}")
    return DataRoot(tmp_path, 1)


def faults(kind: str, body: Any, data: DataRoot) -> dict[str, str]:
    """What is wrong with a request: the detail of each place."""
    with refused(BadFields, "", body) as caught:
        check_request(kind, body, data, Limits())
    return {fault.path or "": str(fault) for fault in caught.value.faults}


def test_a_good_request_is_kept_as_it_was_said(data: DataRoot) -> None:
    for kind, body in (
        ("training", TRAINING),
        (
            "training",
            {**OVR, "trainer": "plt", "data": "rows.txt", "label_names": "names.txt", "split": 0.1},
        ),
        ("training", {**OVR, "data": "rows.txt", "parameters": {"features.norm": "l1"}}),
        ("training", {**OVR, "data": "train.jsonl", "promotion": {"alias": "stable"}}),
        ("combine", {**COMBINE, **TUNING, "language": "fi", "rerank": "train.jsonl"}),
        (
            "combine",
            {**COMBINE, **TUNING, "split": 0.2, "thresholds": {"method": "fta"}, "language": "fi"},
        ),
        ("vocabulary", {"model": "m", "version": 2, "vocabulary": "names.txt", "by": "notation"}),
        ("threshold-tuning", {**TUNING, "method": "sto", "kappa": 0.01, "start": [1, 4]}),
        ("threshold-tuning", {**TUNING, "version": 3, "test": "train.jsonl"}),
        ("batch", {**TUNING, "top_r": 3, "threshold": "tuned", "version": "stable"}),
    ):
        assert check_request(kind, body, data, Limits()) == (body, body["model"])
        read_request(kind, body)


@pytest.mark.parametrize("kind", ["training", "threshold-tuning", "batch"])
def test_columns_of_tables(kind: str, data: DataRoot) -> None:
    body = {"model": "m", "data": "train.csv", **({"trainer": "ovr"} if kind == "training" else {})}
    good = {"text_column": ["title=2", "body"], "label_column": "tags", "label_separator": "|"}
    said, _ = check_request(kind, {**body, **good}, data, Limits())
    assert read_request(kind, said).columns() == columns_of(*good.values())
    for change, place in (
        ({"text_column": ["a=0"]}, "text_column"),
        ({"text_column": "a"}, "text_column"),
        ({"label_column": ""}, "label_column"),
        ({"label_separator": ""}, "label_separator"),
        ({"label_columns": ["a"]}, "label_columns"),
        ({"delimiter": "ab"}, "delimiter"),
        ({"quote": "all"}, "quote"),
        ({"encoding": "ø"}, "encoding"),
        ({"encoding": "rot13"}, "encoding"),
        ({"weight_column": "w", "join_rows": "id"}, "weight_column"),
        ({"data": "train.jsonl"}, "data"),
    ):
        assert set(faults(kind, {**body, **good, **change}, data)) == {place}


def test_all_faults_of_a_training_are_told_at_once(data: DataRoot) -> None:
    found = faults(
        "training",
        {
            "model": "No/Model",
            "trainer": "label-tree",
            "data": "../train.jsonl",
            "valid": "nowhere.jsonl",
            "parameters": {
                "trees": -3,
                "none": 1,
                "loss": "x",
                "features.ngram_max": 99,
                "features.none": 1,
            },
            "weights": "float64",
            "seed": -1,
            "split": 2,
            "thresholds": {"method": "ofx", "kappa": 7},
            "promotion": {
                "alias": "7",
                "if": [{"metric": "P@9"}, {"metric": "P@1", "least_change": "x"}],
            },
            "unknown": 1,
        },
        data,
    )
    assert found.keys() == {
        *("model", "data", "valid", "weights", "seed", "split", "unknown"),
        *("parameters.trees", "parameters.none", "parameters.loss"),
        *("parameters.features.ngram_max", "parameters.features.none"),
        *("thresholds.method", "thresholds.kappa", "promotion.if[1].least_change"),
    }
    assert found["parameters.trees"] == "expected an integer from 1 to 100, found -3"
    assert found["seed"] == "expected at least 0, found -1"


def test_a_fault_of_a_training_is_told_where_it_is(data: DataRoot) -> None:
    for change, places in (
        ({"trainer": "forest"}, {"trainer"}),
        ({"trainer": 3}, {"trainer"}),
        ({"split": 0.5}, {"split"}),
        ({"valid": None}, {"thresholds", "promotion"}),
        ({"valid": None, "thresholds": None}, {"promotion"}),
        (
            {"promotion": {"alias": "7", "if": [{"metric": "P@9"}]}},
            {"promotion.alias", "promotion.if[0].metric"},
        ),
        ({"promotion": {"if": [{"metric": "P@5"}] * 33}}, {"promotion.if"}),
        ({"promotion": {"alias": None, "if": [{"metric": "P@5"}]}}, {"promotion.if"}),
        ({"calibrate": True, "valid": None, "thresholds": None, "promotion": None}, {"calibrate"}),
        ({"calibrate": True, "trainer": "huffman-tree", "parameters": {}}, {"calibrate"}),
        ({"calibrate": 1}, {"calibrate"}),
        ({"calibrate": True, "rerank": True}, {"rerank"}),
        ({"parameters": {"trees": [1]}}, {"parameters.trees"}),
        ({"parameters": {"trees": 1e400}}, {"parameters.trees"}),
        ({"parameters": {"features.kind": "no"}}, {"parameters.features.kind"}),
        (
            {"parameters": {"features.ngram_max": "2", "features.min_df": 2.5}},
            {"parameters.features.ngram_max", "parameters.features.min_df"},
        ),
        ({"data": 3}, {"data"}),
        ({"data": "x" * 1000}, {"data"}),
        ({"model": None}, {"model"}),
        ({"seed": 1 << 63}, {"seed"}),
        ({"seed": True}, {"seed"}),
        ({"thresholds": {"method": "ofo", "start": [1]}}, {"thresholds.start"}),
        ({"thresholds": {"method": "ofo", "start": [5, 1]}}, {"thresholds.start"}),
        ({"label_names": "../x"}, {"label_names"}),
    ):
        assert faults("training", {**TRAINING, **change}, data).keys() == places, change


def test_faults_of_the_other_kinds(data: DataRoot) -> None:
    assert faults("training", {**OVR, "data": "pair.X.npz", "split": 0.1}, data).keys() == {"split"}
    tuning = {
        "model": "m",
        "data": "x",
        "test": "..",
        "version": "A!",
        "start": [1, 2, 3],
        "method": "best",
    }
    assert faults("threshold-tuning", tuning, data).keys() == {
        "data",
        "test",
        "version",
        "start",
        "method",
    }
    batch = {"model": "m", "data": "rows.txt", "version": True, "top_r": 1001, "statistics": True}
    assert faults("batch", batch, data).keys() == {"data", "version", "top_r", "statistics"}
    assert faults("batch", {}, data).keys() == {"model", "data"}
    combine = {
        "model": "m",
        "members": ["tree", "t@", "A"],
        "data": "x",
        "language": "1",
        "ranker": "best",
    }
    places = {"members[1]", "members[2]", "data", "language", "ranker", "candidates", "split"}
    assert faults("combine", {**combine, "candidates": 0, "split": 2}, data).keys() == places
    places = {"model", "data", "members", "rerank"}
    assert faults("combine", {"members": [], "rerank": ".."}, data).keys() == places
    wrong = {"trainer": 5, "parameters": {"x": 1}, "label_names": "..", "split": 0.5, "seed": -1}
    places = {"model", "trainer", "data", "label_names", "seed"}
    assert faults("training", wrong, data).keys() == places
    places = {"model", "vocabulary", "version", "from"}
    assert faults("vocabulary", {"version": "A!", "from": "b"}, data).keys() == places
    odd = {"model": "m", "vocabulary": "no", "a.b": 1}
    assert faults("vocabulary", odd, data).keys() == {"vocabulary", "a.b"}
    vocabulary = {"model": "m", "vocabulary": "x", "by": "!", "thresholds": {}, "version": "A!"}
    extend = {
        "model": "m",
        "data": "no",
        "rows": ["train.jsonl", ".."],
        "version": "v!",
        "thresholds": {},
    }
    assert faults("extend", extend, data).keys() == {"data", "rows[1]", "thresholds", "version"}
    assert faults("vocabulary", vocabulary, data).keys() == {
        "vocabulary",
        "by",
        "thresholds",
        "version",
    }
    tuning = {"model": "m", "data": "train.jsonl", "objective": "instance"}
    found = faults("threshold-tuning", {**tuning, "method": "sto"}, data)
    assert found.keys() == {"method"}
    assert "expected ofo, as the other methods tune for macro-F only" in str(found["method"])
    assert faults("threshold-tuning", {**tuning, "start": [1, 4]}, data).keys() == {"start"}
    assert faults("threshold-tuning", {**tuning, "kappa": 0.02}, data).keys() == {"kappa"}
    assert faults("threshold-tuning", {**tuning, "objective": "x"}, data).keys() == {"objective"}
    check_request("threshold-tuning", tuning, data, Limits())
    both = {"model": "m", "data": "rows.txt", "chunk_characters": 500, "exact": True}
    assert faults("batch", both, data).keys() == {"data", "chunk_characters"}


def test_what_is_no_object_or_of_no_kind_is_refused(data: DataRoot) -> None:
    for body in (None, [], "x", 3):
        with pytest.raises(BadRequest, match="expected an object"):
            check_request("batch", body, data, Limits())
    with pytest.raises(BadRequest, match="expected a kind of training"):
        check_request("baking", {}, data, Limits())


def test_schemas_have_the_defaults_of_every_trainer_and_feature() -> None:
    found = parameter_schemas()
    assert (
        found["trainers"].keys() == openapi()["x-parameters"]["trainers"].keys() >= TRAINERS.keys()
    )
    assert found["features"].keys() == PARAMETERS.keys()
    for trainer, spec in TRAINERS.items():
        said = found["trainers"][trainer]["parameters"]["properties"]
        assert said.keys() == spec.parameters.model_fields.keys()
        assert all(parameter["description"] for parameter in said.values()), trainer
        defaults = {name: parameter["default"] for name, parameter in said.items()}
        assert list(parameter_faults(trainer, defaults)) == []
    for kind in PARAMETERS:
        said = found["features"][kind]["properties"]
        defaults = {f"features.{name}": parameter["default"] for name, parameter in said.items()}
        assert list(parameter_faults("label-tree", {"features.kind": kind, **defaults})) == []
