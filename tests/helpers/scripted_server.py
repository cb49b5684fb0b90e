"""A server on loopback that answers by scripts, for answers that a real server gives rarely."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

Script = Callable[[socket.socket], None]
"""A function that answers one request on a connection, which is closed afterwards."""


class SeenRequest(NamedTuple):
    """A received request: its first line, its headers by name in lower case, and its body."""

    line: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, body: bytes = b"{}", **headers: str) -> Script:
    """Return the script of a complete answer; underscores in names of headers become hyphens."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""]).encode()
    return raw(head + body)


def raw(data: bytes) -> Script:
    """Return a script that sends these bytes."""
    return lambda connection: connection.sendall(data)


def reset(connection: socket.socket) -> None:
    """Reset the connection without an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class ScriptedServer:
    """A server that serves one connection after the other, with one request and one script each.

    After the last script it closes connections without an answer.

    reads_body  whether the bodies of requests are read before the script answers
    """

    def __init__(self, scripts: Sequence[Script], *, reads_body: bool = True) -> None:
        self.requests: list[SeenRequest] = []
        self._scripts = list(scripts)
        self._reads_body = reads_body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(60)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as file:
            line = file.readline().decode().strip()
            headers: dict[str, str] = {}
            while head := file.readline().strip():
                name, _, value = head.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = file.read(int(headers.get("content-length", 0))) if self._reads_body else b""
            self.requests.append(SeenRequest(line, headers, body))
        if self._scripts:
            self._scripts.pop(0)(connection)
