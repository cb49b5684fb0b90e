"""A version with fields answers them at every door as it answers their text, to the bit."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import InProcess, get, post
from tests.helpers.feedback_helpers import NDJSON
from tests.helpers.oip_requests import binary_body
from tests.helpers.titled_rows import FIELDS, columns, line_of, text_of, titled_rows, write_titled

import xylem
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

ROWS = [{key: row[key] for key in ("title", "body") if key in row} for row in titled_rows(12, 7)]
TEXTS = [text_of(row) for row in ROWS]
LABELS = ["apple", "snow"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the model `fields`, the same one of texts, and a combination of both."""
    home = tmp_path_factory.mktemp("fields")
    write_titled(home, 150)
    write_titled(home, 60, 1, "valid")
    store = Store(home / "store")
    for model, name, texts in (("texts", "rows-text", ()), ("fields", "rows", FIELDS)):
        request = TrainRequest(
            trainer="label-tree", data=home / f"{name}.jsonl", columns=columns(*texts)
        )
        train_and_publish(store, model, request)
    members = [("texts", 1), ("fields", 1)]
    combine_and_publish(store, "both", CombineRequest(members, home / "valid.jsonl"))
    return store


Ask = Callable[..., Any]


@pytest.fixture
def ask(store: Store, in_process: InProcess) -> Ask:
    """What returns the answer of a server in this process."""

    def ask(path: str, content: Any, status: int = 200, **headers: str) -> Any:
        response = in_process(post(path, content, **headers), store.root)
        assert response.status_code == status, response.text
        return response

    return ask


def pairs(prediction: dict[str, Any]) -> list[tuple[str, float]]:
    return [(label["label"], label["score"]) for label in prediction["labels"]]


def predict(ask: Ask, model: str, instances: list[dict[str, Any]], **options: Any) -> list[Any]:
    answer = ask(f"/v1/models/{model}/predict", {"instances": instances, **options}).json()
    return [pairs(prediction) for prediction in answer["predictions"]]


@pytest.mark.parametrize("model", ["fields", "both"])
def test_predictions_are_those_of_the_text(ask: Ask, model: str) -> None:
    texts = [{"text": text} for text in TEXTS]
    expected = predict(ask, model, texts)
    assert predict(ask, model, [{"fields": row} for row in ROWS]) == expected
    mixed = [{"fields": ROWS[0]}, texts[1], {"fields": ROWS[2]}]
    assert predict(ask, model, mixed) == expected[:3]
    if model == "fields":
        assert expected == predict(ask, "texts", texts), "the same version as of texts"
    options: tuple[dict[str, Any], ...] = ({"explain": True}, {"chunk_characters": 500})
    for option in options:
        for way in ({"fields": ROWS[0]}, texts[0]):
            body = {"instances": [way], **option}
            answer = ask(f"/v1/models/{model}/predict", body).json()["predictions"][0]
            without_id = {**answer, "prediction_id": ""}
            assert option.setdefault("answer", without_id) == without_id
            del option["answer"]


def test_lines_of_a_batch_and_scores(ask: Ask) -> None:
    lines = b"".join(line_of({"fields": row, "id": i}) for i, row in enumerate(ROWS))
    answered = ask("/v1/models/fields/batch", lines, **NDJSON).text.splitlines()
    expected = predict(ask, "fields", [{"text": text} for text in TEXTS])
    assert [pairs(json.loads(line)) for line in answered] == expected
    scores = [
        ask("/v1/models/fields/score", {"instances": [{**way, "labels": LABELS}]}).json()["scores"]
        for way in ({"fields": ROWS[0]}, {"text": TEXTS[0]})
    ]
    assert scores[0] == scores[1]


def tensor(name: str, data: list[str], **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data, **changes}


