"""A request and its answer on their way: bytes counted at the limit, heads completed, connections closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.api.door.problems import BodyTooLarge
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
    scope = {"headers": [(b"host", b"x"), *headers], "http_version": "1.1"}
    return BodyGuard(scope, wire.receive, wire.send, "the-id", most, closing)


async def answer(of: BodyGuard, status: int) -> None:
    await of.send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"x")]})
    await of.send({"type": "http.response.body", "body": b"answer"})


@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False), (None, True)])
def test_declared_bytes_at_the_limit_and_one_more(most: int | None, fits: bool) -> None:
    found = exchange(Wire(), (b"content-length", b"10"), most=most)
    if fits:
        found.check_head()
    else:
        with pytest.raises(BodyTooLarge, match="at most 9 bytes"):
            found.check_head()


@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False), (None, True)])
def test_received_bytes_at_the_limit_and_one_more(most: int | None, fits: bool) -> None:
    async def main() -> list[bytes]:
        wire = Wire(b"abcde", b"fghij")
        found = exchange(wire, (b"transfer-encoding", b"chunked"), most=most)
        found.check_head()
        return [(await found.receive())["body"] for _ in range(2)]

    if fits:
        assert asyncio.run(main()) == [b"abcde", b"fghij"]
    else:
        with pytest.raises(BodyTooLarge):
            asyncio.run(main())


@pytest.mark.parametrize("closing", [False, True])
def test_every_answer_has_the_requests_id_and_the_last_one_closes(closing: bool) -> None:
    wire = Wire(b"0123456789")
    found = exchange(wire, (b"content-length", b"10"), closing=closing)

    async def main() -> None:
        await found.receive()
        await answer(found, 200)

    asyncio.run(main())
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
