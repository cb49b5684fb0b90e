"""A request and its answer on their way: bytes counted at the limit,
heads completed, connections closed.
"""

import asyncio
import contextlib
import logging
import re
from typing import Any

import pytest
from tests.helpers.wires import Wire
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from xylem.api.door.admission import BODY_IS_RECEIVED, Admission
from xylem.api.door.joined_writes import JoinedWrites
from xylem.api.door.problems import BodyTimeout, BodyTooLarge
from xylem.api.door.request_scope import UNREAD_BYTES_MAX, BodyGuard
from xylem.base.errors import Overloaded
from xylem.base.settings import Limits

Header = tuple[bytes, bytes]
STREAM, NONE = "/stream", re.compile("none")
CHUNKED = (b"transfer-encoding", b"chunked")


def length(n: int) -> Header:
    return (b"content-length", b"%d" % n)


def exchange(wire: Wire, header: Header, most: int | None = 10, closing: bool = False) -> BodyGuard:
    path = STREAM if most is None else "/"
    fixed = {"path": path, "http_version": "1.1", "request_id": "the-id"}
    admission = Admission(
        Limits(body_bytes_max=most or 1), re.compile(STREAM), NONE, lambda: closing
    )
    return BodyGuard(
        {"headers": [(b"host", b"x"), header], **fixed}, wire.receive, wire.send, admission
    )


async def answer(of: BodyGuard, status: int) -> None:
    await of.send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"x")]}
    )
    await of.send({"type": "http.response.body", "body": b"answer"})


@pytest.mark.parametrize("header", [length(10), CHUNKED], ids=["declared", "received"])
@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False), (None, True)])
async def test_bytes_at_the_limit_and_one_more(
    header: Header, most: int | None, fits: bool
) -> None:
    found = exchange(Wire(b"abcde", b"fghij"), header, most)
    with contextlib.nullcontext() if fits else pytest.raises(BodyTooLarge, match="at most 9 bytes"):
        found.check_head()
        assert header == CHUNKED or fits
        assert [(await found.receive())["body"] for _ in range(2)] == [b"abcde", b"fghij"]


@pytest.mark.parametrize("closing", [False, True])
async def test_every_answer_has_the_requests_id_and_the_last_closes(closing: bool) -> None:
    wire = Wire(b"0123456789")
    found = exchange(wire, length(10), closing=closing)
    await found.receive()
    await answer(found, 200)
    assert found.status == 200
    assert wire.headers[b"x-request-id"] == b"the-id"
    assert wire.headers[b"content-type"] == b"x"
    assert (b"connection" in wire.headers) == closing
    assert [m["type"] for m in wire.sent] == ["http.response.start", "http.response.body"]


@pytest.mark.parametrize(
    ("header", "status", "reads_on"),
    [
        (length(UNREAD_BYTES_MAX + 1), 413, True),
        (length(UNREAD_BYTES_MAX + 1), 200, False),
        (length(UNREAD_BYTES_MAX), 413, False),
        (length(UNREAD_BYTES_MAX), 408, True),
        (CHUNKED, 413, True),
        (CHUNKED, 200, False),
        (length(0), 400, False),
    ],
)
async def test_a_refusal_of_an_unread_body_reads_on(
    header: Header, status: int, reads_on: bool
) -> None:
    """And closes the connection."""
    wire = Wire(*[b"x" * 1000] * 5)
    await answer(exchange(wire, header, None), status)
    assert (wire.headers.get(b"connection") == b"close") == reads_on
    assert len(wire.messages) == (0 if reads_on else 5)
    assert (wire.body, wire.is_ended) == (b"answer", True)


@pytest.mark.parametrize("n_others", [0, 1])
async def test_bodies_are_held_up_to_a_budget_until_their_requests_end(n_others: int) -> None:
    """A body that has come whole is held beside one that comes, which goes when there
    is no room.
    """
    admission = Admission(Limits(bodies_bytes_max=10), re.compile("none"), NONE, lambda: False)

    def guard(*parts: bytes, is_here: bool = False) -> BodyGuard:
        fixed = {
            "path": "/",
            "http_version": "1.1",
            "extensions": {BODY_IS_RECEIVED: {}} if is_here else {},
        }
        wire = Wire(*parts, ends=is_here)
        return BodyGuard({"headers": [CHUNKED], **fixed}, wire.receive, wire.send, admission)

    others = [guard(b"01234") for _ in range(n_others)]
    waiting = []
    for each in others:
        await each.receive()
        waiting.append(asyncio.create_task(each.receive()))
    await asyncio.sleep(0)
    assert (admission.bodies.n_bytes, len(admission.bodies.waiting)) == (5 * n_others, n_others)
    last = guard(b"012345678", is_here=True)
    await last.receive()
    for task in waiting:
        with pytest.raises(Overloaded, match="slowest"):
            await task
    assert (admission.bodies.n_bytes, len(admission.bodies.waiting)) == (9, 0)
    with pytest.raises(Overloaded, match=r"at most 10 bytes \(limit bodies_bytes_max\)"):
        await guard(b"01", is_here=True).receive()
    admission.bodies.release(last.sender)
    await guard(b"01", is_here=True).receive()
    assert admission.bodies.n_bytes == 2


