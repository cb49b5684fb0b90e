"""What is tried again, when, and how often: against a server that fails as its script says."""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.scripted_clients import QUICK, scripted
from tests.helpers.scripted_server import Script, ScriptedServer, answer, raw, reset

import xylem
from xylem.client.refusals import refusal_of
from xylem.client.retries import Attempts

MODELS = answer(200, b'{"models":[{"name":"a","versions":[1],"aliases":{"latest":1}}]}')
VERDICT = (
    b'{"model":"m","version":1,"threshold_epoch":2,"results":[{"event_id":"e","result":"applied"}]}'
)
EVENT = {"prediction_id": "p", "labels": []}


def fault_of(call: Callable[[xylem.Client], Any], *scripts: Script) -> tuple[Any, int]:
    """What a call to a server that answers so raises, and how many requests it made."""
    with scripted(*scripts) as (server, client):
        with pytest.raises(xylem.ClientError) as caught:
            call(client)
        return caught.value, len(server.requests)


@pytest.mark.parametrize("script", [reset, answer(502), answer(503), answer(504), answer(429)])
def test_a_call_that_is_safe_is_sent_again(script: Script) -> None:
    with scripted(script, script, MODELS) as (server, client):
        assert client.models() == [xylem.ModelInfo("a", [1], {"latest": 1})]
        assert len(server.requests) == 3


async def test_the_asynchronous_client_does_the_same() -> None:
    with ScriptedServer([reset, answer(503), MODELS]) as server:
        async with xylem.AsyncClient(server.url, retries=QUICK) as client:
            assert await client.models() == [xylem.ModelInfo("a", [1], {"latest": 1})]
        assert len(server.requests) == 3


def test_retries_end() -> None:
    problem = json.dumps({"code": "overloaded", "detail": "too much", "request_id": "r1"}).encode()
    error, n = fault_of(lambda client: client.predict("m", ["x"]), *[answer(503, problem)] * 9)
    assert (error.status, error.code, error.request_id) == (503, "overloaded", "r1")
    assert n == 1 + QUICK.times


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = xylem.Client(f"http://127.0.0.1:{port}", retries=QUICK)
    with client, pytest.raises(xylem.ConnectionFailed):
        client.promote("m", 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.rollback("m"),
        lambda client: client.promote("m", 2),
        lambda client: client.retry("j"),
        lambda client: client.call("DELETE", "/v1/admin/models/m", confirm="m"),
        lambda client: client.call("POST", "/v1/admin/keys", name="shop", scopes=["predict"]),
    ],
)
def test_what_is_not_safe_is_sent_once(call: Callable[[xylem.Client], Any]) -> None:
    error, n = fault_of(call, reset, answer(200))
    assert isinstance(error, xylem.ConnectionFailed) and n == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_a_refusal_is_not_asked_again(status: int) -> None:
    error, n = fault_of(xylem.Client.models, answer(status), MODELS)
    assert (error.status, n) == (status, 1)


def test_feedback_and_submissions_keep_their_ids_when_repeated() -> None:
    job = answer(202, b'{"id":"j","kind":"training","state":"queued"}')
    with scripted(reset, answer(200, VERDICT), answer(503), reset, job) as (server, client):
        assert client.feedback("m", [EVENT]).results == [xylem.FeedbackVerdict("e", "applied")]
        assert client.train("m", "ovr", "train.jsonl").state == "queued"
        first, second, *submissions = server.requests
    assert first.body == second.body
    assert len(json.loads(first.body)["events"][0]["event_id"]) == 32
    assert len({seen.headers["idempotency-key"] for seen in submissions}) == 1
    assert len(submissions) == 3


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), *((odd, None) for odd in ("", "-1", "soon", "1e9", "nan"))]
)
def test_retry_after_is_read_as_seconds(text: str, seconds: float | None) -> None:
    error = refusal_of(503, {"retry-after": text}, b"")
    assert isinstance(error, xylem.ProblemError) and error.retry_after == seconds


def test_retry_after_is_waited_for_up_to_a_cap_with_jitter() -> None:
    most = xylem.Retries(times=4, retry_after_seconds_max=20, total_seconds_max=40)

    def waits(seed: int) -> list[float | None]:
        attempts = Attempts(replace(most, seed=seed))
        return [attempts.next_wait(asked) for asked in (None, 5.0, 1000.0, 1000.0, None, None)]

    found = waits(7)
    assert waits(7) == found != waits(8)
    bounds = [
        (0.1, 0.2),
        (5, 5.2),
        (20, 20.2),
        None,
        (0.8, 1.6),
        None,
    ]  # all together not more than 40
    for seconds, between in zip(found, bounds, strict=True):
        assert (seconds is None) == (between is None), found
        assert seconds is None or between is None or between[0] <= seconds <= between[1], found


