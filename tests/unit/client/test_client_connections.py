"""Connections of the clients: used again, bounded, closed when
idle; and streams of events over them.
"""

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.helpers.scripted_clients import chunk, scripted
from tests.helpers.scripted_server import answer, raw, reset

import xylem
from xylem.client import events
from xylem.client.events import EventParser

N_CALLS = 200


class EchoServer(ThreadingHTTPServer):
    """Answers a predict request by the text that it has as label, on connections that are kept.

    hold     a text "held" is answered only once this is set
    opened   how many connections were ever made; at_once: the most that were asked at the same time
    """

    daemon_threads, request_queue_size = True, 256

    def __init__(self) -> None:
        self.opened = self.at_once = self.asked = 0
        self.closes_after_answer = False
        self.hold, self.lock = threading.Event(), threading.Lock()
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.opened += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client has left: nothing is told."""


class EchoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EchoServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = asked["instances"][0]["text"]
        with self.server.lock:
            self.server.asked += 1
            self.server.at_once = max(self.server.at_once, self.server.asked)
        if text == "held":
            self.server.hold.wait()
        time.sleep(0.01)
        with self.server.lock:
            self.server.asked -= 1
        prediction = {
            "labels": [{"label": text, "id": 1, "score": 0.5}],
            "prediction_id": "p",
            "exact": True,
        }
        said = {"model": "m", "version": 1, "threshold_epoch": None, "predictions": [prediction]}
        body = json.dumps(said).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        self.close_connection = self.server.closes_after_answer


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer() as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,))
        thread.start()
        yield echo
        echo.hold.set()
        echo.shutdown()
        thread.join()


def label_of(answer: xylem.Predictions) -> str:
    return answer[0].labels[0].label


async def test_many_calls_at_once_take_turns_on_kept_connections(server: EchoServer) -> None:
    async with xylem.AsyncClient(server.url, retries=0) as client:
        for _ in range(2):
            calls = (client.predict("m", [f"t{i}"]) for i in range(N_CALLS))
            found = await asyncio.gather(*calls)
            assert [label_of(one) for one in found] == [f"t{i}" for i in range(N_CALLS)]
    assert server.opened == 64 and 1 < server.at_once <= 64


def test_threads_share_a_client(server: EchoServer) -> None:
    with xylem.Client(server.url, retries=0) as client, ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda i: label_of(client.predict("m", [f"t{i}"])), range(N_CALLS))
        assert list(found) == [f"t{i}" for i in range(N_CALLS)]
    assert server.opened <= 8


async def test_a_call_that_is_given_up_leaves_no_answer_to_another(server: EchoServer) -> None:
    async with xylem.AsyncClient(server.url, retries=0) as client:
        await client.predict("m", ["first"])
        for _ in range(70):  # more than may be under way: each lets go of its turn
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await client.predict("m", ["held"])
        server.hold.set()
        assert label_of(await client.predict("m", ["next"])) == "next"


def test_a_connection_that_the_server_closed_is_not_used(server: EchoServer) -> None:
    server.closes_after_answer = True
    with xylem.Client(server.url, retries=0) as client:
        for i in range(3):
            assert label_of(client.predict("m", [f"t{i}"])) == f"t{i}"
            threading.Event().wait(0.2)  # the end of the connection comes
    assert server.opened == 3


def test_a_client_that_was_closed_refuses_calls(server: EchoServer) -> None:
    client = xylem.Client(server.url)
    found = client.batch("m", ["a"])
    client.close()
    for call in (lambda: client.predict("m", ["a"]), lambda: next(found)):
        with pytest.raises(RuntimeError, match="found one that was closed"):
            call()
    client.close()


STREAM = (
    'event: progress\ndata: {"done": 1}\nid: 1\n\n'
    ": a comment\n\ndata: two\ndata:  lines\n\nevent: empty\n\nid: 7\ndata\n\n"
    "data: é\ndata:x\n\nunknown: 1\ndata: last\n\ndata: cut off"
).encode()
EVENTS = [
    ("progress", {"done": 1}, "1"),
    ("message", "two\n lines", "1"),
    *(("message", data, "7") for data in ("", "é\nx", "last")),
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
        assert parser.last_id == "7"


def test_an_event_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 100)
    assert EventParser().feed(b"data: " + b"x" * 94 + b"\n\n")[0].data == "x" * 94
    for long in (b"data: " + b"x" * 95, b"data: x\n" * 51):
        with pytest.raises(xylem.BadAnswer, match="at most 100 bytes"):
            EventParser().feed(long)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SCRIPTS = [
    raw(HEAD + chunk(b"id: 1\ndata: 1\n\nid: 2\ndata: 2\n\nid: 3\nda")),
    reset,
    answer(503),
    raw(HEAD + chunk(b"id: 3\ndata: 3\n\n") + b"0\r\n\r\n"),
]


def test_a_stream_that_breaks_goes_on_after_its_last_event() -> None:
    with scripted(*SCRIPTS) as (server, client):
        assert [event.data for event in client.events("j")] == [1, 2, 3]
        assert [seen.headers.get("last-event-id") for seen in server.requests] == [
            None,
            "2",
            "2",
            "2",
        ]
        assert server.requests[0].line == "GET /v1/admin/jobs/j/events HTTP/1.1"


def test_a_stream_that_is_refused_tells_why() -> None:
    problem = b'{"code":"job-not-found","detail":"expected a job"}'
    with scripted(answer(404, problem)) as (_, client), pytest.raises(xylem.ProblemError) as caught:
        list(client.events("j"))
    assert caught.value.code == "job-not-found"
