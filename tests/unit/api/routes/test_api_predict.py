"""Predictions in this process over real models: answers, refusals, and every error's shape."""

import json
import threading
import time
from codecs import BOM_UTF8 as BOM
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import pytest
from tests.conftest import READY_SECONDS, InProcess, get, post, serving, settings_of
from tests.helpers.feedback_helpers import RAW
from tests.helpers.predict_requests import PATH, ask, assert_problem
from tests.helpers.served_models import TEXTS

from xylem.base.errors import UnsupportedOption
from xylem.base.rows import SparseRows
from xylem.engine.features.registry import load_featurizer
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.evaluation.ranking import propensities
from xylem.serving.dialects.predict.dialect import PredictQuery
from xylem.serving.dialects.predict.schema import PredictRequest
from xylem.serving.dialects.search import SHORT_BEAMS, SHORT_NODES, is_short
from xylem.serving.label_choice import LabelWeights
from xylem.serving.live.opening import serve_model
from xylem.serving.rows import to_chunked_rows, to_rows
from xylem.serving.schemas.fields import SparseInstance
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store
from xylem_store.version import Model

SMALL = {"indices": [2, 0], "values": [1.0, 1.0]}
ONE = SparseInstance(indices=[1], values=[1.0])


def rows_of(model: Model) -> SparseRows:
    """RAW as the engine takes it."""
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    return to_rows([SparseInstance(**RAW)], featurizer)


def engine_answer(root: Path, ref: str | int, **options: Any) -> list[Any]:
    """The labels that the engine gives to RAW, as (name, id, score)."""
    model = Store(root).open("raw", ref)
    found = Predictor(model).predict(rows_of(model), PredictOptions(**options))
    return [(f"label::{i}", i, s) for i, s in zip(found.labels.tolist(), found.scores, strict=True)]


def labels_of(response: httpx.Response, i: int = 0) -> list[Any]:
    assert response.status_code == 200, response.text
    labels = response.json()["predictions"][i]["labels"]
    return [(label["label"], label["id"], np.float32(label["score"])) for label in labels]


@pytest.mark.parametrize(
    ("path", "version", "options"),
    [
        (PATH, 2, {"top_r": 4}),
        ("/v1/models/raw/versions/1/predict", 1, {"top_r": 4}),
        ("/v1/models/raw/aliases/stable/predict", 1, {"top_r": 4}),
        ("/v1/models/raw/aliases/latest/predict", 2, {"top_r": 4}),
        (PATH, 2, {"top_r": 11, "exact": True}),
        (PATH, 2, {"top_r": 11, "threshold": 0.05}),
        (PATH, 2, {"top_r": 11, "threshold": 0}),
        (PATH, 2, {"top_r": 11, "beam_width": 1}),
    ],
)
def test_the_answer_is_the_engines(
    in_process: InProcess, shared_store: Path, path: str, version: int, options: dict[str, Any]
) -> None:
    response = in_process(post(path, {"instances": [RAW], **options}))
    assert labels_of(response) == engine_answer(shared_store, version, **options)
    body = response.json()
    (prediction,) = body.pop("predictions")
    assert body == {"model": "raw", "version": version, "threshold_epoch": None}
    assert prediction.keys() == {"labels", "prediction_id", "exact"}
    # a beam of 10 leaves none of the small model's nodes out
    assert prediction["exact"] is ("beam_width" not in options)


@pytest.mark.parametrize(
    ("model", "instance", "names"),
    [
        ("raw", RAW, {"1", "5", "33"}),
        ("named", {"features": {"red": 1.0, "blue": 2}}, {"red", "blue"}),
        ("hashed", {"text": TEXTS[3]}, {str(i) for i in range(256)}),
        ("text", {"text": TEXTS[3]}, set(TEXTS[3].split())),
    ],
)
def test_explanations(
    in_process: InProcess, model: str, instance: dict[str, Any], names: set[str]
) -> None:
    body = {"instances": [instance] * 2, "top_r": 3, "exact": True}
    path = f"/v1/models/{model}/predict"
    plain, explained = (
        in_process(post(path, {**body, **more})) for more in ({}, {"explain": True})
    )
    assert labels_of(explained, 1) == labels_of(plain)
    assert all("explanation" not in label for label in plain.json()["predictions"][0]["labels"])
    found = set()
    for label in explained.json()["predictions"][1]["labels"]:
        trees = label["explanation"]["trees"]
        ends = [tree["path"][-1]["score"] for tree in trees]
        assert label["score"] == pytest.approx(sum(ends) / len(trees), rel=1e-5)
        for node in (node for tree in trees for node in tree["path"]):
            assert node.keys() == {"node", "probability", "score", "features"}
            found |= {share["feature"] for share in node["features"]}
            assert all(share["contribution"] != 0 for share in node["features"])
    assert set() < found <= names


