"""Clients that the server waits for, and the bytes that it holds for them: bodies and answers.

Each of the two kinds has a budget of bytes for all clients together. If there is no room, the
slowest client is given up, not the new one: so clients that hardly move any bytes cannot keep
others out.
"""

import asyncio
import contextlib
import fcntl
import logging
import termios
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from xylem.base import Limits, Overloaded, log

# Bytes that are added to what each client has moved: so new clients do not seem slow.
HEAD_START = 64 << 10


@dataclass(slots=True, eq=False)
class SlowClient:
    """A client that is sending a body, or reading an answer.

    n_moved      returns how many bytes the client has moved since the server waits for it
    give_up      called when there is no room for it
    is_answered  returns whether its request is in flight only because the client has not read the
                 answer
    n_held       bytes that the server holds for it
    """

    n_moved: Callable[[], int]
    give_up: Callable[[], None]
    is_answered: Callable[[], bool] = bool
    n_held: int = 0


class SlowClients:
    """The clients of one kind that the server waits for, and the bytes held. Event loop only.

    bytes_max  the most bytes that may be held; `limit` is the name of that limit
    n_bytes    the bytes that are held, also for clients that the server does not wait for any more
    waiting    since when the server waits for each client, by the event loop's time
    """

    def __init__(self, bytes_max: int, limit: str) -> None:
        self._bytes_max = bytes_max
        self._limit = limit
        self.n_bytes = 0
        self.waiting: dict[SlowClient, float] = {}

    def hold(self, client: SlowClient, n_bytes: int) -> None:
        """Hold `n_bytes` more for a client. While there is no room, give up the slowest client.

        Raises Overloaded if the slowest client is this one, or the server waits for no other.
        """
        while self.n_bytes + n_bytes > self._bytes_max:
            if not self.give_up_slowest(client):
                raise Overloaded(
                    f"expected at most {self._bytes_max} bytes (limit {self._limit}) of all "
                    "requests together, found more"
                )
        client.n_held += n_bytes
        self.n_bytes += n_bytes

    def give_up_slowest(self, client: SlowClient | None = None) -> bool:
        """Give up the client that moved the fewest bytes a second.

        Returns whether one was given up; not if it is `client`, or the server waits for none.
        """
        now = asyncio.get_running_loop().time()
        slowest = min(
            self.waiting,
            key=lambda waiting_client: (
                (waiting_client.n_moved() + HEAD_START) / (now - self.waiting[waiting_client] + 1)
            ),
            default=client,
        )
        if slowest is None or slowest is client:
            return False
        self.release(slowest)
        slowest.give_up()
        return True

    def release(self, client: SlowClient) -> None:
        """Stop waiting for a client, and hold nothing for it."""
        self.waiting.pop(client, None)
        self.n_bytes -= client.n_held
        client.n_held = 0


def unread_bytes(transport: asyncio.Transport) -> int:
    """Return how many written bytes the client has not received.

    They are in the transport's buffer or in the system's.
    """
    n_sent = array("i", [0])
    with contextlib.suppress(OSError):  # this kind of connection does not have the call
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, n_sent)
    return transport.get_write_buffer_size() + n_sent[0]


class UnreadAnswers:
    """Waits for a client to read `batch_bytes_min` bytes in `body_seconds_max` seconds.

    The client of a stream may also send as many bytes of its body instead: many read nothing before
    they have sent all. A client that does less is given up: its connection is aborted, not closed.
    A transport that is closed first writes what it holds: a client that never reads would keep the
    bytes, the descriptor and, at the end, the process.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        limits: Limits,
        answers: SlowClients,
        is_answered: Callable[[], bool],
        n_received: Callable[[], int],
        on_abort: Callable[[], None],
    ) -> None:
        """Begin to wait.

        answers      the clients that have not read their answers
        is_answered  returns whether the request that was begun last is answered
        n_received   returns the bytes of bodies that came after their answers had begun
        on_abort     called when the client is given up
        """
        loop = asyncio.get_running_loop()
        self._transport = transport
        self._limits = limits
        self._answers = answers
        self._n_received = n_received
        self._on_abort = on_abort
        self._client = SlowClient(
            lambda: self._client.n_held - transport.get_write_buffer_size(),
            self._give_up,
            is_answered,
        )
        self._wait()
        answers.waiting[self._client] = loop.time()
        try:
            answers.hold(self._client, transport.get_write_buffer_size())
        except Overloaded:  # not now: the transport, which is the caller, must not end meanwhile
            loop.call_soon(self._give_up)

    def stop(self) -> None:
        """Wait no longer, because the client has read or is gone."""
        self._answers.release(self._client)
        self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._limits.body_seconds_max,
            self._check,
            unread_bytes(self._transport),
            self._n_received(),
        )

    def _check(self, n_unread: int, n_received: int) -> None:
        """Wait again if the client has read or sent enough; else give it up.

        n_unread    the bytes that it had not read when the timer was started
        n_received  the bytes of bodies that it had sent by then
        """
        n_read = n_unread - unread_bytes(self._transport)
        if max(n_read, self._n_received() - n_received) >= self._limits.batch_bytes_min:
            self._wait()
            return
        self._give_up(
            f"expected the client to read {self._limits.batch_bytes_min} bytes of its answer "
            f"within {self._limits.body_seconds_max:g} seconds, found {n_read} of {n_unread}"
        )

    def _give_up(
        self,
        detail: str = "expected room for unread answers, found none: the slowest client is ended",
    ) -> None:
        """Abort the connection, and drop the bytes that were not read."""
        log(logging.WARNING, "connection_aborted", detail=detail)
        self._on_abort()
        self._transport.abort()
