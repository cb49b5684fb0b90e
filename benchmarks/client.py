"""A client for measurements: a few kept-alive connections, in a closed or an open loop, on one thread.

It waits with select: timers of asyncio and uvloop wake at whole milliseconds, which is longer than a request.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import numpy as np

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def post(path: str, body: bytes, media: str = "application/json") -> bytes:
    """Return the bytes of a request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Connections:
    """Connections to one port, each with at most one request under way."""

    def __init__(self, port: int, n: int) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._received: dict[int, bytes] = {}
        for _ in range(n):
            opened = socket.create_connection(("127.0.0.1", port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[opened.fileno()] = opened
            self._poll.register(opened, select.EPOLLIN)
        self.idle = list(self._sockets)

    @property
    def n_busy(self) -> int:
        return len(self._sockets) - len(self.idle)

    def send(self, request: bytes) -> int:
        """Send a request on an idle connection; return the connection's number."""
        number = self.idle.pop()
        self._received[number] = b""
        self._sockets[number].sendall(request)
        return number

    def answered(self, seconds: float) -> list[int]:
        """Return the connections whose answers came, waiting so long for one at most."""
        done = []
        select.select([self._poll], [], [], seconds)  # in microseconds, unlike poll
        for number, _ in self._poll.poll(0):
            self._received[number] += self._sockets[number].recv(1 << 16)
            if _is_whole(self._received[number]):
                done.append(number)
        self.idle += done
        return done

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()
        self._poll.close()


@contextmanager
def _connected(port: int, n: int) -> Iterator[_Connections]:
    connections = _Connections(port, n)
    try:
        yield connections
    finally:
        connections.close()


def _is_whole(answer: bytes) -> bool:
    """Return whether an answer is there in full. Exits when it is not a 200, or the connection was closed."""
    if not answer or (len(answer) >= 12 and answer[9:12] != b"200"):
        raise SystemExit(f"expected an answer 200, found {answer[:500]!r}")
    end = answer.find(_HEAD_END)
    if end < 0:
        return False
    at = answer.lower().index(_LENGTH) + len(_LENGTH)
    return len(answer) >= end + len(_HEAD_END) + int(answer[at : answer.index(b"\r", at)])


def closed_loop(port: int, requests: Sequence[bytes], seconds: float, connections: int = 4) -> float:
    """Return requests a second when each connection sends the next as soon as it has an answer."""
    following = cycle(requests)
    with _connected(port, connections) as pool:
        while pool.idle:
            pool.send(next(following))
        start, n_done = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < seconds:
            for _ in pool.answered(1.0):
                n_done += 1
                pool.send(next(following))
    return n_done / elapsed


def open_loop(
    port: int, requests: Sequence[bytes], rate: float, seconds: float, connections: int = 16
) -> tuple[float, float]:
    """Return p50 and p99 in seconds of requests sent `rate` times a second, answered or not.

    A request that finds no idle connection waits, and is counted from when it was due.
    """
    following = cycle(requests)
    latencies: list[float] = []
    due_of: dict[int, float] = {}
    with _connected(port, connections) as pool:
        start = time.perf_counter()
        due = deque(start + i / rate for i in range(int(rate * seconds)))
        while due or pool.n_busy:
            while due and pool.idle and due[0] <= time.perf_counter():
                due_of[pool.send(next(following))] = due.popleft()
            wait = due[0] - time.perf_counter() if due and pool.idle else 1.0
            for number in pool.answered(max(0.0, wait)):
                latencies.append(time.perf_counter() - due_of[number])
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return float(p50), float(p99)


def stream(port: int, path: str, lines: bytes) -> tuple[bytes, float]:
    """Send lines while reading the answer; return it, with its head, and the seconds that it took."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n"
    )
    request = f"{head}content-length: {len(lines)}\r\n\r\n".encode() + lines
    with socket.create_connection(("127.0.0.1", port)) as opened:
        start = time.perf_counter()
        sender = threading.Thread(target=opened.sendall, args=(request,))
        sender.start()
        pieces = []
        while piece := opened.recv(1 << 18):
            pieces.append(piece)
        took = time.perf_counter() - start
        sender.join()
    return b"".join(pieces), took