async def test_a_body_that_comes_whole_after_a_wait_ends_the_wait() -> None:
    """Its last part is there before the app asks for it."""
    admission = Admission(Limits(), re.compile("none"), NONE, lambda: False)
    wire = Wire(b"0", b"1")
    scope: dict[str, Any] = {"headers": [CHUNKED], "path": "/", "http_version": "1.1"}
    guard = BodyGuard(scope, wire.receive, wire.send, admission)
    await guard.receive()
    assert list(admission.bodies.waiting) == [guard.sender]
    scope["extensions"] = {BODY_IS_RECEIVED: {}}
    await guard.receive()
    assert (list(admission.bodies.waiting), admission.bodies.n_bytes) == ([], 2)


async def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    admission = Admission(Limits(body_seconds_max=0.01), re.compile("none"), NONE, lambda: False)
    wire = Wire(b"0", ends=False)
    scope = {"headers": [CHUNKED], "path": "/", "http_version": "1.1"}
    guard = BodyGuard(scope, wire.receive, wire.send, admission)
    await guard.receive()
    with pytest.raises(BodyTimeout, match=r"within 0\.01 seconds"):
        await guard.receive()


async def test_a_body_that_never_ends_is_not_read_for_ever() -> None:
    wire = Wire(b"x", ends=False)
    await answer(exchange(wire, CHUNKED, None), 413)
    assert wire.is_ended


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
    bodies: list[bytes],
    n_bytes: int | None = None,
    *,
    method: str = "GET",
    http_version: str = "1.1",
    keep_alive: bool = True,
    is_awaited: bool = False,
    reads: bool = False,
) -> list[bytes]:
    """What reaches the socket of an answer whose body comes in these pieces.

    n_bytes     the length that its head tells; None: none
    is_awaited  the client sends its body after 100 Continue
    reads       the app reads some of it before it answers
    """
    transport = Recorder()
    headers = [] if n_bytes is None else [length(n_bytes)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reads:
            await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for i, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": i < len(bodies)})

    async def main() -> None:
        asked = [] if keep_alive else [(b"connection", b"close")]
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
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


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
    ids=[
        "empty",
        "at once",
        "the rest as it comes",
        "of HEAD",
        "of HTTP/1.0",
        "not read, and not asked for",
    ],
)
def test_a_body_that_follows_at_once_goes_with_its_head(
    bodies: list[bytes], options: dict[str, Any], calls: list[bytes]
) -> None:
    assert written(bodies, len(b"".join(bodies)), **options) == calls


def test_the_head_of_a_stream_waits_for_nothing() -> None:
    head, *chunks = written([b"a", b""])
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert chunks == [b"1\r\na\r\n", b"0\r\n\r\n"]


def test_an_answer_without_its_body_leaves_before_the_close() -> None:
    assert written([], 4) == [HEAD % 4, b"closed"]
    assert written([b"body"], 4, keep_alive=False)[1:] == [b"closed"]


def test_a_client_is_told_to_continue_before_a_stream_begins() -> None:
    first, *_ = written([b"a", b""], method="POST", is_awaited=True)
    assert first.startswith(CONTINUE + b"HTTP/1.1 200")
    told, head, *_ = written([b"a", b""], method="POST", is_awaited=True, reads=True)
    assert (told, head[:12]) == (CONTINUE, b"HTTP/1.1 200")


def test_a_stream_is_not_framed_for_a_client_without_chunks() -> None:
    pieces = [b"a" * 300, b"", b"0\r\n\r\n", b"z"]
    head, *rest = written(pieces, method="POST", keep_alive=False, http_version="1.0")
    assert head == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    assert (b"".join(rest[:-1]), rest[-1]) == (b"".join(pieces), b"closed")
