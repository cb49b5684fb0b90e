"""Requests whose texts have vectors: every dialect answers them alike, and refuses others."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.served_models import TEXTS, publish_model
from tests.helpers.vectors import NUMBERS, vectors_of

import xylem
from xylem.base.errors import BadInput
from xylem.base.settings import Limits
from xylem.base.stages import StageTimings
from xylem.serving.batches.blocks import answer_block
from xylem.serving.batches.lines import LineBlock
from xylem.serving.dialects.dialect import Body, Dialect, Longer
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.dialects.scores.dialect import SCORES
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.feedback.events import CheckedEvent, check_event, to_events
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import to_options
from xylem_store.store import Store

VECTORS = vectors_of(TEXTS)
LISTS: list[list[float]] = VECTORS.tolist()
INSTANCES = [{"text": text, "vector": v} for text, v in zip(TEXTS, LISTS, strict=True)]
LABELS = [[f"label{i % 3}", "all"] for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def model() -> xylem.Model:
    return xylem.train(TEXTS, LABELS, vectors=VECTORS, vectors_weight=2.0)


@pytest.fixture(scope="module")
def served(model: xylem.Model) -> ServedVersion:
    return serve_model(model._opened)


@pytest.fixture(scope="module")
def of_words() -> ServedVersion:
    return serve_model(xylem.train(TEXTS, LABELS)._opened)


def ask(
    served: ServedVersion, body: Any, dialect: Dialect[Any] = PREDICT, data: bytes = b""
) -> Any:
    """Return the JSON of the answer to a body, which may have binary data behind it."""
    head = json.dumps(body).encode()
    sizes = str(len(head)) if data else None
    reply = dialect.answer(Body(head + data, 0, sizes), served, Limits(), StageTimings())
    if isinstance(reply, Longer):
        reply = reply.answer(np.zeros(1, np.uint8))
    return json.loads(b"".join(reply.parts)[: reply.n_json])


def expected(model: xylem.Model) -> list[list[tuple[str, Any]]]:
    rows = model.predict(TEXTS, vectors=VECTORS)
    return [[(label, pytest.approx(score, abs=1e-6)) for label, score in row] for row in rows]


def pairs(prediction: dict[str, Any]) -> list[tuple[str, float]]:
    return [(label["label"], label["score"]) for label in prediction["labels"]]


def batch(served: ServedVersion, lines: list[Any]) -> list[Any]:
    block = LineBlock(1, [json.dumps(line).encode() for line in lines])
    answered = answer_block(block, served, to_options(Options(), served), Limits())
    return [json.loads(line) for line in answered.lines.splitlines()]


def test_predict_and_batches_answer_texts_with_vectors(
    served: ServedVersion, model: xylem.Model
) -> None:
    predictions = ask(served, {"instances": INSTANCES})["predictions"]
    assert list(map(pairs, predictions)) == expected(model)
    assert pairs(ask(served, {"instances": INSTANCES[:1]})["predictions"][0]) == expected(model)[0]
    assert list(map(pairs, batch(served, INSTANCES))) == expected(model)
    whole = {"text": "x" * 600, "vector": LISTS[0]}
    chunked = ask(served, {"instances": [whole], "chunk_characters": 500})["predictions"]
    assert pairs(chunked[0]) == pairs(ask(served, {"instances": [whole]})["predictions"][0])
    scored = ask(served, {"instances": [{**INSTANCES[0], "labels": ["label0"]}]}, SCORES)
    scores = dict(expected(model)[0])
    assert scored["scores"][0]["labels"][0]["score"] == scores["label0"]


@pytest.mark.parametrize("nested", [True, False])
def test_tensors_have_vectors_beside_texts(
    served: ServedVersion, model: xylem.Model, nested: bool
) -> None:
    text = {"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
    shape = {"name": "vectors", "shape": [len(TEXTS), NUMBERS], "datatype": "FP32"}
    data = LISTS if nested else [number for row in LISTS for number in row]
    asked = [{"name": "labels"}, {"name": "scores"}]
    for inputs in ([text, {**shape, "data": data}], [{**shape, "data": data}, text]):
        labels, scores = ask(served, {"inputs": inputs, "outputs": asked}, TENSORS)["outputs"]
        got = list(zip(labels["data"], scores["data"], strict=True))
        width = labels["shape"][1]
        rows = [got[first : first + width] for first in range(0, len(got), width)]
        assert [[pair for pair in row if pair[0]] for row in rows] == expected(model)
    packed = b"".join(struct.pack("<I", len(text)) + text.encode() for text in TEXTS)
    size = {"parameters": {"binary_data_size": len(packed)}}
    binary = {"parameters": {"binary_data_size": VECTORS.nbytes}}
    head = {"inputs": [{**text, "data": None, **size}, {**shape, **binary}], "outputs": asked}
    answer = ask(served, head, TENSORS, packed + VECTORS.tobytes())
    assert answer["outputs"][0]["data"] == labels["data"]


def test_an_answer_explains_the_vector_as_one_part(served: ServedVersion) -> None:
    body = {"instances": INSTANCES[:1], "explain": True, "deny_labels": ["all"]}
    (prediction,) = ask(served, body)["predictions"]
    for node in prediction["labels"][0]["explanation"]["trees"][0]["path"]:
        parts = [each for each in node["features"] if each.get("part") == "vector"]
        assert [part["feature"] for part in parts] == ["meaning"]


def test_feedback_keeps_the_vector(served: ServedVersion, of_words: ServedVersion) -> None:
    def kept(served: ServedVersion, instance: Any) -> Any:
        event = {"event_id": "e", "labels": ["all"], "instance": instance}
        checked = check_event(event, served.name, None, Limits())
        assert isinstance(checked, CheckedEvent)
        _, events, verdicts = to_events({0: checked}, served, sender="")
        assert not verdicts and events.lines[0] is not None
        return json.loads(events.lines[0][0])

    assert kept(served, INSTANCES[0]) == {"event_id": "e", "labels": ["all"], **INSTANCES[0]}
    text = {"text": TEXTS[0]}
    assert kept(of_words, text) == {"event_id": "e", "labels": ["all"], **text}


LONG = {"text": "a", "vector": [0.5] * 7}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"text": "a"}, f"expected text with a vector of {NUMBERS} numbers, .* found no vector"),
        (LONG, f"expected a vector of {NUMBERS} numbers, found one of 7"),
        ({"text": "a", "vector": [1e39] * NUMBERS}, "finite 32-bit numbers, found inf"),
        ({"text": "a", "vector": []}, f"expected a vector of {NUMBERS} numbers, found one of 0"),
        ({"text": "a", "vector": ["b"]}, "expected a number, found"),
        ({"text": "a", "vector": 7}, "expected an array, found"),
        ({"features": {"a": 1.0}}, "found named features"),
        (
            {"indices": [1], "values": [1.0], "vector": LISTS[0]},
            "with vector beside text or fields alone, found indices and values and vector",
        ),
        ({"features": {"a": 1.0}, "vector": []}, "found features and vector"),
        ({"vector": LISTS[0]}, "found vector"),
    ],
)
def test_other_instances_are_refused_where_they_stand(
    served: ServedVersion, wrong: Any, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        ask(served, {"instances": [INSTANCES[0], wrong]})
    assert str(caught.value.path).startswith("instances[1]")
    good, bad = batch(served, [INSTANCES[0], wrong])
    assert good["labels"]
    assert re.search(message, bad["error"]["detail"])


def test_a_model_of_words_refuses_vectors(of_words: ServedVersion) -> None:
    message = f"expected text or ids and values, .* found a vector of {NUMBERS} numbers"
    with pytest.raises(BadInput, match=message) as caught:
        ask(of_words, {"instances": [{"text": "a"}, INSTANCES[0]]})
    assert caught.value.path == "instances[1]"
    instances = [{"text": "a", "vector": None}, {"text": "a"}]
    null, absent = ask(of_words, {"instances": instances})["predictions"]
    assert null["labels"] == absent["labels"]


@pytest.mark.parametrize(
    ("change", "message", "place"),
    [
        ({"shape": [1]}, r"expected a shape \[n, numbers\], found \[1\]", "inputs[1].shape"),
        ({"shape": [2, NUMBERS]}, "expected as many vectors as texts, 1, found 2", "inputs[1]"),
        ({"shape": [1, 7]}, "expected an array of 7, found an array of 24", "inputs[1].data[0]"),
        ({"datatype": "INT32"}, "expected FP32", "inputs[1].datatype"),
        ({"shape": [1, 7], "data": LISTS[0][:7]}, "found one of 7", "inputs[0]"),
    ],
)
def test_other_tensors_are_refused(
    served: ServedVersion, change: Any, message: str, place: str
) -> None:
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": TEXTS[:1]}
    vectors = {"name": "vectors", "shape": [1, NUMBERS], "datatype": "FP32", "data": LISTS[:1]}
    with pytest.raises(BadInput, match=message) as caught:
        ask(served, {"inputs": [text, {**vectors, **change}]}, TENSORS)
    assert str(caught.value.path).startswith(place)
    with pytest.raises(BadInput, match="found no vector"):
        ask(served, {"inputs": [text]}, TENSORS)
    with pytest.raises(BadInput, match="found vectors"):
        ask(served, {"inputs": [vectors]}, TENSORS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("texts", 'expected the tensor text, .* found "texts"; did you mean text\\?'),
        ("title", 'expected the tensor text, because this model was .* found "title"'),
    ],
)
def test_a_misspelt_text_is_named(served: ServedVersion, name: str, message: str) -> None:
    text = {"name": name, "shape": [1], "datatype": "BYTES", "data": TEXTS[:1]}
    vectors = {"name": "vectors", "shape": [1, NUMBERS], "datatype": "FP32", "data": LISTS[:1]}
    for inputs in ([text], [text, vectors], [{**text, "name": "text"}, text]):
        with pytest.raises(BadInput, match=message) as caught:
            ask(served, {"inputs": inputs}, TENSORS)
        assert caught.value.path == "inputs"


def test_tensors_of_one_number_do_not_pass_as_texts_alone(tmp_path: Path) -> None:
    publish_model(Store(tmp_path), "text", "tfidf")
    words = serve_model(Store(tmp_path).open("text"))
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": TEXTS[:1]}
    vectors = {"name": "vectors", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}
    with pytest.raises(BadInput, match="found a vector of 1 numbers"):
        ask(words, {"inputs": [text, vectors]}, TENSORS)
