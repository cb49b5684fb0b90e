"""Clients that the server waits for, and the bytes that it holds
meanwhile: of bodies, and of answers.

Each kind has a budget of bytes for all clients together. When there is no room, the slowest client
is given up, not the one that comes: so clients that hardly move cannot keep others out.
"""

import asyncio
import contextlib
import fcntl
import termios
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from xylem.base import Overloaded

HEAD_START = 64 << 10
"""Bytes that count as moved when a client begins: who has just come is not slow yet."""


@dataclass(slots=True, eq=False)
class SlowClient:
    """A client that sends a body, or reads an answer.

    n_moved      returns how many bytes the client has moved since it is waited for
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
    """The clients of one kind that are waited for, and what is held for
    all of that kind. Event loop only.

    bytes_max  the most bytes that may be held; `limit` is the name of that limit
    n_bytes    those that are held, also for clients that are no longer waited for
    waiting    since when each client is waited for, by the event loop's time
    """

    def __init__(self, bytes_max: int, limit: str) -> None:
        self._bytes_max = bytes_max
        self._limit = limit
        self.n_bytes = 0
        self.waiting: dict[SlowClient, float] = {}

    def hold(self, client: SlowClient, n_bytes: int) -> None:
        """Hold so many bytes more for a client. While there is no
        room, the slowest client is given up.

        Raises Overloaded if that is this one, or none is waited for.
        """
        while self.n_bytes + n_bytes > self._bytes_max:
            if not self.give_up_slowest(client):
                expected = f"expected at most {self._bytes_max} bytes (limit {self._limit})"
                raise Overloaded(f"{expected} of all requests together, found more")
        client.n_held += n_bytes
        self.n_bytes += n_bytes

    def give_up_slowest(self, client: SlowClient | None = None) -> bool:
        """Give up the client that moved the fewest bytes a second;
        return whether there is one but this.
        """
        now = asyncio.get_running_loop().time()
        slowest = min(
            self.waiting,
            key=lambda waiting: (
                (waiting.n_moved() + HEAD_START) / (now - self.waiting[waiting] + 1)
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
    """Return how many written bytes the client has not received: the transport's and
    the system's.
    """
    n_sent = array("i", [0])
    with contextlib.suppress(OSError):  # no such call for this kind of connection
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, n_sent)
    return transport.get_write_buffer_size() + n_sent[0]
