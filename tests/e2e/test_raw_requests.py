"""Bytes on sockets: limits of heads and bodies, chunks, pipelined and damaged requests."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers.raw_requests import (
    CLOSE,
    DATA,
    PREDICT,
    RAW,
    chunked,
    connected,
    declared,
    request_bytes,
    status_of,
)
from tests.helpers.servers import ServerProcess, answer_on


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    limits = {"body_bytes_max": 20_000, "body_seconds_max": 1.0, "keep_alive_seconds": 1}
    with ServerProcess(shared_store, **limits) as process:
        yield process
        assert process.terminate() == 0, process.log()


CHUNKED = chunked(b"{}", end=b"")


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"GET /livez HTTP/1.1\r\na: ", b"x" * 65536),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000),
        (CHUNKED + b"0\r\na: ", b"x" * 65536),
        (CHUNKED + b"5;", b"x" * 65536),
        (b"", b"\r\n" * 32768),
        (
            b"GET /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"10000\r\n" + b"x" * 65536 + b"\r\n",
        ),
    ],
    ids=["head", "trailers", "trailer", "extension", "empty", "unwanted"],
)
def test_what_is_no_body_and_never_ends_is_cut_off(
    server: ServerProcess, begin: bytes, part: bytes
) -> None:
    before, sent = server.memory_bytes(), 0
    with connected(server) as connection:
        connection.sendall(begin)
        with pytest.raises(OSError):
            while sent < 100 << 20:
                sent += connection.send(part)
    assert sent < 10 << 20
    assert server.memory_bytes() - before < 20 << 20


def padded(n: int) -> bytes:
    """A good request whose head has so many bytes, of which names and values count."""
    fixed = "host x content-type application/json content-length connection close a".replace(
        " ", ""
    )
    n_fixed = len(PREDICT) + len(fixed) + len(str(len(DATA)))
    return declared(DATA, CLOSE, b"a: " + b"x" * (n - n_fixed))


LONG = b'{"instances": []'.ljust(19_999) + b"}"
HUGE = request_bytes(b"", b"content-length: 1000000000000", b"expect: 100-continue")
PIECES = [LONG[i : i + 999] for i in range(0, 20_000, 999)]


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        pytest.param(padded(65_536), 200, b"predictions", id="a head at the limit"),
        pytest.param(padded(65_537), 431, b"head-too-long", id="a head one byte longer"),
        pytest.param(declared(LONG, CLOSE), 422, b"bad-request", id="a body at the limit"),
        pytest.param(
            declared(LONG + b" ", CLOSE), 413, b"body-too-large", id="a body one byte longer"
        ),
        pytest.param(chunked(*PIECES), 422, b"bad-request", id="chunks at the limit"),
        pytest.param(chunked(*PIECES, b" "), 413, b"body-too-large", id="chunks one byte longer"),
        pytest.param(b"", 0, b"", id="nothing comes"),
        pytest.param(b"GET", 0, b"", id="no head comes"),
        pytest.param(b"GET /livez HTTP/1.1\r\nhost: x\r\n", 0, b"", id="no end of a head comes"),
        pytest.param(
            request_bytes(b"{", b"content-length: 100"), 408, b"body-timeout", id="no body comes"
        ),
        pytest.param(HUGE, 413, CLOSE, id="a huge body before it is sent"),
    ],
)
def test_limits_of_heads_and_bodies(
    server: ServerProcess, sent: bytes, status: int, says: bytes
) -> None:
    received = server.raw(sent)
    assert (status_of(received), says in received) == (status, True), received


def test_trailers_are_taken_and_forgotten(server: ServerProcess) -> None:
    received = server.raw(chunked(DATA, end=b"0\r\nx-request-id: trailed\r\n\r\n"))
    assert (status_of(received), b"trailed" in received) == (200, False)


def batch_bytes(version: bytes, *headers: bytes) -> bytes:
    """A batch of one line."""
    line = json.dumps(RAW).encode() + b"\n"
    lines = (b"content-type: application/x-ndjson", b"content-length: %d" % len(line), *headers)
    head = b"POST /v1/models/raw/batch?top_r=1 HTTP/%s\r\nhost: x\r\n" % version
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + line


def test_a_batch_that_waits_for_100_continue_is_asked_for(server: ServerProcess) -> None:
    head, _, line = batch_bytes(b"1.1", b"expect: 100-continue").partition(b"\r\n\r\n")
    with connected(server) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(line)
        status, answer = answer_on(connection)
        assert (status, len(answer["labels"])) == (200, 1)


def test_a_batch_over_http_1_0_ends_with_its_connection(server: ServerProcess) -> None:
    head, _, body = server.raw(batch_bytes(b"1.0")).partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding" not in head.lower()
    (line,) = body.splitlines()
    assert len(json.loads(line)["labels"]) == 1


def test_an_endless_chunked_body_is_cut_off_with_an_answer(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(request_bytes(b"", b"transfer-encoding: chunked"))
        chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        for _ in range(10):
            connection.sendall(chunk)
        status, answer = answer_on(connection)
        assert (status, answer["code"]) == (413, "body-too-large")
        with pytest.raises(OSError):
            while True:
                connection.sendall(chunk)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /%ff%00%c3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        request_bytes(b"", b"content-length: -1"),
        request_bytes(b"{}", b"content-length: 1", b"content-length: 2"),
        request_bytes(b"", b"content-length: 99999999999999999999999"),
        request_bytes(b"zz\r\n", b"transfer-encoding: chunked"),
        request_bytes(b"0\r\n\r\n", b"transfer-encoding: chunked", b"content-length: 3"),
        request_bytes(b"{}{}GET / HTTP/1.1\r\n\r\n", b"content-length: 2", b"connection: close"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: \xff\xfe\r\nconnection: close\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade\r\nupgrade: "
        b"websocket\r\n\r\n",
    ],
    ids=range(14),
)
def test_bytes_that_are_not_a_good_request(server: ServerProcess, data: bytes) -> None:
    received = server.raw(data)
    assert status_of(received) < 500, received
    assert server.status("/livez") == 200


def test_pipelined_requests_are_answered_in_order(server: ServerProcess) -> None:
    one = b"GET /v1/models/%s HTTP/1.1\r\nhost: x\r\n%s\r\n"
    received = server.raw(
        one % (b"raw", b"") + one % (b"text", b"") + one % (b"none", CLOSE + b"\r\n")
    )
    assert [received.count(text) for text in (b"HTTP/1.1 200", b"HTTP/1.1 404")] == [2, 1]
    assert received.index(b'"name":"raw"') < received.index(b'"name":"text"')


def test_requests_with_mutated_bytes(server: ServerProcess) -> None:
    """R6 on raw sockets: no 5xx, no hang, and the server lives on."""

    def mutated(seed: int) -> bytes:
        chooser = random.Random(seed)
        request = bytearray(declared(DATA, CLOSE))
        for _ in range(chooser.randint(1, 5)):
            i = chooser.randrange(len(request))
            change = chooser.choice(
                [[], [chooser.randrange(256)], list(b"\r\n\r\n"), [0x20], [0x25, 0x66]]
            )
            request[i : i + chooser.randint(0, 2)] = bytes(change)
        return bytes(request)

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda seed: status_of(server.raw(mutated(seed))), range(300)))
    assert max(statuses) < 500
    assert {200, 400} <= set(statuses)
    assert server.status("/livez") == 200
