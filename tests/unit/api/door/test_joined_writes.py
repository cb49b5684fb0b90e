"""An answer's head and body leave in one write where the body follows at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.api.door.joined_writes import JoinedWrites


class Recorder(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def close(self) -> None:
        self.calls.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.calls


def answer(
    headers: list[tuple[bytes, bytes]],
    bodies: list[bytes],
    method: str = "GET",
    keep_alive: bool = True,
    *,
    http_version: str = "1.1",
    is_awaited: bool = False,
    reads: bool = False,
) -> list[bytes]:
    """What reaches the socket of an answer with these headers, its body in these pieces.

    is_awaited  the client sends its body after 100 Continue
    reads       the app reads some of it before it answers
    """
    transport = Recorder()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reads:
            await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for i, body in enumerate(bodies):
            more = i + 1 < len(bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})

    asked = [] if keep_alive else [(b"connection", b"close")]

    async def main() -> None:
        event = asyncio.Event()
        event.set()
        cycle = RequestResponseCycle(
            scope={"method": method, "http_version": http_version, "headers": asked},  # type: ignore[typeddict-item]
            transport=transport,
            flow=FlowControl(transport),
            logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"),
            access_log=False,
            default_headers=[],
            message_event=event,
            expect_100_continue=is_awaited,
            keep_alive=keep_alive,
            on_response=lambda: None,
        )
        cycle.transport = JoinedWrites(cycle)  # type: ignore[assignment]
        await cycle.run_asgi(app)  # type: ignore[arg-type]

    asyncio.run(main())
    return transport.calls


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


def length(n: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % n)]


@pytest.mark.parametrize("body", [b"", b"body"])
def test_a_body_that_follows_at_once_goes_with_its_head(body: bytes) -> None:
    assert answer(length(len(body)), [body]) == [HEAD % len(body) + body]


def test_the_rest_of_a_body_goes_as_it_comes() -> None:
    assert answer(length(4), [b"bo", b"dy"]) == [HEAD % 4 + b"bo", b"dy"]


def test_the_head_of_a_stream_waits_for_nothing() -> None:
    head, *chunks = answer([], [b"a", b""])
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert chunks == [b"1\r\na\r\n", b"0\r\n\r\n"]


def test_an_answer_without_its_body_leaves_before_the_connection_closes() -> None:
    assert answer(length(4), []) == [HEAD % 4, b"closed"]
    assert answer(length(4), [b"body"], keep_alive=False)[1:] == [b"closed"]


def test_the_answer_to_head_has_no_body() -> None:
    assert answer(length(4), [b"body"], method="HEAD") == [HEAD % 4]


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_client_that_waits_to_send_its_body_is_told_to_before_a_stream_begins() -> None:
    first, *_ = answer([], [b"a", b""], method="POST", is_awaited=True)
    assert first.startswith(CONTINUE + b"HTTP/1.1 200")
    told, head, *_ = answer([], [b"a", b""], method="POST", is_awaited=True, reads=True)
    assert (told, head[:12]) == (CONTINUE, b"HTTP/1.1 200")


def test_a_client_that_waits_is_told_to_send_nothing_that_is_not_read() -> None:
    assert answer(length(2), [b"no"], method="POST", is_awaited=True) == [HEAD % 2 + b"no"]


def test_a_stream_is_not_framed_for_a_client_that_does_not_know_chunks() -> None:
    pieces = [b"a" * 300, b"", b"0\r\n\r\n", b"z"]
    head, *rest = answer([], pieces, method="POST", keep_alive=False, http_version="1.0")
    assert head == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    assert (b"".join(rest[:-1]), rest[-1]) == (b"".join(pieces), b"closed")
    assert answer(length(4), [b"body"], http_version="1.0") == [HEAD % 4 + b"body"]