def test_a_tensor_a_field(ask: Ask, store: Store, in_process: InProcess) -> None:
    names = ("title", "body")
    inputs = [tensor(name, [row.get(name, "") for row in ROWS]) for name in names]
    path = "/v2/models/fields/infer"
    expected = ask(path, {"inputs": [tensor("text", TEXTS)]}).json()["outputs"]
    assert ask(path, {"inputs": inputs}).json()["outputs"] == expected
    body, headers = binary_body({"inputs": inputs})
    assert ask(path, body, **headers).json()["outputs"] == expected
    response = in_process(get("/v2/models/fields"), store.root)
    assert [(one["name"], one["datatype"]) for one in response.json()["inputs"]][-2:] == [
        ("title", "BYTES"),
        ("body", "BYTES"),
    ]
    for bad, fault in (
        ([tensor("titel", ["a"])], "expected only title, body, found another field"),
        (
            [inputs[0], tensor("body", ["a"])],
            "expected as many elements of body as texts, 12, found 1",
        ),
        ([inputs[0], tensor("text", TEXTS)], "expected only title, body, found another field"),
        ([tensor("title", ["a"], datatype="FP32")], "expected one of text, vectors, .* found"),
    ):
        answer = ask(path, {"inputs": bad}, 422).json()
        assert re.search(fault, answer["detail"]), answer


def test_feedback_counts_and_keeps_fields(store: Store, in_process: InProcess) -> None:
    event = {"event_id": "a", "instance": {"fields": ROWS[0]}, "labels": ["apple"]}
    bad = {**event, "event_id": "b", "instance": {"fields": {"titel": "a"}}}
    call = post("/v1/models/fields/feedback", {"events": [event, bad]})
    results = in_process(call, store.root, feedback_rows=True).json()["results"]
    assert [one["result"] for one in results] == ["applied", "rejected"]
    assert results[1]["detail"].startswith("instance.fields: expected only title, body, found")


@pytest.mark.parametrize(
    ("instance", "path", "fault"),
    [
        ({"fields": {"titel": "a"}}, "instances[0].fields", "expected only title, body, fou"),
        ({"fields": {}}, "instances[0].fields", "expected one of the fields title, body, fo"),
        ({"fields": {"title": 3}}, "instances[0].fields.title", "expected a string, found 3"),
        ({"fields": "a"}, "instances[0].fields", 'expected an object, found "a"'),
        ({"fields": {}, "text": "a"}, "instances[0]", "found text and fields"),
        (
            {"fields": {f"f{i}": "a" for i in range(65)}},
            "instances[0].fields",
            "expected at most 64 fields, found 65",
        ),
    ],
)
def test_what_is_wrong_with_fields(ask: Ask, instance: Any, path: str, fault: str) -> None:
    answer = ask("/v1/models/fields/predict", {"instances": [instance]}, 422).json()
    (error,) = answer["errors"]
    assert error["path"] == path and fault in error["detail"], answer


def test_fields_for_a_version_without_fields(ask: Ask) -> None:
    body = {"instances": [{"text": "a"}, {"fields": {"title": "a"}}]}
    answer = ask("/v1/models/texts/predict", body, 422).json()
    assert answer["errors"] == [
        {
            "path": "instances[1].fields",
            "detail": "expected a text, because this model was trained without fields, found "
            "fields",
        }
    ]


def test_texts_of_fields_are_bounded_together(store: Store, in_process: InProcess) -> None:
    body = {"instances": [{"fields": {"title": "é" * 30, "body": "a" * 41}}]}
    response = in_process(post("/v1/models/fields/predict", body), store.root, text_bytes_max=100)
    assert "expected at most 100 bytes of text (limit text_bytes_max), found 101" in response.text
    body["instances"][0]["fields"]["body"] = "a" * 40
    response = in_process(post("/v1/models/fields/predict", body), store.root, text_bytes_max=100)
    assert response.status_code == 200


def test_python_answers_alike(ask: Ask, store: Store) -> None:
    model = xylem.load(store.root, "fields")
    ours = [[tuple(label) for label in row] for row in model.predict(ROWS)]
    expected = predict(ask, "fields", [{"text": text} for text in TEXTS])
    assert [[(name, float(np.float32(score))) for name, score in row] for row in expected] == ours


def test_models_say_their_fields(store: Store, in_process: InProcess, tmp_path: Path) -> None:
    details = in_process(get("/v1/models/fields"), store.root).json()["version_details"]
    assert details[0]["features"]["fields"] == FIELDS
    assert store.manifest("fields", 1).features["fields"] == FIELDS
    assert "fields" not in store.manifest("texts", 1).features
