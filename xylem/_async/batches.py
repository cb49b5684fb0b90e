"""Batches: instances in, predictions out, in their order, by requests of which two are under way."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Unpack

from xylem import batches
from xylem._async.base import AsyncBase
from xylem._async.wire import AsyncAnswer
from xylem.batches import Part, item_of, line_of, parts_of
from xylem.calls import BatchOptions, Instance, Request, batch_request
from xylem.errors import ClientError
from xylem.results import LineError, Prediction
from xylem.retries import Attempts
from xylem.runtime import AsyncSource, async_each

UNDER_WAY = 2
"""Requests of a batch that are sent before the answer to the first is read."""


@dataclass
class _Sent:
    """A request of a batch, and its answer once that has begun."""

    part: Part
    request: Request
    attempts: Attempts
    answer: AsyncAnswer | None = None


class AsyncBatches(AsyncBase):
    """The calls of batches."""

    async def batch(
        self,
        model: str,
        instances: AsyncSource[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[Prediction | LineError]:
        """Yield a prediction, or an error, for each instance, in their order: a request a thousand of them.

        Memory does not grow with their number. Instances that take long to come should be asynchronous:
        others are asked in the event loop. See docs/batch.md.
        """
        answers = self.batch_blocks(model, _blocks_of(instances), version, alias, **options)
        async with aclosing(answers):
            async for lines in answers:
                for line in lines:
                    yield item_of(line)

    async def batch_blocks(
        self,
        model: str,
        blocks: AsyncSource[Sequence[bytes]],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[list[bytes]]:
        """Yield the answers to blocks of lines of JSON, as they came; lines have no line feed.

        A block is a request, or several where it is long. What comes a few lines at a time is answered
        before more is asked for.
        """
        sent: deque[_Sent] = deque()
        n_lines, fault, source = 0, None, async_each(blocks)
        try:
            while fault is None:
                try:
                    block = await anext(source, None)
                except Exception as error:  # of the caller's source: raised after the answers before it
                    fault, block = error, ()
                if block is None:
                    break
                for part in parts_of(block, n_lines):
                    n_lines += part.n_lines
                    request = batch_request(model, version, alias, part.body, options)
                    asked = _Sent(part, request, Attempts(self._retries))
                    sent.append(asked)
                    asked.answer = await self._opened(asked)
                    told = asked.answer.headers.get("xylem-version", "")
                    if version is None and told.isdigit():  # from now on all answers are of one version
                        version, alias = int(told), None
                        asked.request = batch_request(model, version, None, part.body, options)
                    while len(sent) >= (UNDER_WAY if part.is_long else 1):
                        yield await self._answers(sent.popleft())
            while sent:
                yield await self._answers(sent.popleft())
            if fault is not None:
                raise fault
        finally:
            for asked in sent:
                if asked.answer is not None:
                    await asked.answer.close()

    async def _opened(self, asked: _Sent) -> AsyncAnswer:
        """Send a request, again where that may help; return its answer. Raises ClientError."""
        while True:
            try:
                return await self._wire.open(asked.request)
            except ClientError as error:
                await self._wait(error, asked.request, asked.attempts)

    async def _answers(self, asked: _Sent) -> list[bytes]:
        """Return the answers to the lines of a request, sent again where they are cut off."""
        while True:
            try:
                assert asked.answer is not None
                return asked.part.answers_in(await asked.answer.read(math.inf))
            except ClientError as error:
                await self._wait(error, asked.request, asked.attempts)
            asked.answer = await self._opened(asked)


async def _blocks_of(instances: AsyncSource[Instance]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of instances in blocks, each as many as a request has."""
    block: list[bytes] = []
    n_bytes = 0
    try:
        async for instance in async_each(instances):
            block.append(line_of(instance))
            n_bytes += len(block[-1])
            if len(block) == batches.LINES_MAX or n_bytes >= batches.BYTES_MAX:
                yield block
                block, n_bytes = [], 0
    except Exception:
        yield block
        raise
    yield block
