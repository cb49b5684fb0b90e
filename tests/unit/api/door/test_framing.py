"""Where one request ends and the next begins: the same whichever way
it goes, however its bytes are cut.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.conftest import settings_of

from xylem.api.app import create_app
from xylem.api.door.protocol import bounded_protocol

PATH = "/v1/models/raw/predict"
BODY = json.dumps(
    {"instances": [{"indices": [33, 1, 5], "values": [-2.0, 1.0, 0.5]}], "top_r": 2}
).encode()
HIDDEN = (
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"  # stands in a body, and must never be answered
)
LAST = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ENDS = range(-6, 7)  # places about the end of a head

UPGRADES = {
    "java": b"connection: Upgrade, HTTP2-Settings\r\n"
    b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    b"upgrade: h2c\r\nuser-agent: Java-http-client/17.0.15\r\n",
    "go": b"user-agent: Go-http-client/1.1\r\nupgrade: websocket\r\nconnection: "
    b"Upgrade\r\norigin: http://x\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: "
    b"13\r\naccept-encoding: gzip\r\n",
    "twice": b"upgrade: h2c\r\nupgrade: websocket\r\nconnection: upgrade, x\r\nconnection: "
    b"UPGRADE\r\n",
    "unknown": b"Upgrade: TLS/1.0, x/2\r\nConnection: upgrade\r\nx:\r\n",
}
"""What Java's HttpClient sends unless told to speak HTTP/1.1, clients
in Go for a web socket, and others.
"""

Answer = tuple[int, Any]  # status, and what of the body does not differ from request to request
Check = Callable[..., list[Answer]]


class _Client(asyncio.Protocol):
    """Keeps what comes until the connection ends, in whichever way."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()


async def _answers(port: int, parts: Iterable[bytes]) -> list[Answer]:
    transport, client = await asyncio.get_running_loop().create_connection(
        _Client, "127.0.0.1", port
    )
    for part in parts:
        transport.write(part)
        for _ in range(4):  # the server, in this loop, reads it meanwhile
            await asyncio.sleep(0)
    with contextlib.suppress(OSError):  # the server has ended it
        transport.write_eof()
    await asyncio.wait_for(client.ended.wait(), 60)
    return list(_divided(client.received))


def _divided(received: bytes) -> Iterator[Answer]:
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        n_bytes = int(dict(line.split(": ", 1) for line in lines)["content-length"])
        body = json.loads(rest[:n_bytes]) if n_bytes else {}
        for prediction in body.get("predictions", ()):
            del prediction["prediction_id"]
        body.pop("request_id", None)
        yield int(first.split()[1]), body
        received = rest[n_bytes:]


@contextlib.asynccontextmanager
async def _serving(store: Path) -> AsyncIterator[list[int]]:
    """The ports of one app behind two protocols: one answers whole
    requests from bytes, one by routes.
    """
    settings = settings_of(store, keep_alive_seconds=60)
    app = create_app(settings, opens_first=True)
    started = []
    for answerer, lifespan in ((app.state.whole_requests, "on"), (None, "off")):
        unparsed, on_abort = app.state.unparsed_requests, app.state.metrics.count_aborted
        protocol = bounded_protocol(
            settings.limits, app.state.slow_readers, unparsed, answerer, on_abort
        )
        config = uvicorn.Config(
            app, port=0, http=protocol, ws="none", lifespan=lifespan, log_config=None
        )  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        started.append((server, asyncio.create_task(server.serve())))
        while not server.started:
            await asyncio.sleep(0.01)
    yield [server.servers[0].sockets[0].getsockname()[1] for server, _ in started]
    for server, serving in reversed(started):
        server.should_exit = True
        await serving


@pytest.fixture(scope="module")
def check(shared_store: Path) -> Iterator[Check]:
    """What sends each part by itself, then one more request and the
    end, and returns what both answered.
    """
    with asyncio.Runner() as runner:
        serving = _serving(shared_store)
        ports = runner.run(serving.__aenter__())

        def check(*parts: bytes) -> list[Answer]:
            found, by_routes = (runner.run(_answers(port, (*parts, LAST))) for port in ports)
            assert found == by_routes, parts
            return found

        yield check
        runner.run(serving.__aexit__(None, None, None))


