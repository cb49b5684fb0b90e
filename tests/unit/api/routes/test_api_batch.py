"""The batch route in this process: lines in, lines out, in order,
whatever is wrong with some of them.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import READY_SECONDS, InProcess, post, scope_of, serving, settings_of
from tests.helpers.feedback_helpers import NDJSON, RAW
from tests.helpers.wires import Wire

from xylem.base.settings import Limits
from xylem.serving.dialects.predict.schema import Options

GOOD = json.dumps(RAW).encode()


def batch(content: Any, model: str = "raw", query: str = "", **headers: str) -> Callable[..., Any]:
    return post(f"/v1/models/{model}/batch{query}", content, **{**NDJSON, **headers})


def lines_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def codes_of(lines: list[dict[str, Any]]) -> list[str | None]:
    return [line["error"]["code"] if "error" in line else None for line in lines]


def without_id(prediction: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in prediction.items() if key not in ("prediction_id", "id")}


def test_lines_are_answered_as_predict_answers(in_process: InProcess) -> None:
    lines = [{"indices": [i, i + 1], "values": [1, 2]} for i in range(40)]
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    predicted = in_process(
        post("/v1/models/raw/predict", {"instances": lines, "top_r": 3, "beam_width": 2})
    )
    batched = in_process(batch(content, query="?top_r=3&beam_width=2"), block_rows_max=7)
    found = lines_of(batched)
    assert [without_id(line) for line in found] == [
        without_id(p) for p in predicted.json()["predictions"]
    ]
    assert (batched.headers["xylem-model"], batched.headers["xylem-version"]) == ("raw", "2")
    assert len({line["prediction_id"] for line in found}) == 40


def test_a_bad_line_is_answered_in_its_place(in_process: InProcess) -> None:
    asked = [
        (GOOD, None),
        (b"{", "malformed-json"),
        (b'{"id": "x", "indices": [70], "values": [1]}', "bad-instance"),
        (b'{"id": 7, "indices": [1], "values": [1]}', None),
        (b"", "malformed-json"),
        (b'{"indices": [true], "values": [1]}', "bad-request"),
        (b'{"text": "a"}', "bad-instance"),
        (b'{"indices": [99999999999999999999], "values": [1]}', "bad-request"),
        (b"[" * 60_000, "malformed-json"),
        (GOOD + b"\r", None),
        (GOOD, None),
    ]
    lines = lines_of(in_process(batch(b"\n".join(line for line, _ in asked))))
    assert codes_of(lines) == [code for _, code in asked]
    assert all(line["error"]["line"] == i for i, line in enumerate(lines, 1) if "error" in line)
    assert [line.get("id") for line in lines[:4]] == [None, None, "x", 7]
    (fault,) = lines[5]["error"]["errors"]
    assert fault == {"path": "indices[0]", "detail": "expected an integer, found true"}
    assert without_id(lines[0]) == without_id(lines[9]) == without_id(lines[10])


def test_explained_lines_are_those_of_predict_in_small_blocks(in_process: InProcess) -> None:
    instances = [{"indices": [i, i + 1], "values": [1, 2]} for i in range(9)]
    content = b"".join(json.dumps(one).encode() + b"\n" for one in instances)
    body = {"instances": instances, "top_r": 2, "explain": True}
    expected = in_process(post("/v1/models/raw/predict", body)).json()["predictions"]
    assert expected[0]["labels"][0]["explanation"]["trees"]
    # blocks of two lines, with as many labels as an explained answer of predict may have
    found = lines_of(in_process(batch(content, query="?top_r=2&explain=true"), block_rows_max=2))
    assert [without_id(line) for line in found] == [without_id(one) for one in expected]


@pytest.mark.parametrize(
    ("top_r", "explain", "n_rows"),
    [(1, True, 100), (50, True, 2), (51, True, 1), (1000, True, 1), (1, False, 2048)],
)
def test_a_block_has_a_bounded_number_of_labels(top_r: int, explain: bool, n_rows: int) -> None:
    assert Options(top_r=top_r, explain=explain).block_rows(Limits()) == n_rows


@pytest.mark.parametrize("content", [b"", b"\n", GOOD, GOOD + b"\n"])
def test_the_ends_of_a_body(in_process: InProcess, content: bytes) -> None:
    assert len(lines_of(in_process(batch(content)))) == len(content.splitlines())


def test_what_the_model_knows_nothing_of_is_told(in_process: InProcess) -> None:
    known, unknown = b'{"text": "chess"}\n', b'{"text": "\xe4\xb8\xad\xe6\x96\x87"}\n'
    lines = lines_of(in_process(batch(known + unknown + b"{}\n" + unknown, model="text")))
    assert [line.get("no_known_features") for line in lines] == [None, True, None, True]
    body = {"instances": [{"text": "中文"}, {"text": "chess"}]}
    for more in ({}, {"statistics": True}, {"explain": True}):
        predictions = in_process(post("/v1/models/text/predict", {**body, **more})).json()[
            "predictions"
        ]
        assert ["no_known_features" in prediction for prediction in predictions] == [True, False]


def test_kinds_of_lines(in_process: InProcess) -> None:
    labelled, plain = lines_of(in_process(batch(b'{"labels": ["x"], ' + GOOD[1:] + b"\n" + GOOD)))
    assert labelled["labels"] == plain["labels"]
    named = in_process(
        batch(b'{"features": {"red": 1}}\n{"indices": [0], "values": [1]}\n', "named")
    )
    text = in_process(batch(b'{"text": "chess"}\n{"text": ""}\n', "text"))
    assert [len(line["labels"]) for line in lines_of(named) + lines_of(text)] == [5, 5, 5, 5]


@pytest.mark.parametrize("extra", [0, 1])
def test_a_line_at_the_limit_and_one_byte_longer(in_process: InProcess, extra: int) -> None:
    content = GOOD + b"\n" + GOOD + b" " * extra + b"\n" + GOOD
    lines = lines_of(in_process(batch(content), line_bytes_max=len(GOOD)))
    assert codes_of(lines) == [None, "limit-exceeded" if extra else None, None]


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("?top_r=0", {}, 422, "bad-request"),
        ("?topr=5", {}, 422, "bad-request"),
        ("?top_r=100000", {}, 422, "limit-exceeded"),
        ("?threshold=tuned", {}, 409, "thresholds-not-tuned"),
        ("?allow_labels=none", {}, 422, "unknown-label"),
        ("?deadline_ms=5", {}, 422, "unsupported-option"),
        ("?statistics=true", {}, 422, "unsupported-option"),
        ("", {"content-type": "application/json"}, 415, "unsupported-media-type"),
        ("", {"content-encoding": "br"}, 415, "unsupported-content-encoding"),
    ],
)
def test_what_is_refused_before_the_first_line(
    in_process: InProcess, query: str, headers: dict[str, str], status: int, code: str
) -> None:
    response = in_process(batch(GOOD, query=query, **headers))
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_options_of_the_query_string(in_process: InProcess) -> None:
    query = "?top_r=11&exact=true&deny_labels=label::1&deny_labels=label::2"
    (line,) = lines_of(in_process(batch(GOOD, query=query)))
    assert line["exact"] is True
    assert {1, 2}.isdisjoint(label["id"] for label in line["labels"])
    assert len(line["labels"]) == 9


async def streamed(store: Path, wire: Wire, **limits: Any) -> Wire:
    """Call the app as a server would."""
    headers = {"host": "x", **NDJSON, "transfer-encoding": "chunked"}
    async with serving(settings_of(store, **limits)) as (app, _):
        async with asyncio.timeout(READY_SECONDS):
            await app(scope_of("POST", "/v1/models/raw/batch", headers), wire.receive, wire.send)
        assert app.state.metrics.in_flight == 0
    return wire


class Waiting(Wire):
    """A client that sends a line when all lines before it were answered."""

    async def receive(self) -> Any:
        while self.body.count(b"\n") + len(self.messages) < 3:
            await asyncio.sleep(0.001)
        return await super().receive()


async def test_answers_begin_before_the_body_ends(shared_store: Path) -> None:
    wire = await streamed(shared_store, Waiting(*[GOOD + b"\n"] * 3))
    assert wire.is_ended
    assert wire.body.count(b"\n") == 3


async def test_a_client_that_leaves_stops_the_work(shared_store: Path) -> None:
    assert not (await streamed(shared_store, Wire(GOOD + b"\n", leaves=True))).is_ended


async def test_a_stalled_body_is_answered_and_cut(shared_store: Path) -> None:
    wire = await streamed(shared_store, Wire(GOOD + b"\n" + GOOD, ends=False), body_seconds_max=0.2)
    first, last = map(json.loads, wire.body.splitlines())
    assert first["labels"]
    assert last["error"]["code"] == "body-timeout"
    assert not wire.is_ended


@pytest.mark.parametrize(("most", "codes"), [(2, [200, 200]), (1, [200, 503])])
def test_batches_at_the_limit_and_one_more(
    in_process: InProcess, most: int, codes: list[int]
) -> None:
    async def call(client: httpx.AsyncClient) -> list[int]:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def held() -> Any:
            yield GOOD + b"\n"
            begun.set()
            await gate.wait()

        first = asyncio.create_task(batch(held())(client))
        await begun.wait()
        second = asyncio.create_task(batch(GOOD)(client))
        await asyncio.wait([second], timeout=60)
        gate.set()
        return [(await task).status_code for task in (first, second)]

    assert in_process(call, batches_max=most) == codes
