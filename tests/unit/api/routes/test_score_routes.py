"""POST /score: exact probabilities of the labels named, and refusals by name."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from model_store.store import Store
from service.base.settings import Limits
from service.cli import run
from tests.conftest import serving, settings_of
from tests.served_models import publish_all
from tests.small_models import small_draft, softmax_draft

RAW = {"indices": [1, 5, 23], "values": [1.0, 0.5, -2.0]}


def store_of(root: Path) -> Store:
    store = publish_all(root)
    store.publish("softmax", softmax_draft(3))
    features = {"kind": "raw", "norm": "l2"}
    store.publish("forest", small_draft(3, kind="decision-tree", features=features))
    store.promote("softmax", 1, "stable")
    return store


def asked(root: Path, *calls: tuple[str, Any], **settings: Any) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        async with serving(settings_of(root, **settings)) as (_, client):
            return [await client.post(path, json=body) for path, body in calls]

    return asyncio.run(ask())


def test_scores_are_those_of_an_exact_prediction_on_every_path(tmp_path: Path) -> None:
    store_of(tmp_path)
    labels = [f"label::{i}" for i in range(11)]
    for model in ("softmax", "raw", "forest"):
        ways = ("", "/versions/1", "/aliases/latest")
        body = {
            "instances": [{**RAW, "labels": labels}, {"indices": [], "values": [], "labels": labels[3:1:-1]}]
        }
        full = {"instances": [RAW], "top_r": 11, "exact": True}
        *scored, predicted = asked(
            tmp_path,
            *((f"/v1/models/{model}{way}/score", body) for way in ways),
            (f"/v1/models/{model}/predict", full),
        )
        for response in scored:
            assert response.status_code == 200, response.text
            assert response.json()["model"] == model
        latest = scored[2].json()
        assert latest["scores"][1]["labels"][0]["label"] == "label::3"
        assert [label["label"] for label in latest["scores"][0]["labels"]] == labels
        by_label = {label["label"]: label for label in latest["scores"][0]["labels"]}
        for label in predicted.json()["predictions"][0]["labels"]:
            assert by_label[label["label"]]["score"] == label["score"]
            assert by_label[label["label"]]["id"] == label["id"]
        assert all((label["log_score"] is None) == (label["score"] == 0) for label in by_label.values())
        if model == "softmax":
            assert abs(sum(label["score"] for label in by_label.values()) - 1) < 1e-5


def test_what_cannot_be_scored_is_refused_by_name(tmp_path: Path) -> None:
    store_of(tmp_path)
    path = "/v1/models/softmax/score"
    calls: list[tuple[Any, str, str | None]] = [
        (
            {"instances": [{**RAW, "labels": ["label::1", "nobody"]}]},
            "unknown-label",
            "instances[0].labels[1]",
        ),
        ({"instances": [RAW]}, "bad-request", "instances[0].labels"),
        ({"instances": []}, "bad-request", "instances"),
        ({"instances": [{"text": "words", "labels": []}]}, "bad-instance", "instances[0]"),
        ({"instances": [{**RAW, "labels": "label::1"}]}, "bad-request", "instances[0].labels"),
        ({"instances": [{**RAW, "indices": [1, 2, 30], "labels": []}]}, "bad-instance", None),
        ({"instances": [{**RAW, "labels": ["label::1"] * 3}] * 2}, "limit-exceeded", None),
        ({"rows": []}, "bad-request", None),
    ]
    answers = asked(tmp_path, *((path, body) for body, *_ in calls), limits=Limits(answer_labels_max=5))
    for response, (_, code, where) in zip(answers, calls, strict=True):
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, code), problem
        assert where is None or problem["errors"][0]["path"] == where
    (missing,) = asked(tmp_path, ("/v1/models/none/score", {"instances": [{**RAW, "labels": []}]}))
    assert (missing.status_code, missing.json()["code"]) == (404, "model-not-found")


def test_the_command_scores_lines_and_says_which_it_cannot(
    tmp_path: Path, capfdbinary: Any, monkeypatch: Any
) -> None:
    store_of(tmp_path / "store")
    data = tmp_path / "lines.jsonl"
    good = {**RAW, "labels": ["label::1", "label::0"]}
    lines = [good, {**RAW, "labels": ["nobody"]}, {**RAW, "labels": []}, {"text": "no"}]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines) + "not JSON\n")
    command = ["xylem", "score", "softmax", "--data", str(data), "--store", str(tmp_path / "store")]
    monkeypatch.setattr("sys.argv", command)
    assert run() == 2
    out = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    (response,) = asked(tmp_path / "store", ("/v1/models/softmax/score", {"instances": [good]}))
    assert out[0] == response.json()["scores"][0]
    assert (out[1]["error"]["code"], out[1]["error"]["errors"][0]["path"], out[1]["error"]["line"]) == (
        "unknown-label",
        "labels[0]",
        2,
    )
    assert out[2] == {"labels": []}
    assert [line["error"]["code"] for line in out[3:]] == ["bad-request", "malformed-json"]
