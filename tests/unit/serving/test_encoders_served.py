"""Requests to versions that encode their texts: answered in threads, each text alone."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import serving, settings_of
from tests.helpers.tiny_encoders import real_encoder, write_encoder

import xylem
from xylem.base import BadInstance, BadParameter
from xylem.base.settings import Limits
from xylem.base.stages import ENCODE, FEATURES, StageTimings
from xylem.serving.batches.blocks import answer_block
from xylem.serving.batches.lines import LineBlock
from xylem.serving.dialects.dialect import Body, Dialect, Longer
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.dialects.scores.dialect import SCORES
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.feedback.events import check_event, to_events
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import to_options
from xylem_store.store import Store

COLOURS = ("red", "green", "blue")
TEXTS = [f"a {COLOURS[i % 3]} thing n{i % 20}" for i in range(120)]
LABELS = [[COLOURS[i % 3]] for i in range(120)]
ASKED = ["a red thing", "green", "blue blue thing", "nothing known"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> xylem.Model:
    folder = write_encoder(tmp_path_factory.mktemp("tiny"))
    return xylem.train(TEXTS, LABELS, encoder=folder, vectors_dims=0, progress=False)


@pytest.fixture(scope="module")
def served(model: xylem.Model) -> ServedVersion:
    return serve_model(model._opened)


def ask(
    served: ServedVersion, body: Any, dialect: Dialect[Any] = PREDICT
) -> tuple[Any, StageTimings]:
    """Return the JSON of an answer, which a thread gives, and its stages."""
    timings = StageTimings()
    content = Body(json.dumps(body).encode())
    reply = dialect.answer(content, served, Limits(), timings)
    assert isinstance(reply, Longer), "an event loop must not wait for an encoder"
    whole = reply.answer(np.zeros(1, np.uint8))
    return json.loads(b"".join(whole.parts)[: whole.n_json]), timings


def labels_of(answer: Any) -> list[list[tuple[str, float]]]:
    return [[(e["label"], e["score"]) for e in row["labels"]] for row in answer["predictions"]]


def test_every_dialect_answers_in_a_thread_as_python_does(
    model: xylem.Model, served: ServedVersion
) -> None:
    expected = [
        [(label, np.float32(score)) for label, score in row] for row in model.predict(ASKED)
    ]
    answer, timings = ask(served, {"instances": [{"text": text} for text in ASKED]})
    assert labels_of(answer) == [[(n, pytest.approx(s)) for n, s in row] for row in expected]
    stages = [stage for stage, _, _ in timings.intervals]
    assert ENCODE in stages and FEATURES not in stages
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(ASKED)], "data": ASKED}
    answer, timings = ask(served, {"inputs": [tensor]}, TENSORS)
    names = next(each for each in answer["outputs"] if each["name"] == "labels")["data"]
    assert [name for name in names if name] == [label for row in expected for label, _ in row]
    scored, _ = ask(served, {"instances": [{"text": ASKED[0], "labels": ["red"]}]}, SCORES)
    assert scored["scores"][0]["labels"][0]["score"] == pytest.approx(expected[0][0][1])
    block = LineBlock(1, [json.dumps({"text": text}).encode() for text in ASKED])
    lines = answer_block(block, served, to_options(Options(), served), Limits()).lines.splitlines()
    assert [json.loads(line)["labels"][0]["label"] for line in lines] == [
        row[0][0] for row in expected
    ]


def test_a_vector_beside_a_text_is_refused(served: ServedVersion) -> None:
    with pytest.raises(BadInstance, match="found a vector of 2 numbers"):
        ask(served, {"instances": [{"text": "red", "vector": [1.0, 2.0]}]})


def test_events_with_texts_are_counted(served: ServedVersion) -> None:
    event = {"event_id": "1", "instance": {"text": "a red thing"}, "labels": ["red"]}
    checked = check_event(event, served.name, None, Limits())
    ids, events, verdicts = to_events({0: checked}, served)  # type: ignore[dict-item]
    assert ids == {0: "1"} and verdicts == {} and len(events.rows.indptr) == 2


def test_a_combined_version_encodes_for_its_members(model: xylem.Model, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model.save(store.root, "m")
    other = xylem.train(TEXTS, LABELS, features_lead=0, progress=False)
    combined = xylem.combine(
        [xylem.load(store.root, "m"), other], None, TEXTS, LABELS, progress=False
    )
    served = serve_model(combined._opened)
    answer, timings = ask(served, {"instances": [{"text": "a red thing"}], "top_r": 1})
    assert labels_of(answer)[0][0][0] == "red"
    assert ENCODE in [stage for stage, _, _ in timings.intervals]


def test_an_encoder_that_is_removed_goes_on_in_its_versions(
    model: xylem.Model, tmp_path: Path
) -> None:
    from xylem_store import EncoderArrays

    store = Store(tmp_path / "store")
    store.encoders.add("tiny", EncoderArrays.among(model._opened.arrays))
    model.save(store.root, "m")
    opened = serve_model(store.open("m"))
    before, _ = ask(opened, {"instances": [{"text": "a red thing"}]})
    store.encoders.remove("tiny")
    for version in (opened, serve_model(Store(store.root).open("m"))):
        after, _ = ask(version, {"instances": [{"text": "a red thing"}]})
        assert labels_of(after) == labels_of(before)


def test_a_missing_library_is_reported_when_a_version_is_opened(
    model: xylem.Model, tmp_path: Path, hide_module: Callable[[str], None]
) -> None:
    model.save(tmp_path / "store", "m")
    hide_module("tokenizers")
    with pytest.raises(BadParameter, match="running sentence encoders needs tokenizers: pip insta"):
        serve_model(Store(tmp_path / "store").open("m"))


def test_what_else_is_asked_at_the_same_time_changes_no_bit(tmp_path: Path) -> None:
    folder = real_encoder(tmp_path / "minilm")
    model = xylem.train(TEXTS, LABELS, encoder=folder, vectors_dims=8, progress=False)
    served = serve_model(model._opened)
    bodies = [
        {"instances": [{"text": text} for text in TEXTS[i : i + 1 + i % 4]]} for i in range(24)
    ]
    alone = [labels_of(ask(served, body)[0]) for body in bodies]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda body: ask(served, body)[0], bodies * 2))
    for i, answer in enumerate(answers):
        assert labels_of(answer) == alone[i % len(bodies)]


async def test_a_server_encodes_once_before_it_is_ready(model: xylem.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "store", "m")
    settings = settings_of(tmp_path / "store", queue_max=1, threads_max=1)
    async with serving(settings) as (_, client):
        body = {"instances": [{"text": "a red thing"}] * 64}
        answers = await asyncio.gather(
            *(client.post("/v1/models/m/predict", json=body) for _ in range(24))
        )
        statuses = {answer.status_code for answer in answers}
        assert statuses == {200, 503}
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert refused.json()["code"] == "overloaded" and "retry-after" in refused.headers
        first = await client.post("/v1/models/m/predict", json={"instances": body["instances"][:1]})
        assert first.json()["predictions"][0]["labels"][0]["label"] == "red"
        figures = (await client.get("/metrics")).text
        assert 'stage="encode"' in figures


async def test_a_server_without_the_library_serves_other_models(
    model: xylem.Model, tmp_path: Path, hide_module: Callable[[str], None]
) -> None:
    model.save(tmp_path / "store", "m")
    xylem.train(TEXTS, LABELS, progress=False).save(tmp_path / "store", "words")
    hide_module("onnxruntime")
    async with serving(settings_of(tmp_path / "store")) as (_, client):
        body = {"instances": [{"text": "a red thing"}]}
        refused = await client.post("/v1/models/m/predict", json=body)
        assert refused.status_code == 503 and refused.json()["code"] == "model-unavailable"
        assert "sentence encoders needs onnxruntime: pip install" in refused.json()["detail"]
        (failure,) = (await client.get("/readyz")).json()["failures"]
        assert failure["model"] == "m"
        answer = await client.post("/v1/models/words/predict", json=body)
        assert answer.json()["predictions"][0]["labels"][0]["label"] == "red"


SERVE_WORDS = """
import sys
import xylem
from xylem.serving.live.opening import serve_model
model = xylem.train(["red thing", "blue thing"] * 9, [["red"], ["blue"]] * 9, progress=False)
serve_model(model._opened)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"onnxruntime", "tokenizers"}))
"""


def test_without_an_encoder_nothing_of_it_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE_WORDS], capture_output=True, text=True, env={**os.environ}
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
