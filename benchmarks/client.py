"""A client for measurements: a few kept-alive connections, in a
closed or an open loop, on one thread.

It waits with select: timers of asyncio and uvloop wake at whole milliseconds, which is longer than
a request.
"""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import NamedTuple

import numpy as np

ANSWERED, REFUSED = frozenset({b"200"}), frozenset({b"503"})

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def post(path: str, body: bytes, media: str = "application/json", more: str = "") -> bytes:
    """Return the bytes of a request; `more` are further header lines, each with its end."""
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: {media}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class _Connections:
    """Connections to one port, each with at most one request under way."""

    def __init__(self, port: int, n: int, statuses: frozenset[bytes]) -> None:
        self._statuses = statuses
        self.status: dict[int, bytes] = {}
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
            if _is_whole(self._received[number], self._statuses):
                self.status[number] = self._received[number][9:12]
                done.append(number)
        self.idle += done
        return done

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()
        self._poll.close()


@contextmanager
def _connected(port: int, n: int, statuses: frozenset[bytes] = ANSWERED) -> Iterator[_Connections]:
    connections = _Connections(port, n, statuses)
    try:
        yield connections
    finally:
        connections.close()


def _is_whole(answer: bytes, statuses: frozenset[bytes]) -> bool:
    """Return whether an answer is there in full. Exits at another status, or without one."""
    if not answer or (len(answer) >= 12 and answer[9:12] not in statuses):
        raise SystemExit(f"expected an answer of {sorted(statuses)}, found {answer[:500]!r}")
    end = answer.find(_HEAD_END)
    if end < 0:
        return False
    at = answer.lower().index(_LENGTH) + len(_LENGTH)
    return len(answer) >= end + len(_HEAD_END) + int(answer[at : answer.index(b"\r", at)])


def closed_loop(
    port: int,
    requests: Sequence[bytes],
    seconds: float,
    connections: int = 4,
    statuses: frozenset[bytes] = ANSWERED,
) -> float:
    """Return requests a second when each connection sends the next as soon as it has an answer."""
    following = cycle(requests)
    with _connected(port, connections, statuses) as pool:
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


def one_by_one(
    port: int, requests: Sequence[bytes], seconds: float, statuses: frozenset[bytes] = ANSWERED
) -> float:
    """Return the median of the seconds that requests take one
    after the other on one kept connection.
    """
    following, latencies = cycle(requests), []
    with _connected(port, 1, statuses) as pool:
        until = time.perf_counter() + seconds
        while (sent := time.perf_counter()) < until:
            pool.send(next(following))
            while not pool.answered(1.0):
                pass
            latencies.append(time.perf_counter() - sent)
    return float(np.median(latencies))


class Overload(NamedTuple):
    """What became of requests at a rate: how many were due, sent,
    answered 200 and refused; p99 in seconds.

    What found no idle connection when it was due was not sent: its client gave up.
    """

    due: int
    sent: int
    answered: int
    refused: int
    p99: float


def overload(
    port: int,
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    connections: int,
    statuses: frozenset[bytes] = ANSWERED | REFUSED,
) -> Overload:
    """Ask `rate` times a second on so many connections, whether the server keeps up or not."""
    following, latencies = cycle(requests), []
    sent_at: dict[int, float] = {}
    n_due = n_sent = n_refused = 0
    with _connected(port, connections, statuses) as pool:
        start = time.perf_counter()
        while (now := time.perf_counter()) < start + seconds or pool.n_busy:
            n_new = int(rate * min(now - start, seconds)) - n_due
            n_due += n_new
            for _ in range(min(n_new, len(pool.idle))):
                sent_at[pool.send(next(following))] = time.perf_counter()
                n_sent += 1
            for number in pool.answered(0.001):
                if pool.status[number] not in ANSWERED:
                    n_refused += 1
                else:
                    latencies.append(time.perf_counter() - sent_at[number])
    return Overload(n_due, n_sent, len(latencies), n_refused, float(np.quantile(latencies, 0.99)))


def stream(port: int, path: str, lines: bytes) -> tuple[bytes, float]:
    """Send lines while reading the answer; return it, with its head, and the seconds
    that it took.
    """
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: "
        "application/x-ndjson\r\n"
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
