"""POST /v1/models/{model}/batch: lines in, lines out, both streamed, in memory that does not grow with them.

Three tasks a request: one reads lines ahead, one hands blocks of them to threads, one writes the answers in
order. While a block is worked on the next one fills, so that blocks are small when lines trickle in and large
when they pour.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.admission import NDJSON, check_media
from service.api.blocks import Answered, answer_block
from service.api.lines import Block, LineReader
from service.api.metrics import Metrics
from service.api.parse import parse_options
from service.api.problems import describe_error
from service.api.routing import RawRoute
from service.api.rows import to_options
from service.api.served import LiveServed, find_served
from service.api.wire import dump_line
from service.errors import Overloaded
from service.settings import Limits

BLOCKS_QUEUED = 1
"""Blocks of a batch that wait for the one before to be written; with it and the next, three are in work."""


class BatchRoutes:
    """The routes, and what they work with."""

    def __init__(self, live: LiveServed, metrics: Metrics, limits: Limits) -> None:
        self._live = live
        self._metrics = metrics
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.threads_max, thread_name_prefix="xylem-batch")
        self._slots = limits.batches_max

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/batch", self.batch, methods=["POST"]),
            RawRoute("/v1/models/{model}/versions/{version}/batch", self.batch, methods=["POST"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/batch", self.batch, methods=["POST"]),
        ]

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def batch(self, request: Request) -> Response:
        """Answer a batch: the options are the query string's, the version is the one of the batch's start."""
        check_media(request.scope, NDJSON)
        options = parse_options(request.scope["query_string"], self._limits)
        served = await find_served(request, self._live)
        engine_options = to_options(options, served)

        def answer(block: Block) -> Answered:
            return answer_block(block, served, engine_options, self._limits)

        rows_max = max(1, min(self._limits.block_rows_max, self._limits.answer_labels_max // options.top_r))
        headers = {"xylem-model": served.name, "xylem-version": str(served.version)}
        return _Stream(functools.partial(self._stream, answer, rows_max, headers))

    async def _stream(
        self,
        answer: Callable[[Block], Answered],
        rows_max: int,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Read, answer and write until the body ends."""
        if not self._slots:
            raise Overloaded(f"expected at most {self._limits.batches_max} batches at a time, found more")
        reader = LineReader(receive, self._limits, rows_max)
        answers: asyncio.Queue[asyncio.Future[Answered] | None] = asyncio.Queue(BLOCKS_QUEUED)
        self._slots -= 1
        try:
            head = Response(media_type="application/x-ndjson", headers=headers)
            del head.headers["content-length"]
            await send({"type": "http.response.start", "status": 200, "headers": head.raw_headers})
            async with asyncio.TaskGroup() as group:
                group.create_task(reader.read())
                group.create_task(self._dispatch(reader, answer, answers))
                while (answering := await answers.get()) is not None:
                    answered = await answering
                    self._metrics.record_rows(headers["xylem-model"], answered.n_rows)
                    self._metrics.lines_bad += answered.n_bad
                    await self._write(send, answered.lines)
        except* ClientDisconnect as gone:
            raise gone.exceptions[0]  # noqa: B904
        finally:
            self._slots += 1
        if reader.fault is None:
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._write(send, dump_line({"error": describe_error(reader.fault)}))

    async def _dispatch(
        self,
        reader: LineReader,
        answer: Callable[[Block], Answered],
        answers: asyncio.Queue[asyncio.Future[Answered] | None],
    ) -> None:
        """Hand each block to a thread, and its answer's future to the writer."""
        loop = asyncio.get_running_loop()
        while (block := await reader.take()).lines:
            await answers.put(loop.run_in_executor(self._threads, answer, block))
        await answers.put(None)

    async def _write(self, send: Send, lines: bytes) -> None:
        """Send lines; a client that does not read them is given up after a while."""
        try:
            async with asyncio.timeout(self._limits.body_seconds_max):
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        except TimeoutError:
            raise ClientDisconnect from None


class _Stream(Response):
    """An answer that reads its request while it is written."""

    def __init__(self, stream: Callable[[Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await self._stream(receive, send)
