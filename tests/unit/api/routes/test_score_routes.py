"""POST /score: exact probabilities of the labels named, and refusals by name."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import Run, serving, settings_of
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.served_models import publish_all
from tests.helpers.small_models import small_draft, softmax_draft

from xylem.base.settings import Limits

RAW = {"indices": [1, 5, 23], "values": [1.0, 0.5, -2.0]}
LABELS = [f"label::{i}" for i in range(11)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a model of each kind of trees."""
    store = publish_all(tmp_path_factory.mktemp("scores"))
    store.publish("softmax", softmax_draft(3))
    features = {"kind": "raw", "norm": "l2"}
    store.publish("forest", small_draft(3, kind="decision-tree", features=features))
    return store.root


def asked(root: Path, *calls: tuple[str, Any], **settings: Any) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        async with serving(settings_of(root, **settings)) as (_, client):
            return [await client.post(path, json=body) for path, body in calls]

    return asyncio.run(ask())


@pytest.mark.parametrize("model", ["softmax", "raw", "forest"])
def test_scores_are_those_of_an_exact_prediction_on_every_path(root: Path, model: str) -> None:
    rows = [{**RAW, "labels": LABELS}, {"indices": [], "values": [], "labels": LABELS[3:1:-1]}]
    path = f"/v1/models/{model}"
    scores = (
        (f"{path}{way}/score", {"instances": rows})
        for way in ("", "/versions/1", "/aliases/latest")
    )
    full = {"instances": [RAW], "top_r": 11, "exact": True}
    *scored, predicted = asked(root, *scores, (f"{path}/predict", full))
    for response in scored:
        assert response.status_code == 200, response.text
        assert response.json()["model"] == model
    first, second = (row["labels"] for row in scored[2].json()["scores"])
    assert [label["label"] for label in second] == LABELS[3:1:-1]
    assert [label["label"] for label in first] == LABELS
    by_label = {label["label"]: label for label in first}
    for label in predicted.json()["predictions"][0]["labels"]:
        found = by_label[label["label"]]
        assert (found["score"], found["id"]) == (label["score"], label["id"])
    assert all((label["log_score"] is None) == (label["score"] == 0) for label in first)
    if model == "softmax":
        assert abs(sum(label["score"] for label in first) - 1) < 1e-5


def test_what_cannot_be_scored_is_refused_by_name(root: Path) -> None:
    path = "/v1/models/softmax/score"
    unknown = {**RAW, "labels": ["label::1", "nobody"]}
    calls: list[tuple[Any, str, str | None]] = [
        ({"instances": [unknown]}, "unknown-label", "instances[0].labels[1]"),
        ({"instances": [RAW]}, "bad-request", "instances[0].labels"),
        ({"instances": []}, "bad-request", "instances"),
        ({"instances": [{"text": "words", "labels": []}]}, "bad-instance", "instances[0]"),
        ({"instances": [{**RAW, "labels": "label::1"}]}, "bad-request", "instances[0].labels"),
        ({"instances": [{**RAW, "indices": [1, 2, 30], "labels": []}]}, "bad-instance", None),
        ({"instances": [{**RAW, "labels": ["label::1"] * 3}] * 2}, "limit-exceeded", None),
        ({"rows": []}, "bad-request", None),
    ]
    missing = "/v1/models/none/score", {"instances": [{**RAW, "labels": []}]}
    limits = Limits(answer_labels_max=5)
    *answers, last = asked(root, *((path, body) for body, *_ in calls), missing, limits=limits)
    for response, (_, code, where) in zip(answers, calls, strict=True):
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, code), problem
        assert where is None or problem["errors"][0]["path"] == where
    assert (last.status_code, last.json()["code"]) == (404, "model-not-found")


def test_the_command_scores_lines_and_says_which_it_cannot(
    root: Path, tmp_path: Path, run_here: Run
) -> None:
    good = {**RAW, "labels": ["label::1", "label::0"]}
    lines = [good, {**RAW, "labels": ["nobody"]}, {**RAW, "labels": []}, {"text": "no"}]
    data = write_lines(tmp_path / "lines.jsonl", lines)
    with data.open("a") as file:
        file.write("not JSON")
    done = run_here("score", "softmax", "--data", data, store=root)
    assert done.returncode == 2
    out = [json.loads(line) for line in done.stdout.splitlines()]
    (response,) = asked(root, ("/v1/models/softmax/score", {"instances": [good]}))
    assert [out[0]] == response.json()["scores"]
    fault = out[1]["error"]
    assert (fault["code"], fault["errors"][0]["path"], fault["line"]) == (
        "unknown-label",
        "labels[0]",
        2,
    )
    assert out[2] == {"labels": []}
    assert [line["error"]["code"] for line in out[3:]] == ["bad-request", "malformed-json"]
