"""A request and its answer on their way: bytes counted at the limit, heads completed, connections closed."""

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.api.door.problems import BodyTooLarge
from service.api.door.protocol import JoinedWrites
from service.api.door.request_scope import UNREAD_BYTES_MAX, BodyGuard


class Wire:
    """The server's side: parts of a body to receive, and what is sent."""

    def __init__(self, *parts: bytes, ends: bool = True) -> None:
        self.messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        if self.messages and ends:
            self.messages[-1]["more_body"] = False
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> Any:
        if not self.messages:
            await asyncio.sleep(3600)
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def exchange(
    wire: Wire, *headers: tuple[bytes, bytes], most: int | None = 10, closing: bool = False
) -> BodyGuard:
    scope = {"headers": [(b"host", b"x"), *headers], "http_version": "1.1", "request_id": "the-id"}
    return BodyGuard(scope, wire.receive, wire.send, most, closing)


async def answer(of: BodyGuard, status: int) -> None:
    await of.send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"x")]})
    await of.send({"type": "http.response.body", "body": b"answer"})


@pytest.mark.parametrize(
    "header", [(b"content-length", b"10"), (b"transfer-encoding", b"chunked")], ids=["declared", "received"]
)
@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False), (None, True)])
async def test_bytes_at_the_limit_and_one_more(
    header: tuple[bytes, bytes], most: int | None, fits: bool
) -> None:
    found = exchange(Wire(b"abcde", b"fghij"), header, most=most)
    with contextlib.nullcontext() if fits else pytest.raises(BodyTooLarge, match="at most 9 bytes"):
        found.check_head()
        assert header[0] == b"transfer-encoding" or fits
        assert [(await found.receive())["body"] for _ in range(2)] == [b"abcde", b"fghij"]


@pytest.mark.parametrize("closing", [False, True])
async def test_every_answer_has_the_requests_id_and_the_last_one_closes(closing: bool) -> None:
    wire = Wire(b"0123456789")
    found = exchange(wire, (b"content-length", b"10"), closing=closing)
    await found.receive()
    await answer(found, 200)
    assert found.status == 200
    assert wire.headers[b"x-request-id"] == b"the-id"
    assert wire.headers[b"content-type"] == b"x"
    assert (b"connection" in wire.headers) == closing
    assert [m["type"] for m in wire.sent] == ["http.response.start", "http.response.body"]


LONG, SHORT = (b"%d" % n for n in (UNREAD_BYTES_MAX + 1, UNREAD_BYTES_MAX))


@pytest.mark.parametrize(
    ("header", "status", "reads_on"),
    [
        ((b"content-length", LONG), 413, True),
        ((b"content-length", LONG), 200, False),
        ((b"content-length", SHORT), 413, False),
        ((b"content-length", SHORT), 408, True),
        ((b"transfer-encoding", b"chunked"), 413, True),
        ((b"transfer-encoding", b"chunked"), 200, False),
        ((b"content-length", b"0"), 400, False),
    ],
)
def test_a_refusal_of_an_unread_body_reads_on_and_closes(
    header: tuple[bytes, bytes], status: int, reads_on: bool
) -> None:
    wire = Wire(*[b"x" * 1000] * 5)
    asyncio.run(answer(exchange(wire, header, most=None), status))
    assert (wire.headers.get(b"connection") == b"close") == reads_on
    assert len(wire.messages) == (0 if reads_on else 5)
    assert b"".join(m.get("body", b"") for m in wire.sent[1:]) == b"answer"
    assert not wire.sent[-1].get("more_body", False)


def test_a_body_that_never_ends_is_not_read_for_ever() -> None:
    wire = Wire(b"x", ends=False)
    asyncio.run(answer(exchange(wire, (b"transfer-encoding", b"chunked"), most=None), 413))
    assert not wire.sent[-1].get("more_body", False)


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


def written(
    headers: list[tuple[bytes, bytes]],
    bodies: list[bytes],
    method: str = "GET",
    keep_alive: bool = True,
    *,
    http_version: str = "1.1",
    is_awaited: bool = False,
    reads: bool = False,
) -> list[bytes]:
    """What reaches the socket of an written with these headers, its body in these pieces.

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


@pytest.mark.parametrize(
    ("bodies", "options", "calls"),
    [
        ([b""], {}, [HEAD % 0]),
        ([b"body"], {}, [HEAD % 4 + b"body"]),
        ([b"bo", b"dy"], {}, [HEAD % 4 + b"bo", b"dy"]),
        ([b"body"], {"method": "HEAD"}, [HEAD % 4]),
        ([b"body"], {"http_version": "1.0"}, [HEAD % 4 + b"body"]),
        ([b"body"], {"method": "POST", "is_awaited": True}, [HEAD % 4 + b"body"]),
    ],
    ids=["empty", "at once", "the rest as it comes", "of HEAD", "of HTTP/1.0", "not read, and not asked for"],
)
def test_a_body_that_follows_at_once_goes_with_its_head(
    bodies: list[bytes], options: dict[str, Any], calls: list[bytes]
) -> None:
    assert written(length(len(b"".join(bodies))), bodies, **options) == calls


def test_the_head_of_a_stream_waits_for_nothing() -> None:
    head, *chunks = written([], [b"a", b""])
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert chunks == [b"1\r\na\r\n", b"0\r\n\r\n"]


def test_an_answer_without_its_body_leaves_before_the_connection_closes() -> None:
    assert written(length(4), []) == [HEAD % 4, b"closed"]
    assert written(length(4), [b"body"], keep_alive=False)[1:] == [b"closed"]


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_client_that_waits_to_send_its_body_is_told_to_before_a_stream_begins() -> None:
    first, *_ = written([], [b"a", b""], method="POST", is_awaited=True)
    assert first.startswith(CONTINUE + b"HTTP/1.1 200")
    told, head, *_ = written([], [b"a", b""], method="POST", is_awaited=True, reads=True)
    assert (told, head[:12]) == (CONTINUE, b"HTTP/1.1 200")


def test_a_stream_is_not_framed_for_a_client_that_does_not_know_chunks() -> None:
    pieces = [b"a" * 300, b"", b"0\r\n\r\n", b"z"]
    head, *rest = written([], pieces, method="POST", keep_alive=False, http_version="1.0")
    assert head == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    assert (b"".join(rest[:-1]), rest[-1]) == (b"".join(pieces), b"closed")