def test_explained_labels_at_the_limit_and_one_more(in_process: InProcess) -> None:
    two, three = (
        in_process(ask(*[RAW] * n, top_r=1, explain=True), explained_labels_max=2) for n in (2, 3)
    )
    assert two.status_code == 200
    assert_problem(three, 422, "limit-exceeded")


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"threshold": 0.01}])
def test_a_deadline_that_does_not_strike_is_nothing(
    in_process: InProcess, options: dict[str, Any]
) -> None:
    plain, timed = (
        in_process(ask(RAW, RAW, **options, **more)) for more in ({}, {"deadline_ms": 30_000})
    )
    assert labels_of(timed, 1) == labels_of(plain, 1)
    assert timed.json()["predictions"][0]["exact"] is plain.json()["predictions"][0]["exact"]


def test_a_deadline_that_has_struck_says_so(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any) -> Any:
        time.sleep(0.1)
        return to_chunked_rows(*arguments)

    monkeypatch.setattr("xylem.serving.dialects.predict.dialect.to_chunked_rows", late)
    (prediction,) = in_process(ask(exact=True, deadline_ms=1)).json()["predictions"]
    assert (prediction["labels"], prediction["exact"]) == ([], False)


async def test_a_search_given_up_on_is_stopped(
    shared_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is given up after a while; its thread sees the flag, and answers the
    next request.
    """
    begun, stopped = threading.Event(), threading.Event()

    def search(_: Any, query: PredictQuery, served: Any, stop: Any, timings: Any) -> Any:
        begun.set()
        while not stop[0]:
            time.sleep(0.001)
        stopped.set()

    limits = {"request_seconds_max": 0.1, "threads_max": 1}
    async with serving(settings_of(shared_store, **limits)) as (_, client):
        monkeypatch.setattr("xylem.serving.dialects.search.SearchDialect.answer_fully", search)
        explain = ask(*[RAW] * 9, explain=True)
        answer = await explain(client)
        while (
            not begun.is_set()
        ):  # its thread was slow to begin: it is dropped then, and not stopped
            assert_problem(answer, 503, "timed-out")
            answer = await explain(client)
    assert_problem(answer, 503, "timed-out")
    assert stopped.wait(READY_SECONDS)


def test_every_kind_of_instance_in_one_request(in_process: InProcess) -> None:
    def predict(model: str, *instances: dict[str, Any]) -> Any:
        return in_process(post(f"/v1/models/{model}/predict", {"instances": instances}))

    mixed = predict("text", {"text": TEXTS[0]}, SMALL, {"text": TEXTS[1]}, SMALL)
    assert labels_of(mixed, 0) == labels_of(predict("text", {"text": TEXTS[0]}))
    assert labels_of(mixed, 1) == labels_of(mixed, 3) == labels_of(predict("text", SMALL))
    named = predict("named", {"features": {"red": 1.0, "unseen": 3}}, SMALL)
    assert len(named.json()["predictions"]) == 2


def test_allow_and_deny_lists(in_process: InProcess) -> None:
    def found(**lists: list[str]) -> set[str]:
        return {name for name, _, _ in labels_of(in_process(ask(top_r=11, exact=True, **lists)))}

    assert found(allow_labels=["label::3", "label::4"]) == {"label::3", "label::4"}
    assert found(deny_labels=["label::3"]) == {f"label::{i}" for i in range(11) if i != 3}
    assert found(allow_labels=["label::3", "label::4"], deny_labels=["label::4"]) == {"label::3"}
    assert found(allow_labels=[]) == set()


def test_a_long_request_is_answered_as_short_ones(in_process: InProcess) -> None:
    answers = [in_process(ask(*[RAW] * n)) for n in (1, 5, 300)]
    assert labels_of(answers[2], 299) == labels_of(answers[1], 4) == labels_of(answers[0])
    ids = {one["prediction_id"] for answer in answers for one in answer.json()["predictions"]}
    assert len(ids) == 306


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/models/none/predict", {"instances": [RAW]}, 404, "model-not-found"),
        ("/v1/models/..%2f..%2fetc/predict", {"instances": [RAW]}, 404, "route-not-found"),
        ("/v1/models/UPPER/predict", {"instances": [RAW]}, 404, "model-not-found"),
        ("/v1/models/raw/versions/9/predict", {"instances": [RAW]}, 404, "version-not-found"),
        ("/v1/models/raw/versions/0/predict", {"instances": [RAW]}, 404, "version-not-found"),
        ("/v1/models/raw/versions/latest/predict", {"instances": [RAW]}, 404, "version-not-found"),
        ("/v1/models/raw/versions/%31/predict", {"instances": []}, 422, "bad-request"),
        ("/v1/models/none/versions/1/predict", {"instances": [RAW]}, 404, "model-not-found"),
        ("/v1/models/UPPER/versions/1/predict", {"instances": [RAW]}, 404, "invalid-name"),
        ("/v1/models/raw/aliases/none/predict", {"instances": [RAW]}, 404, "alias-not-found"),
        ("/v1/models/raw/aliases/2/predict", {"instances": [RAW]}, 404, "alias-not-found"),
        ("/v1/models/raw/predict/", {"instances": [RAW]}, 404, "route-not-found"),
        ("/v1/nothing", {}, 404, "route-not-found"),
        ("/v1/models/text/predict", {"instances": [{"features": {}}]}, 422, "bad-instance"),
        (PATH, b"{", 400, "malformed-json"),
    ],
)
def test_refusals(in_process: InProcess, path: str, body: Any, status: int, code: str) -> None:
    assert_problem(in_process(post(path, body)), status, code)


@pytest.mark.parametrize(
    ("instances", "options", "status", "code", "said"),
    [
        ([RAW], {"top_r": 0}, 422, "bad-request", "top_r"),
        ([RAW], {"top_r": 10**6}, 422, "limit-exceeded", "top_r"),
        ([RAW], {"deadline_ms": 0}, 422, "bad-request", "deadline_ms"),
        ([RAW], {"threshold": "tuned"}, 409, "thresholds-not-tuned", "ask for a number"),
        ([RAW], {"deny_labels": ["no"]}, 422, "unknown-label", "'no'"),
        (
            [RAW],
            {"allow_labels": ["label::1", "label::none"]},
            422,
            "unknown-label",
            "'label::none'",
        ),
        ([RAW], {"label_weights": {"nobody": 2}}, 422, "unknown-label", "'nobody'"),
        ([{"text": "a"}], {}, 422, "bad-instance", "instances[0]"),
        ([RAW, {"text": "a"}], {}, 422, "bad-instance", "instances[1]"),
        ([RAW, {"indices": [70], "values": [1]}], {}, 422, "bad-instance", "instances[1]"),
        ([RAW, {"indices": [-1], "values": [1]}], {}, 422, "bad-instance", "instances[1]"),
        ([RAW, {"indices": [2**63], "values": [1]}], {}, 422, "bad-instance", "instances[1]"),
        ([RAW, RAW, {"indices": [1], "values": [1e39]}], {}, 422, "bad-instance", "instances[2]"),
        (
            [RAW, {"indices": [1, 1], "values": [3e38, 3e38]}],
            {},
            422,
            "bad-instance",
            "instances[1]",
        ),
    ],
)
def test_what_is_refused_is_named(
    in_process: InProcess,
    instances: list[Any],
    options: dict[str, Any],
    status: int,
    code: str,
    said: str,
) -> None:
    body = assert_problem(in_process(ask(*instances, **options)), status, code)
    assert said in body["detail"]
    assert code != "bad-instance" or body["errors"][0]["path"].startswith(said)


def test_media_types(in_process: InProcess) -> None:
    def ask_as(kind: str) -> Any:
        return in_process(post(PATH, {"instances": [RAW]}, **{"content-type": kind}))

    form, latin = "application/x-www-form-urlencoded", "application/json; charset=latin-1"
    for kind in (form, latin, "text/plain", ""):
        assert kind in assert_problem(ask_as(kind), 415, "unsupported-media-type")["detail"]
    for charset in ("charset=utf-8", 'Charset="UTF-8"', "charset=utf8", 'charset="Utf8"', ""):
        assert ask_as(f"APPLICATION/json ; {charset}").status_code == 200, charset


async def test_a_byte_order_mark_is_taken_at_every_door(own_store: Store) -> None:
    """As lines have always been; also where a body is long, and read in a thread."""
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    bodies = {
        PATH: {"instances": [SMALL]},
        "/v1/models/raw/score": {"instances": [{**SMALL, "labels": ["label::3"]}]},
        "/v2/models/text/infer": {"inputs": [tensor]},
        "/v1/models/raw/feedback": {"event_id": "a", "instance": RAW, "labels": ["label::3"]},
        "/v1/projects/text/suggest-batch": {"documents": [{"text": "a"}]},
        "/v1/projects/text/learn": [{"text": "a", "subjects": [{"uri": "label::3"}]}],
    }
    async with serving(settings_of(own_store.root)) as (_, client):
        for path, content in bodies.items():
            for blanks in (b"", b" " * 70_000):
                body = json.dumps(content).encode() + blanks
                plain, marked = [await post(path, mark + body)(client) for mark in (b"", BOM)]
                assert plain.status_code < 300, plain.text
                assert marked.status_code == plain.status_code, marked.text
                if path == PATH:
                    found = [one.json()["predictions"][0]["labels"] for one in (plain, marked)]
                    assert found[0] == found[1]
        twice = await post(PATH, BOM + BOM + b"{}")(client)
        assert_problem(twice, 400, "malformed-json")


@pytest.mark.parametrize("path", ["/v1/models/raw", "/v1/models/none/versions/1"])
def test_the_path_of_tensorflow_serving_names_ours(in_process: InProcess, path: str) -> None:
    answer = in_process(post(f"{path}:predict", {"instances": [RAW]}))
    detail = assert_problem(answer, 404, "route-not-found")["detail"]
    assert detail == f"expected POST {path}/predict, found POST {path}:predict"
    other = in_process(post(f"{path}:classify", {"instances": [RAW]}))
    assert other.status_code in (404, 405)


def test_methods(in_process: InProcess) -> None:
    response = in_process(get("/v1/models/raw/predict"))
    assert_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"


def test_request_ids(in_process: InProcess) -> None:
    for value, is_kept in (
        ("a-B_9.x", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
    ):
        found = in_process(get("/livez", **{"x-request-id": value})).headers["x-request-id"]
        assert found and (found == value) is is_kept, value


@pytest.mark.parametrize(("most", "statuses"), [(3, [200, 200, 200]), (2, [200, 200, 503])])
def test_requests_at_the_limit_and_one_more(
    in_process: InProcess, most: int, statuses: list[int]
) -> None:
    answers: list[httpx.Response] = []

    async def call(client: httpx.AsyncClient, n: int = 2) -> None:
        """Ask with a body that ends when n more requests, one within the other, have
        been answered.
        """

        async def body() -> AsyncIterator[bytes]:
            if n:
                await call(client, n - 1)
                assert (await client.get("/livez")).status_code == 200
            yield json.dumps({"instances": [RAW]}).encode()

        answers.append(await post(PATH, body())(client))

    in_process(call, requests_max=most)
    assert [answer.status_code for answer in answers] == statuses
    if most == 2:  # the one whose body has been waited for the longest
        assert_problem(answers[-1], 503, "overloaded")
        assert answers[-1].headers["connection"] == "close"


def test_what_nobody_foresaw_is_a_problem_too(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.serving.dialects.predict.dialect.to_chunked_rows", lambda *_: 1 / 0)
    body = {"instances": [{"text": "chess"}], "explain": True}  # kernels do not read it
    problem = assert_problem(
        in_process(post("/v1/models/text/predict", body)), 500, "internal-error"
    )
    assert "division" not in json.dumps(problem)


def test_short_requests_are_told_from_long_ones(shared_store: Path) -> None:
    served = serve_model(Store(shared_store).open("raw"))

    def short(n: int, instance: SparseInstance = ONE, **options: Any) -> bool:
        return is_short(PredictQuery(PredictRequest(instances=[instance] * n, **options)), served)

    assert short(1)
    assert short(SHORT_BEAMS // 10)
    assert not short(SHORT_BEAMS // 10 + 1)
    assert not short(1, SparseInstance(indices=[1] * 9000, values=[1.0] * 9000))
    assert not short(1, beam_width=SHORT_BEAMS + 1)
    flat = served.predictor.children_scored(10)
    with mock.patch("xylem.serving.dialects.search.SHORT_CHILDREN", 3 * flat):
        assert short(3)
        assert not short(4)
    assert short(1, exact=True, threshold=0.5)
    assert short(1, explain=True)
    n_labels = SHORT_NODES // served.predictor.nodes_explained
    assert short(1, explain=True, top_r=n_labels)
    assert not short(1, explain=True, top_r=n_labels + 1)
    assert not short(2, explain=True, top_r=n_labels)
    assert not short(1, SparseInstance(indices=[1] * 5000, values=[1.0] * 5000), explain=True)
    assert not short(1, deadline_ms=1000)
    assert not short(1, deny_labels=["x"] * 9000)
    for n_languages, options, expected in (
        (2, {"label_info": True}, True),
        (
            64,
            {"label_info": True},
            False,
        ),  # a name takes microseconds: hundreds hold up the event loop
        (64, {"language": "x1"}, True),
        (64, {}, True),
    ):
        names = {f"x{i}": "a name" for i in range(n_languages)}
        served.info.follow(build_label_info([Subject("label::0", None, names)]))
        assert short(1, top_r=10, **options) is expected, (n_languages, options)


def test_weights_change_the_order_and_the_scores(in_process: InProcess) -> None:
    last = in_process(ask()).json()["predictions"][0]["labels"][-1]
    first = in_process(ask(label_weights={last["label"]: 1e6})).json()["predictions"][0]["labels"][
        0
    ]
    assert first["label"] == last["label"]
    assert first["score"] == pytest.approx(last["score"] * 1e6, rel=1e-4)


def test_propensities_favour_labels_that_are_rare(
    shared_store: Path, in_process: InProcess
) -> None:
    model = Store(shared_store).open("raw")
    predictor = Predictor(model)
    counts = np.arange(model.manifest.n_labels) * 1000
    data = replace(model.manifest, data=model.manifest.data._replace(rows=100_000))
    counted = replace(model, manifest=data, arrays={**model.arrays, "labels/counts": counts})
    weights = LabelWeights(predictor, counted).prepare("propensity")
    rows, options = rows_of(model), PredictOptions(top_r=model.manifest.n_labels, exact=True)
    plain = predictor.predict(rows, options)
    ranked = predictor.predict(rows, options._replace(weights=weights))
    found = dict(zip(ranked.labels.tolist(), ranked.scores.tolist(), strict=True))
    expected = 1 / propensities(counts, 100_000)
    for label, score in zip(plain.labels.tolist(), plain.scores.tolist(), strict=True):
        assert found[label] == pytest.approx(score * expected[label], rel=1e-3, abs=1e-30)
    assert in_process(ask(label_weights="propensity")).status_code == 200
    with pytest.raises(UnsupportedOption, match="how often its labels occur"):
        LabelWeights(predictor, replace(counted, arrays={})).prepare("propensity")


def test_statistics_are_told_when_asked_for(in_process: InProcess) -> None:
    prediction = in_process(ask(statistics=True)).json()["predictions"][0]
    assert prediction["statistics"]["nodes"] >= 1
    assert prediction["statistics"]["weight_bytes"] > 0
    assert "statistics" not in in_process(ask()).json()["predictions"][0]
