"""The lines of a batch on their way to their answers: few enough to hold, and to send again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable

LINES_MAX = 8192
BYTES_MAX = 4 << 20
"""Lines, and their bytes, that wait to be sent or answered; a single line may be longer."""

CHUNK_BYTES = 1 << 16
_LINES_A_TURN = 256


class Window:
    """Lines that are not answered yet: some wait to be sent, some were sent on this connection."""

    def __init__(self) -> None:
        self.n_answered = 0
        self.ended = False
        """No further line comes."""
        self.fault: BaseException | None = None
        """What the caller's iterator raised; told when the lines before are answered."""
        self.awaited_since = 0.0
        """Since when, on the clock time.monotonic, the next answer is waited for."""
        self._waiting: deque[bytes] = deque()
        self._sent: deque[bytes] = deque()
        self._n_bytes = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def n_sent(self) -> int:
        """How many lines were sent on this connection and have no answer."""
        return len(self._sent)

    @property
    def is_done(self) -> bool:
        """Whether each line has its answer, and no further one comes."""
        return self.ended and not self._waiting and not self._sent

    async def fill(self, lines: AsyncIterable[bytes]) -> None:
        """Take all lines of an iterator, as fast as there is room."""
        try:
            n = 0
            async for line in lines:
                while self._is_full():
                    self._room.clear()
                    await self._room.wait()
                self._waiting.append(line)
                self._n_bytes += len(line)
                self._ready.set()
                n += 1
                if n % _LINES_A_TURN == 0:
                    await asyncio.sleep(0)
        except Exception as fault:
            self.fault = fault
        self.ended = True
        self._ready.set()

    def _is_full(self) -> bool:
        return len(self._waiting) + len(self._sent) >= LINES_MAX or self._n_bytes >= BYTES_MAX

    async def has_more(self) -> bool:
        """Wait until a line is there to be sent, or none will be; return which."""
        while not self._waiting and not self._sent and not self.ended:
            self._ready.clear()
            await self._ready.wait()
        return not self.is_done

    async def take(self) -> bytes | None:
        """Return the lines that wait, as many as a chunk may have, each with its end; None: no more come."""
        while not self._waiting:
            if self.ended:
                return None
            self._ready.clear()
            await self._ready.wait()
        if not self._sent:
            self.awaited_since = time.monotonic()
        taken, n_bytes = [], 0
        while self._waiting and n_bytes < CHUNK_BYTES:
            line = self._waiting.popleft()
            self._sent.append(line)
            taken.append(line)
            n_bytes += len(line) + 1
        taken.append(b"")
        return b"\n".join(taken)

    def answered(self, n_lines: int) -> None:
        """Forget the first lines that were sent: their answers are there."""
        for _ in range(n_lines):
            self._n_bytes -= len(self._sent.popleft())
        self.n_answered += n_lines
        self.awaited_since = time.monotonic()
        self._room.set()

    def send_again(self) -> None:
        """Have what was sent, and has no answer, sent on the next connection."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        if self._waiting:
            self._ready.set()
