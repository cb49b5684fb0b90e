"""Streams of lines: read and answered at the same time, in memory that does not grow with them.

Each request has three tasks: one reads lines ahead, one begins to answer blocks of them, and one
writes the answers in order. While one block is answered, the next one fills: so blocks are small
when few lines come, and large when many come. What a client does not read goes to a file (`Spool`).
"""

import asyncio
import codecs
import functools
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from xylem.api.door.admission import paced
from xylem.api.door.problems import BodyTimeout
from xylem.api.door.spools import STALLED_SECONDS, Spool
from xylem.base import BadInput, Limits, Overloaded, Unavailable
from xylem.serving import Answered, LineBlock, describe_error, dump_line, log_untold


class LineReader:
    """Splits a streamed body into lines while earlier lines are answered.

    It drops a byte order mark at the beginning. It holds at most `block_bytes_max` bytes and one
    more message. Call `take` in one task, and `read` in another.

    rows_max  the most lines of a block
    """

    def __init__(self, receive: Receive, limits: Limits, rows_max: int) -> None:
        self._receive = receive
        self._limits = limits
        self._rows_max = rows_max
        self._waiting: list[bytes | None] = []
        self._bytes = self._n_lines = 0
        self._partial_line = bytearray()
        self._skipping = self._begun = self._ended = False
        self._changed = asyncio.Condition()
        self.fault: BadInput | None = None  # why the body ended early; None if it did not end early

    async def read(self) -> None:
        """Read the body to its end.

        Raises ClientDisconnect. A body that brings too few bytes in the time that the server waits
        for it ends with a `fault`; so does one that cannot be unpacked.
        """
        try:
            async for chunk, has_more in paced(self._receive, self._limits):
                self._split(chunk)
                if not has_more and (self._partial_line or self._skipping):
                    self._end_line()
                async with self._changed:
                    self._changed.notify_all()
                    await self._changed.wait_for(self._has_room)
        except TimeoutError as slow:
            self.fault = BodyTimeout(
                f"expected {self._limits.batch_bytes_min} bytes of the body (limit "
                f"batch_bytes_min), or its end, within {self._limits.body_seconds_max:g} seconds, "
                f"found {slow.args[0]}"
            )
        except BadInput as fault:
            self.fault = fault
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def take(self) -> LineBlock:
        """Return the next block: the lines that wait, at least one, at most `rows_max`.

        An empty block means that the body has ended.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or self._ended)
            lines = self._waiting[: self._rows_max]
            del self._waiting[: self._rows_max]
            self._bytes -= sum(map(_size, lines))
            self._changed.notify_all()
        block = LineBlock(self._n_lines + 1, lines)
        self._n_lines += len(lines)
        return block

    def _has_room(self) -> bool:
        return self._bytes < self._limits.block_bytes_max and len(self._waiting) < self._rows_max

    def _split(self, chunk: bytes) -> None:
        """Append the lines that end in `chunk`, and keep the beginning of the next one."""
        first, *parts = chunk.split(b"\n")
        self._keep(first)
        if not parts:
            return
        self._end_line()
        last = parts.pop()
        lines = [line if len(line) <= self._limits.line_bytes_max else None for line in parts]
        self._waiting += lines
        self._bytes += sum(map(_size, lines))
        self._keep(last)

    def _keep(self, part: bytes) -> None:
        """Add a part to the current line, unless that line is too long already."""
        if self._skipping:
            return
        if len(self._partial_line) + len(part) > self._limits.line_bytes_max:
            self._skipping = True
            self._partial_line.clear()
        else:
            self._partial_line += part

    def _end_line(self) -> None:
        line = None if self._skipping else bytes(self._partial_line)
        if not self._begun:
            self._begun = True
            line = line and line.removeprefix(codecs.BOM_UTF8)
        self._waiting.append(line)
        self._bytes += _size(line)
        self._partial_line.clear()
        self._skipping = False


def _size(line: bytes | None) -> int:
    return len(line or b"") + 1


# Begins to answer a block, once the earlier ones have begun; returns the future answer.
Begin = Callable[[LineBlock], Awaitable[Awaitable[Answered]]]


# Blocks that wait to be written; with the one that is written and the next, three are in work.
BLOCKS_QUEUED = 1


@dataclass(slots=True, eq=False)
class _Progress:
    """The state of a stream.

    blocks  blocks that are begun, and neither sent nor in the file of answers that nobody reads yet
    """

    spool: Spool
    blocks: int = 0


class Streams:
    """The streams of one kind, at most `limits.batches_max` at a time.

    cut  streams that ended because their client sent too little
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: set[_Progress] = set()
        self.cut = 0

    @property
    def open(self) -> int:
        """Return how many streams are being answered."""
        return len(self._open)

    @property
    def blocks(self) -> int:
        """Return how many blocks of all streams are being answered, or wait to be sent."""
        return sum(progress.blocks for progress in self._open)

    def stalled(self) -> int:
        """Return how many streams have waited at least STALLED_SECONDS for their client to read."""
        now = time.monotonic()
        return sum(now - progress.spool.sends_since >= STALLED_SECONDS for progress in self._open)

    def spooled(self) -> int:
        """Return the bytes of answers, of all streams, that are in temporary files."""
        return sum(progress.spool.n_bytes for progress in self._open)

    def answer(
        self,
        begin: Begin,
        on_answer: Callable[[Answered], None],
        rows_max: int,
        headers: dict[str, str],
    ) -> Response:
        """Return an answer that reads its request while it is written.

        If the body is cut off, or the service cannot go on, the last line of the answer is an
        error.

        begin      begins to answer a block
        on_answer  called with the answer of each block before it is sent
        rows_max   the most lines of a block
        """
        return _Stream(functools.partial(self._stream, begin, on_answer, rows_max, headers))

    async def _stream(
        self,
        begin: Begin,
        on_answer: Callable[[Answered], None],
        rows_max: int,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        if self.open >= self._limits.batches_max:
            raise Overloaded(
                f"expected at most {self._limits.batches_max} batches at a time, found more"
            )
        reader = LineReader(receive, self._limits, rows_max)
        progress = _Progress(Spool(send, self._limits.batch_spool_mib << 20))
        self._open.add(progress)
        try:
            head = Response(media_type="application/x-ndjson", headers=headers)
            del head.headers["content-length"]
            await send({"type": "http.response.start", "status": 200, "headers": head.raw_headers})
            with closing(progress.spool) as spool:
                fault = await _answer_lines(reader, begin, on_answer, progress)
                await spool.flush()
        finally:
            self._open.remove(progress)
        self.cut += isinstance(reader.fault, BodyTimeout)
        fault = fault or reader.fault
        body = b""
        if fault is not None:
            log_untold(fault)
            body = dump_line({"error": describe_error(fault)})
        await send({"type": "http.response.body", "body": body, "more_body": fault is not None})


async def _answer_lines(
    reader: LineReader,
    begin: Begin,
    on_answer: Callable[[Answered], None],
    progress: _Progress,
) -> Exception | None:
    """Write the answers to all lines; return the error because of which the service cannot go on.

    Raises ClientDisconnect.
    """
    answers: asyncio.Queue[Awaitable[Answered] | None] = asyncio.Queue(BLOCKS_QUEUED)
    fault: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.read())
            group.create_task(_dispatch(reader, begin, answers, progress))
            while (answering := await answers.get()) is not None:
                answered = await answering
                on_answer(answered)
                await progress.spool.write(answered.lines)
                progress.blocks -= 1
    except* ClientDisconnect as disconnect:
        raise disconnect.exceptions[0]  # noqa: B904
    except* Unavailable as unavailable:
        fault = unavailable.exceptions[0]
    finally:
        while not answers.empty():
            _give_up(answers.get_nowait())
    return fault


async def _dispatch(
    reader: LineReader,
    begin: Begin,
    answers: asyncio.Queue[Awaitable[Answered] | None],
    progress: _Progress,
) -> None:
    """Begin to answer each block, and pass the answers on to the task that writes them."""
    while (block := await reader.take()).lines:
        answering = await begin(block)
        progress.blocks += 1
        try:
            await answers.put(answering)
        except asyncio.CancelledError:
            _give_up(answering)
            raise
    await answers.put(None)


def _give_up(answering: Awaitable[Answered] | None) -> None:
    """Drop an answer that is not needed any more; ignore its error, as another one was reported."""
    if isinstance(answering, asyncio.Future):
        answering.add_done_callback(lambda done: done.cancelled() or done.exception())


class _Stream(Response):
    def __init__(self, stream: Callable[[Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._stream(receive, send)
