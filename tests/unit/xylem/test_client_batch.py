"""Batches over connections that break, lie, wait and refuse. tests/e2e/test_client.py has the real server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import xylem
from tests.scripted_server import Script, ScriptedServer, answer, raw, reset
from xylem import duplex, window

QUICK = xylem.Retries(times=3, first_seconds=0.001, seed=1)
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nxylem-version: 7\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def lines_from(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """The lines of a chunked body, as they come, until its end."""
    with connection.makefile("rb") as file:
        rest = b""
        while size := int(file.readline(), 16):
            *lines, rest = (rest + file.read(size + 2)[:-2]).split(b"\n")
            yield from map(json.loads, lines)
        assert not rest


def answered(line: dict[str, Any], number: int) -> bytes:
    if "bad" in line:
        return json.dumps({"error": {"code": "bad-request", "detail": "x", "line": number}}).encode() + b"\n"
    labels = [{"label": line["text"], "id": 1, "score": 0.5}]
    return json.dumps({"labels": labels, "prediction_id": "p", "exact": True}).encode() + b"\n"


def answers(n_lines: int | None = None, then: bytes = b"") -> Script:
    """Answer each line as it comes, so many of them; then send this, or the end of the answers."""

    def script(connection: socket.socket) -> None:
        connection.sendall(GO_ON + HEAD)
        lines = lines_from(connection)
        for number, line in enumerate(lines, 1):
            connection.sendall(chunk(answered(line, number)))
            if number == n_lines:
                connection.sendall(then)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
                return
        connection.sendall(END)

    return script


def server_of(*scripts: Script) -> ScriptedServer:
    return ScriptedServer(scripts, reads_body=False)


def texts(n: int) -> list[dict[str, Any]]:
    return [{"text": f"t{i}"} if i % 3 != 1 else {"text": "", "bad": 1} for i in range(n)]


def check(found: list[xylem.Prediction | xylem.LineError], n: int) -> None:
    assert len(found) == n
    for i, item in enumerate(found):
        if i % 3 == 1:
            assert item == xylem.LineError(i + 1, "bad-request", "x")
        else:
            assert isinstance(item, xylem.Prediction)
            assert item.labels == [xylem.Label(f"t{i}", 1, 0.5)]


def run_here(url: str, instances: Any, **options: Any) -> list[xylem.Prediction | xylem.LineError]:
    with xylem.Client(url, retries=QUICK, **options) as client:
        return list(client.batch("m", instances, alias="stable"))


def run_async(url: str, instances: Any, **options: Any) -> list[xylem.Prediction | xylem.LineError]:
    async def each() -> AsyncIterator[Any]:
        for instance in instances:
            yield instance

    async def main() -> list[xylem.Prediction | xylem.LineError]:
        async with xylem.AsyncClient(url, retries=QUICK, **options) as client:
            return [item async for item in client.batch("m", each(), alias="stable")]

    return asyncio.run(main())


both = pytest.mark.parametrize("run", [run_here, run_async])
Run = Callable[..., list[xylem.Prediction | xylem.LineError]]


@both
def test_a_connection_that_breaks_is_taken_up_again_without_a_gap(run: Run) -> None:
    scripts = [reset, answers(4), answer(503), answers(3), answers(1, chunk(b'{"labels":[')), answers()]
    with server_of(*scripts) as server:
        check(run(server.url, texts(30)), 30)
        paths = [seen.line.split()[1] for seen in server.requests]
    assert paths == ["/v1/models/m/aliases/stable/batch"] * 2 + ["/v1/models/m/versions/7/batch"] * 4


@both
def test_a_fault_that_the_stream_tells_is_taken_up_again(run: Run) -> None:
    fault = chunk(b'{"error":{"code":"body-timeout","detail":"too slow"}}\n') + END
    with server_of(answers(4, fault), answers()) as server:
        check(run(server.url, texts(9)), 9)


@both
def test_it_ends_where_nothing_comes_of_it(run: Run) -> None:
    fault = chunk(b'{"error":{"code":"overloaded","detail":"too much"}}\n') + END
    with server_of(*[raw(GO_ON + HEAD + fault)] * 9) as server:
        with pytest.raises(xylem.ProblemError) as caught:
            run(server.url, texts(5))
        assert (caught.value.status, caught.value.code) == (200, "overloaded")
        assert len(server.requests) == 1 + QUICK.times
    with server_of(*[answer(404, b'{"code":"model-not-found","detail":"x"}')] * 9) as server:
        with pytest.raises(xylem.ProblemError) as refused:
            run(server.url, texts(5))
        assert refused.value.code == "model-not-found"
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize(
    "data",
    [
        chunk(b'{"labels":[],"prediction_id":"p","exact":true}\n' * 6) + END,
        chunk(b"nonsense\n") + END,
        chunk(b'{"labels":7}\n') + END,
        chunk(b"x" * 2000),
    ],
)
def test_answers_that_are_none_are_refused(run: Run, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex, "LINE_BYTES_MAX", 1000)
    with server_of(raw(GO_ON + HEAD + data)) as server:
        with pytest.raises(xylem.BadAnswer, match="expected"):
            run(server.url, texts(5))
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize("data", [b"", b"x\r\n\r\n", GO_ON, GO_ON + HEAD + END, GO_ON + HEAD + b"zz\r\n"])
def test_connections_that_bring_nothing_are_given_up(run: Run, data: bytes) -> None:
    with server_of(*[raw(data)] * 9) as server:
        with pytest.raises(xylem.ConnectionFailed):
            run(server.url, texts(5))
        assert len(server.requests) == 1 + QUICK.times


@both
def test_an_answer_that_does_not_come_is_given_up(run: Run) -> None:
    ended = threading.Event()

    def silent(connection: socket.socket) -> None:
        connection.sendall(GO_ON + HEAD)
        ended.wait(30)

    with server_of(silent) as server:
        try:
            with pytest.raises(xylem.ConnectionFailed):
                run(server.url, texts(5), timeout=0.2)
        finally:
            ended.set()


@both
def test_a_source_that_is_slow_is_not_a_fault(run: Run) -> None:
    def slow() -> Iterator[dict[str, Any]]:
        for i, instance in enumerate(texts(4)):
            time.sleep(3 * (i == 2))
            yield instance

    with server_of(answers()) as server:
        check(run(server.url, slow(), timeout=2), 4)
        assert len(server.requests) == 1


@both
def test_what_the_source_raises_comes_after_the_answers_before_it(run: Run) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from texts(1)
        raise KeyError("mine")

    with server_of(answers()) as server, pytest.raises(KeyError, match="mine"):
        run(server.url, broken())
    with server_of() as server, pytest.raises(TypeError, match="a text or a mapping"):
        run(server.url, [7])


def test_lines_that_wait_for_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "LINES_MAX", 10)
    monkeypatch.setattr("xylem.background._LINES_AHEAD", 10)
    asked, may_answer = 0, threading.Event()

    def source() -> Iterator[dict[str, Any]]:
        nonlocal asked
        for instance in texts(300):
            asked += 1
            yield instance

    def late(connection: socket.socket) -> None:
        connection.sendall(GO_ON + HEAD)
        may_answer.wait(30)
        for number, line in enumerate(lines_from(connection), 1):
            connection.sendall(chunk(answered(line, number)))
        connection.sendall(END)

    with server_of(late) as server, xylem.Client(server.url, retries=QUICK) as client:
        timer = threading.Timer(0.5, may_answer.set)
        timer.start()
        found = client.batch("m", source())
        first = next(found)
        assert asked < 100
        check([first, *found], 300)
        timer.join()


def test_a_batch_that_is_left_ends_its_threads_and_its_connection() -> None:
    gone = threading.Event()

    def watched(connection: socket.socket) -> None:
        connection.sendall(GO_ON + HEAD)
        try:
            for number, line in enumerate(lines_from(connection), 1):
                connection.sendall(chunk(answered(line, number)))
        except (OSError, ValueError):
            gone.set()

    before = threading.active_count()
    with server_of(watched) as server, xylem.Client(server.url) as client:
        found = client.batch("m", ({"text": "x"} for _ in iter(int, 1)))
        next(found)
        found.close()
        assert gone.wait(30)
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
