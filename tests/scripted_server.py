"""A server on loopback that answers each connection as its script
says: for what a real one does rarely.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

Script = Callable[[socket.socket], None]
"""Answers a request that has been read, if it was to be; the connection is closed then."""


class SeenRequest(NamedTuple):
    """A request that came: its head, with names in lower case, and its body."""

    line: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, body: bytes = b"{}", **headers: str) -> Script:
    """A whole answer; underscores in names of headers are hyphens."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""]).encode()
    return raw(head + body)


def raw(data: bytes) -> Script:
    """These bytes."""
    return lambda connection: connection.sendall(data)


def reset(connection: socket.socket) -> None:
    """No answer: the connection is reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class ScriptedServer:
    """Serves one connection after the other, one request each;
    after the last script it closes them.
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