def test_the_client_waits_as_long_as_it_is_told() -> None:
    with scripted(answer(503, retry_after="1"), MODELS, retries=1) as (_, client):
        begun = time.monotonic()
        client.models()
        assert time.monotonic() - begun >= 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{",
        b"nonsense\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_cut_off_is_no_answer(data: bytes) -> None:
    error, n = fault_of(xylem.Client.models, *[raw(data)] * 9)
    assert isinstance(error, xylem.ConnectionFailed) and n == 4


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"models":7}', b'{"models":[{"name":1}]}', b"\xff", b'{"models":[]'],
)
def test_an_answer_of_another_shape_is_refused(body: bytes) -> None:
    error, n = fault_of(xylem.Client.models, answer(200, body))
    assert isinstance(error, xylem.BadAnswer) and "expected" in str(error) and n == 1


def test_a_huge_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xylem.client._sync.base.ANSWER_BYTES_MAX", 1000)
    error, _ = fault_of(xylem.Client.models, answer(200, b" " * 10_000))
    assert isinstance(error, xylem.BadAnswer) and "at most 1000 bytes" in str(error)


def test_an_answer_that_trickles_is_given_up() -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b" ")
            time.sleep(0.05)

    with (
        scripted(trickle, timeout=0.3, retries=0) as (_, client),
        pytest.raises(xylem.ConnectionFailed),
    ):
        client.models()


def test_a_redirect_is_not_followed() -> None:
    with ScriptedServer([MODELS]) as other:
        away = answer(307, location=f"{other.url}/v1/models")
        with scripted(away, key="secret-key") as (server, client):
            with pytest.raises(xylem.BadAnswer, match="redirect"):
                client.models()
            assert server.requests[0].headers["authorization"] == "Bearer secret-key"
        assert not other.requests


def test_no_error_and_no_representation_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    key = "secret-key-of-mine"
    found: list[Any] = []
    with scripted(answer(401), reset, answer(200, b"x"), key=key, retries=0) as (server, client):
        found += [client, client.__dict__["_target"]]
        for call in (*[client.models] * 3, lambda: list(client.batch("m", ["x"]))):
            with pytest.raises(xylem.ClientError) as caught:
                call()
            error: BaseException | None = caught.value
            while error is not None:
                found += [error, error.args]
                error = error.__cause__ or error.__context__
        for wrong in (f"{key}\n", f"{key}é", f"{key} x"):
            with pytest.raises(ValueError, match="key: expected") as broken:
                xylem.Client(server.url, wrong)
            found.append(broken.value)
        assert len(server.requests) == 4
    assert all(key not in f"{one!r} {one}" for one in found)
    assert key not in caplog.text


NO_URLS = ["", "localhost:80", "ftp://x", "http://", "https://", "http://me:pass@x", "http://x?a=1"]
BROKEN_URLS = [
    "https://x:abc",
    "http://[::1",
    "http://x:99999",
    "http://x/é",
    "http://a b",
    "http://x/a b",
]


@pytest.mark.parametrize("url", NO_URLS + BROKEN_URLS)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url: expected") as caught:
        xylem.Client(url)
    assert "pass" not in str(caught.value)


def test_names_do_not_leave_their_place_in_a_path() -> None:
    with scripted(*[answer(404)] * 9, retries=0) as (server, client):
        for name in ("../admin", "a/b", "a?b", "a#b", "%2e%2e"):
            with pytest.raises(xylem.ProblemError):
                client.model(name)
        for wrong in ("", ".", ".."):
            with pytest.raises(ValueError, match="model: expected a name"):
                client.model(wrong)
        with pytest.raises(ValueError, match="found both"):
            client.predict("m", ["x"], version=1, alias="latest")
        paths = [seen.line.split()[1] for seen in server.requests]
    assert paths == [
        f"/v1/models/{one}" for one in ("..%2Fadmin", "a%2Fb", "a%3Fb", "a%23b", "%252e%252e")
    ]


def test_one_instance_without_a_list_is_refused() -> None:
    with xylem.Client("http://127.0.0.1:1") as client:
        for one in ("a text", {"text": "a text"}):
            with pytest.raises(TypeError, match="put it into a list"):
                client.predict("m", one)  # type: ignore[arg-type]
