"""Server-sent events: the parser, and a stream that is opened again where it broke."""

from __future__ import annotations

import asyncio
import random

import pytest

import xylem
from tests.scripted_server import ScriptedServer, answer, raw, reset
from xylem import events
from xylem.events import EventParser

QUICK = xylem.Retries(times=3, first_seconds=0.001, seed=1)
STREAM = (
    '\ufeffevent: progress\ndata: {"done": 1}\nid: 1\n\n'
    ": a comment\n\ndata: two\ndata:  lines\n\nevent: empty\n\nretry: 50\nid: 7\r\ndata\r\n\r\n"
    "data: é\rdata:x\r\runknown: 1\ndata: last\n\ndata: cut off"
).encode()
EVENTS = [
    ("progress", {"done": 1}, "1"),
    ("message", "two\n lines", "1"),
    ("message", "", "7"),
    ("message", "é\nx", "7"),
    ("message", "last", "7"),
]


def test_events_are_the_same_in_whatever_pieces_they_come(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(200):
        parser, found, rest = EventParser(), [], STREAM
        while rest:
            n = draw.choice([1, 1, 2, 5, 50])
            found += parser.feed(rest[:n])
            rest = rest[n:]
        assert found == EVENTS
        assert (parser.last_id, parser.retry_ms) == ("7", 50)


def test_an_event_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 100)
    assert EventParser().feed(b"data: " + b"x" * 99 + b"\n\n")[0].data == "x" * 99
    for long in (b"data: " + b"x" * 100 + b"\n", b"x" * 101, b"data: x\n" * 51):
        with pytest.raises(xylem.BadAnswer, match="at most 100 bytes"):
            EventParser().feed(long)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


SCRIPTS = [
    raw(HEAD + chunk(b"id: 1\ndata: 1\n\nid: 2\ndata: 2\n\nid: 3\nda")),
    reset,
    answer(503),
    raw(HEAD + chunk(b"id: 3\ndata: 3\n\n") + b"0\r\n\r\n"),
]


def test_a_stream_that_breaks_goes_on_after_its_last_event() -> None:
    with ScriptedServer(SCRIPTS) as server, xylem.Client(server.url, retries=QUICK) as client:
        assert [event.data for event in client.events("j")] == [1, 2, 3]
        assert [seen.headers.get("last-event-id") for seen in server.requests] == [None, "2", "2", "2"]
        assert server.requests[0].line == "GET /v1/admin/jobs/j/events HTTP/1.1"


def test_the_asynchronous_client_reads_the_same_events() -> None:
    async def main(url: str) -> list[object]:
        async with xylem.AsyncClient(url, retries=QUICK) as client:
            return [event.data async for event in client.events("j")]

    with ScriptedServer(SCRIPTS) as server:
        assert asyncio.run(main(server.url)) == [1, 2, 3]


def test_a_stream_that_is_refused_tells_why() -> None:
    problem = b'{"code":"job-not-found","detail":"expected a job"}'
    with ScriptedServer([answer(404, problem)]) as server, xylem.Client(server.url, retries=QUICK) as client:
        with pytest.raises(xylem.ProblemError) as caught:
            list(client.events("j"))
        assert caught.value.code == "job-not-found"