def message(body: bytes, extra: bytes = b"", n_bytes: int | None = None) -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: x\r\naccept: */*\r\naccept-encoding: identity\r\n%b"
    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (PATH.encode(), extra, len(body) if n_bytes is None else n_bytes) + body


def padded(body: bytes, n_bytes: int) -> bytes:
    return body.ljust(n_bytes)[:n_bytes]


def statuses(answers: list[Answer]) -> list[int]:
    return [status for status, _ in answers]


HEAD_BYTES = (
    len(message(b" " * 100)) - 100
)  # of all messages here whose bodies have three digits' bytes


@pytest.mark.parametrize("more", ENDS)
@pytest.mark.parametrize("body", [BODY, HIDDEN], ids=["right", "hidden"])
def test_a_body_as_long_as_its_head_however_it_is_cut(check: Check, body: bytes, more: int) -> None:
    """A head that is known, whose end has not come yet, is no request; nor is its body one."""
    whole = message(padded(body, HEAD_BYTES + more))
    status = 200 if body is BODY else 400
    for _ in range(2):
        assert statuses(check(whole)) == [status, 200]
    cuts = range(1, len(whole)) if more == -6 else [HEAD_BYTES + end for end in ENDS]
    for cut in cuts:
        assert statuses(check(whole[:cut], whole[cut:])) == [status, 200]
        assert statuses(check(whole + whole[:cut], whole[cut:] + whole)) == [status] * 3 + [200]


@pytest.mark.parametrize("first", ENDS)
def test_a_request_in_three_pieces(check: Check, first: int) -> None:
    whole = message(padded(HIDDEN, HEAD_BYTES - 6))
    check(whole)
    for second in range(first + 1, ENDS.stop + len(HIDDEN)):
        cuts = HEAD_BYTES + first, HEAD_BYTES + second
        parts = whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :]
        assert statuses(check(*parts)) == [400, 200]


@pytest.mark.parametrize("claimed", [*range(5), *(HEAD_BYTES + end for end in ENDS), 99_999])
def test_a_length_that_is_not_the_bodys(check: Check, claimed: int) -> None:
    for body in (BODY, HIDDEN, b""):
        check(message(padded(body, claimed)))  # the head is known
        lying = message(body, n_bytes=claimed)
        for cut in (len(lying) - len(body) + end for end in ENDS):
            check(lying[:cut], lying[cut:])
        check(lying)


@pytest.mark.parametrize("name", UPGRADES)
def test_an_upgrade_is_ignored_and_its_body_read(check: Check, name: str) -> None:
    expected, _ = check(message(BODY))
    assert expected[0] == 200
    for body, status in ((BODY, 200), (HIDDEN, 400)):
        whole = message(body, UPGRADES[name])
        for cut in range(0, len(whole), 1 if body is HIDDEN else 4):
            found = check(whole[:cut], whole[cut:])
            assert statuses(found) == [status, 200]
            assert body is HIDDEN or found[0] == expected
        several = [message(BODY), whole, whole, message(BODY)]
        for parts in (several, [b"".join(several)]):
            assert statuses(check(*parts)) == [200, status, status, 200, 200]


@pytest.mark.parametrize("name", UPGRADES)
def test_an_upgrade_is_ignored_with_chunks_and_without_a_body(check: Check, name: str) -> None:
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" % PATH.encode()
    head += UPGRADES[name]
    for body, status in ((BODY, 200), (HIDDEN, 400)):
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        whole = head + b"transfer-encoding: chunked\r\n\r\n" + chunks
        for cut in (0, *range(len(head), len(whole), 3)):
            assert statuses(check(whole[:cut], whole[cut:])) == [status, 200]
    empty = b"GET /v1/models/raw HTTP/1.1\r\nhost: x\r\n%b\r\n" % UPGRADES[name]
    assert statuses(check(empty * 3)) == [200] * 4


def test_heads_with_an_upgrade_are_held_to_the_same_rules(check: Check) -> None:
    upgrade = UPGRADES["java"]
    both = upgrade + b"transfer-encoding: chunked\r\n"
    for extra in (upgrade + b"content-length: 3\r\n", both, upgrade + b"a b: c\r\n"):
        assert statuses(check(message(BODY, extra) + HIDDEN))[0] == 400
    closing = message(HIDDEN, upgrade + b"connection: close\r\n")
    assert statuses(check(closing, BODY)) == [400]
    assert statuses(check(upgrade.join([b"GET /livez HTTP/1.0\r\n", b"\r\n"]))) == [200]


def test_a_tunnel_is_refused_and_what_follows_it_forgotten(check: Check) -> None:
    for target in (b"x:443", b"/livez"):
        (problem,) = check(b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % target + HIDDEN, HIDDEN)
        assert problem[0] == 400
        assert "CONNECT" in problem[1]["detail"]
