"""The limit that belongs to a common threshold: no lane answers a row with more labels."""

import json
from typing import Any

import pytest
from tests.helpers.feedback_helpers import NDJSON, RAW, client_of, event, send
from tests.helpers.measured import LEAST, LIMIT, with_limits

from xylem_store.store import Store

TEXT = {"text": "red green blue"}


@pytest.fixture
def limited(own_store: Store) -> Store:
    return with_limits(own_store)


def names_of(prediction: Any) -> list[str]:
    return [label["label"] for label in prediction["labels"]]


async def test_no_lane_over_http_answers_more_labels(limited: Store) -> None:
    async with client_of(limited) as client:

        async def predicted(model: str, instance: Any, **options: Any) -> list[str]:
            body = {"instances": [instance], "top_r": 11, "beam_width": 100, **options}
            answer = await client.post(f"/v1/models/{model}/predict", json=body)
            assert answer.status_code == 200, answer.text
            return names_of(answer.json()["predictions"][0])

        for model, instance in (("raw", RAW), ("text", TEXT)):
            many = await predicted(model, instance, threshold=float(LEAST))
            assert len(many) > LIMIT  # else the limit would not be seen
            for options in (
                {},
                {"explain": True},
                {"exact": True},
                {"statistics": True},
                {"label_weights": {many[0]: 1.0}},
                {"deny_labels": []},
                {"chunk_characters": 500},
            ):
                found = await predicted(model, instance, threshold="tuned", **options)
                assert found == many[:LIMIT], options
            assert await predicted(model, instance, threshold="tuned", top_r=2) == many[:2]
            lines = json.dumps(instance) + "\n"
            path = f"/v1/models/{model}/batch?top_r=11&beam_width=100&threshold=tuned"
            answer = await client.post(path, content=lines * 3, headers=NDJSON)
            for line in answer.text.splitlines():
                assert names_of(json.loads(line)) == many[:LIMIT]
        many = await predicted("raw", RAW, threshold=float(LEAST))
        tensors = {
            "inputs": [
                {"name": "indptr", "shape": [2], "datatype": "INT64", "data": [0, 3]},
                {"name": "indices", "shape": [3], "datatype": "INT32", "data": RAW["indices"]},
                {"name": "values", "shape": [3], "datatype": "FP32", "data": RAW["values"]},
            ],
            "parameters": {"top_r": 11, "beam_width": 100, "threshold": "tuned"},
        }
        answer = await client.post("/v2/models/raw/infer", json=tensors)
        assert answer.status_code == 200, answer.text
        outputs = {output["name"]: output for output in answer.json()["outputs"]}
        assert outputs["labels"]["shape"] == [1, 11]
        assert outputs["labels"]["data"] == [*many[:LIMIT], *[""] * (11 - LIMIT)]


async def test_the_limit_is_shown_and_moves_with_feedback(limited: Store) -> None:
    async with client_of(limited) as client:
        path = "/v1/models/raw/thresholds?limit=0"
        shown = (await client.get(path)).json()
        assert (shown["objective"], shown["limit"], shown["instance_f"]) == ("instance", LIMIT, 100)
        # two rows of which only the first label is right: 1 is a better limit than 3
        body = {"instances": [RAW], "top_r": 1}
        answer = (await client.post("/v1/models/raw/predict", json=body)).json()
        best = names_of(answer["predictions"][0])
        await send(client, *(event(f"e{i}", best) for i in range(3)))
        shown = (await client.get(path)).json()
        assert shown["limit"] == 1
        assert shown["micro_f"] > 0
        body = {"instances": [RAW], "top_r": 11, "threshold": "tuned"}
        answer = (await client.post("/v1/models/raw/predict", json=body)).json()
        assert names_of(answer["predictions"][0]) == best


async def test_the_past_of_a_common_threshold_is_that_of_all_labels(limited: Store) -> None:
    async with client_of(limited) as client:
        thresholds = {}
        for i in range(6):
            await send(client, event(f"e{i}", [f"label::{i % 3}"]))
            shown = (await client.get("/v1/models/raw/thresholds")).json()
            assert len({label["threshold"] for label in shown["labels"]}) == 1
            thresholds[shown["threshold_epoch"]] = shown["labels"][0]["threshold"]
        for label in (0, 10):  # label 10 is in no event
            path = f"/v1/models/raw/threshold-history?id={label}"
            points = (await client.get(path)).json()["points"]
            past = {point["epoch"]: point["threshold"] for point in points}
            assert {epoch: past[epoch] for epoch in thresholds} == thresholds
