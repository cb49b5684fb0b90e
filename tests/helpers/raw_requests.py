"""Bytes of requests, and sockets to send them by."""

import json
import socket

from tests.helpers.servers import ServerProcess

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
BODY = {"instances": [RAW], "top_r": 3}
PREDICT = "/v1/models/raw/predict"


def request_bytes(body: bytes, *headers: bytes) -> bytes:
    lines = [
        b"POST %b HTTP/1.1" % PREDICT.encode(),
        b"host: x",
        b"content-type: application/json",
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])


def declared(body: bytes, *headers: bytes) -> bytes:
    """A request that says how long its body is."""
    return request_bytes(body, b"content-length: %d" % len(body), *headers)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A request whose body comes in chunks; the connection ends with it."""
    parts = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return request_bytes(parts + end, b"transfer-encoding: chunked", CLOSE)


CLOSE = b"connection: close"
DATA = json.dumps(BODY).encode()
GOOD = declared(DATA)


def connected(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


# --- raw sockets


def status_of(received: bytes) -> int:
    return int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else 0
