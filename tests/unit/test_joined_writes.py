"""An answer's head and body leave in one write where the body follows at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.api.protocol import JoinedWrites


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
    headers: list[tuple[bytes, bytes]], bodies: list[bytes], method: str = "GET", keep_alive: bool = True
) -> list[bytes]:
    """What reaches the socket of an answer with these headers, its body in these pieces."""
    transport = Recorder()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for i, body in enumerate(bodies):
            more = i + 1 < len(bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def main() -> None:
        cycle = RequestResponseCycle(
            scope={"method": method},  # type: ignore[typeddict-item]
            transport=transport,
            flow=FlowControl(transport),
            logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"),
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
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
