"""Answers of JSON, and streams: of what a thread writes, and such that say when they are over."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from service.serving.lines import dump

_JSON = b"content-type", b"application/json"


class RawResponse(Response):
    """A 200 of headers and a body, made without a look at headers that could be given."""

    def __init__(self, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (_JSON,)) -> None:
        self.status_code = 200
        self.body = body
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *headers]


def json_response(value: object) -> Response:
    """Return the 200 that answers with `value`."""
    return RawResponse(dump(value))


def etag_of(content: bytes) -> str:
    """Return the tag of what may be sent packed or not: a weak one, for their bytes differ."""
    return f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'


def unless_known(request: Request, answer: Response, etag: str) -> Response:
    """Return a 200 with its tag, or the 304 for a client that has what the tag says (RFC 9110, 13.1.2)."""
    answer.headers.update({"etag": etag, "cache-control": "no-cache", "vary": "Accept-Encoding"})
    known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
    if etag.removeprefix("W/") in map(str.strip, known) or known == ["*"]:
        answer.status_code, answer.body = 304, b""
        del answer.headers["content-length"], answer.headers["content-type"]
    return answer


class ClosingStream(StreamingResponse):
    """A streamed answer that says when it is over, also if nobody asks for its first byte.

    An asynchronous generator's own `finally` is no place for that: one that was not begun has none.
    """

    def __init__(
        self, content: AsyncIterable[bytes], on_end: Callable[[], None], headers: dict[str, str], media: str
    ) -> None:
        super().__init__(content, headers=headers, media_type=media)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


PIECES_MAX = 4
"""Pieces that wait to be read."""

_LOOK_SECONDS = 1.0
"""A write that waits looks so often whether the event loop has ended."""


class _Gone(Exception):
    """Nobody reads any more: ends the thread's work."""


class ThreadPipe:
    """What a blocking function writes, as an asynchronous iterator of bytes. One use; event loop only.

    Who starts it closes it. The function's next write raises then, and so ends it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(PIECES_MAX)
        self._gone = threading.Event()
        self._work: Future[None] | None = None
        self._is_over = False

    async def start(self, threads: Executor, function: Callable[[Self], object]) -> bytes:
        """Call function(pipe) in a thread, which writes; return the first piece, or raise what it raises.

        A start that fails, or is cancelled, closes the pipe.
        """
        self._work = threads.submit(self._run, function)
        try:
            return await self._next() or b""
        except BaseException:
            self.close()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece; raise what the function raises, once it has."""
        piece = await self._next()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Let the function end; wait for nothing. Twice is as once."""
        self._gone.set()
        self._room.release()  # for a write that waits
        if self._work is not None:
            self._work.cancel()

    async def _next(self) -> bytes | None:
        """Return the next piece, None once the function has returned."""
        if self._is_over or self._work is None:
            return None
        piece = await self._pieces.get()
        if piece is None:
            self._is_over = True
            await asyncio.wrap_future(self._work)
            return None
        self._room.release()
        return piece

    def _run(self, function: Callable[[Self], object]) -> None:
        try:
            function(self)
        except _Gone:
            pass
        finally:
            self._hand_over(None)

    def write(self, piece: Any) -> None:
        """Hand a piece over. Blocks while enough of them wait; raises _Gone when nobody reads."""
        while not self._room.acquire(timeout=_LOOK_SECONDS):
            if self._loop.is_closed():
                raise _Gone
        if self._gone.is_set():
            raise _Gone
        self._hand_over(bytes(piece))

    def _hand_over(self, piece: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed
            self._gone.set()
