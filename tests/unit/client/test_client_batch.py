"""Batches over connections that break, lie, wait and refuse.

tests/e2e/test_client.py has the real server.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from socket import socket
from typing import Any

import pytest
from tests.helpers.scripted_clients import QUICK, chunk
from tests.helpers.scripted_server import Script, ScriptedServer, answer, raw, reset

import xylem
from xylem.client import batch_parts

HEAD = (
    b"HTTP/1.1 200 OK\r\nxylem-version: 7\r\ntransfer-encoding: chunked\r\nconnection: "
    b"close\r\n\r\n"
)
END = b"0\r\n\r\n"


@pytest.fixture(autouse=True)
def four_lines_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_parts, "LINES_MAX", 4)
    monkeypatch.setattr(batch_parts, "_LONG_LINES", 4)


def answered(line: dict[str, Any], number: int) -> bytes:
    if "bad" in line:
        return (
            json.dumps({"error": {"code": "bad-request", "detail": "x", "line": number}}).encode()
            + b"\n"
        )
    labels = [{"label": line["text"], "id": 1, "score": 0.5}]
    return json.dumps({"labels": labels, "prediction_id": "p", "exact": True}).encode() + b"\n"


class Server(ScriptedServer):
    """Answers the lines of a request, each as it should, unless a script says otherwise."""

    def __init__(self, *scripts: Script | int | bytes) -> None:
        super().__init__([self._script(one) for one in scripts])

    def _script(self, told: Script | int | bytes) -> Script:
        """Answer all lines; or as many as the number says, then
        break; or all, and then these bytes.
        """
        if callable(told):
            return told

        def script(connection: socket) -> None:
            lines = [json.loads(line) for line in self.requests[-1].body.splitlines()]
            n = told if isinstance(told, int) else len(lines)
            data = b"".join(chunk(answered(line, i)) for i, line in enumerate(lines[:n], 1))
            connection.sendall(HEAD + data + (told if isinstance(told, bytes) else b""))

        return script


def texts(n: int) -> list[dict[str, Any]]:
    return [{"text": f"t{i}"} if i % 3 != 1 else {"text": "", "bad": 1} for i in range(n)]


Found = list[xylem.Prediction | xylem.LineError]


def check(found: Found, n: int) -> None:
    told = [item.labels if isinstance(item, xylem.Prediction) else item for item in found]
    labels = [[xylem.Label(f"t{i}", 1, 0.5)] for i in range(n)]
    assert told == [
        xylem.LineError(i + 1, "bad-request", "x") if i % 3 == 1 else labels[i] for i in range(n)
    ]


def run_here(url: str, instances: Any, **options: Any) -> Found:
    with xylem.Client(url, retries=QUICK, **options) as client:
        return list(client.batch("m", instances, alias="stable"))


def run_async(url: str, instances: Any, **options: Any) -> Found:
    async def each() -> AsyncIterator[Any]:
        for instance in instances:
            yield instance

    async def main() -> Found:
        async with xylem.AsyncClient(url, retries=QUICK, **options) as client:
            return [item async for item in client.batch("m", each(), alias="stable")]

    return asyncio.run(main())


both = pytest.mark.parametrize("run", [run_here, run_async])
Run = Callable[..., Found]


@both
def test_requests_that_break_are_sent_again_without_a_gap(run: Run) -> None:
    with Server(reset, answer(503), END, 2, END, b"", reset, END) as server:
        check(run(server.url, texts(10)), 10)
        sent = [(seen.line.split()[1], seen.body.count(b"\n")) for seen in server.requests]
    stable, seventh = "/v1/models/m/aliases/stable/batch", "/v1/models/m/versions/7/batch"
    # the first until it is answered, the second, the third, and the second again until it is whole
    assert sent == [(stable, 4)] * 3 + [(seventh, n) for n in (4, 2, 4, 4, 4)]


@both
def test_a_fault_that_the_stream_tells_is_asked_again(run: Run) -> None:
    fault = chunk(b'{"error":{"code":"body-timeout","detail":"too slow"}}\n') + END
    with Server(fault, END, END) as server:
        check(run(server.url, texts(7)), 7)


@both
def test_it_ends_where_nothing_comes_of_it(run: Run) -> None:
    fault = chunk(b'{"error":{"code":"overloaded","detail":"too much"}}\n') + END
    with Server(*[raw(HEAD + fault)] * 9) as server:
        with pytest.raises(xylem.ProblemError) as caught:
            run(server.url, texts(3))
        assert (caught.value.status, caught.value.code) == (200, "overloaded")
        assert len(server.requests) == 1 + QUICK.times
    with Server(*[answer(404, b'{"code":"model-not-found","detail":"x"}')] * 9) as server:
        with pytest.raises(xylem.ProblemError) as refused:
            run(server.url, texts(5))
        assert refused.value.code == "model-not-found"
        assert len(server.requests) == 1


TOO_MANY = b'{"labels":[],"prediction_id":"p","exact":true}\n' * 6


@both
@pytest.mark.parametrize("lines", [TOO_MANY, b"nonsense\n" * 3, b'{"labels":7}\n' * 3, b"x" * 2000])
def test_answers_that_are_none_are_refused(
    run: Run, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for half in ("_sync", "_async"):
        monkeypatch.setattr(f"xylem.client.{half}.base.ANSWER_BYTES_MAX", 1000)
    with Server(raw(HEAD + chunk(lines) + END)) as server:
        with pytest.raises(xylem.BadAnswer, match="expected"):
            run(server.url, texts(3))
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize(
    "data", [b"", b"x\r\n\r\n", HEAD + END, HEAD + b"zz\r\n", HEAD + chunk(b"{}")]
)
def test_connections_that_bring_nothing_are_given_up(run: Run, data: bytes) -> None:
    with Server(*[raw(data)] * 9) as server:
        with pytest.raises(xylem.ConnectionFailed):
            run(server.url, texts(3))
        assert len(server.requests) == 1 + QUICK.times


@both
def test_an_answer_that_does_not_come_is_given_up(run: Run) -> None:
    ended = threading.Event()

    def silent(connection: socket) -> None:
        connection.sendall(HEAD)
        ended.wait(30)

    with Server(silent) as server, ExitStack() as at_the_end:
        at_the_end.callback(ended.set)
        with pytest.raises(xylem.ConnectionFailed):
            run(server.url, texts(3), timeout=0.2)


@both
def test_a_source_that_is_slow_is_not_a_fault(run: Run) -> None:
    def slow() -> Iterator[dict[str, Any]]:
        for i, instance in enumerate(texts(6)):
            time.sleep(3 * (i == 5))
            yield instance

    with Server(END, END) as server:
        check(run(server.url, slow(), timeout=2), 6)
        assert len(server.requests) == 2


@both
def test_an_error_of_the_source_follows_the_answers_before_it(run: Run) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from texts(5)
        raise KeyError("mine")

    with Server(END, END) as server, pytest.raises(KeyError, match="mine"):
        run(server.url, broken())
    assert [seen.body.count(b"\n") for seen in server.requests] == [4, 1]
    with Server() as server, pytest.raises(TypeError, match="a text or a mapping"):
        run(server.url, [7])
    with Server() as server:
        assert run(server.url, []) == [] and not server.requests


def test_two_requests_run_at_a_time_and_end_with_the_batch() -> None:
    asked = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal asked
        while True:
            asked += 1
            yield {"text": "x"}

    before = threading.active_count()
    with Server(*[END] * 9) as server, xylem.Client(server.url) as client:
        found = client.batch("m", endless())
        for _ in range(5):
            next(found)
        assert asked == 12 and len(server.requests) == 3  # two answers taken of, one under way
        found.close()
        assert not client._wire._idle and threading.active_count() <= before + 1
        with pytest.raises(StopIteration):
            next(found)


def test_what_comes_line_by_line_is_answered_line_by_line() -> None:
    seen: list[int] = []

    def blocks() -> Iterator[list[bytes]]:
        for i in range(3):
            seen.append(i)
            yield [b'{"text":"t"}']

    with Server(END, END, END) as server, xylem.Client(server.url) as client:
        for i, answers in enumerate(client.batch_blocks("m", blocks())):
            assert len(answers) == 1 and seen == list(range(i + 1))


def test_long_lines_are_requests_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_parts, "BYTES_MAX", 100)
    lengths = [200, 10, 10, 200, 10]
    with Server(*[END] * 9) as server:
        found = run_here(server.url, [{"text": "x" * n} for n in lengths])
    assert [
        len(one.labels[0].label) for one in found if isinstance(one, xylem.Prediction)
    ] == lengths
    assert [request.body.count(b"\n") for request in server.requests] == [1, 3, 1]
