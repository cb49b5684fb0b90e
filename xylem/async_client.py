"""The client for asyncio."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from xylem import calls
from xylem.async_admin import AsyncAdmin
from xylem.batches import batch, item_of, lines_of
from xylem.caller import TIMEOUT_SECONDS
from xylem.calls import BatchOptions, Instance, PredictOptions
from xylem.results import (
    Feedback,
    LineError,
    ModelDetails,
    ModelInfo,
    Prediction,
    Predictions,
    Scores,
    Thresholds,
)
from xylem.retries import Retries


class AsyncClient(AsyncAdmin):
    """A client of a server of Xylem, for one event loop. Close it, or use it as a context manager.

    Calls raise ProblemError (the server refused), ConnectionFailed (no answer) or BadAnswer (an answer that
    cannot be used). Redirects are not followed; proxies of the environment are not used.

    url      as http://HOST:PORT, or https://HOST/PREFIX
    key      sent with each request, and shown nowhere
    timeout  seconds for each wait (to connect, to send, for the next bytes), and for an answer after its head
    retries  how calls that may safely be repeated are: a number, or `xylem.Retries`
    tls      which certificates are trusted; by default those that the system trusts
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int | Retries | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, key, timeout=timeout, retries=retries, tls=tls)

    async def predict(
        self,
        model: str,
        instances: Iterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[PredictOptions],
    ) -> Predictions:
        """Predict the labels of instances, by what `latest` names unless a version or an alias is given."""
        return await self._call(calls.predict(model, instances, version, alias, **options))

    async def score(
        self,
        model: str,
        instances: Iterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        sequence: bool = False,
    ) -> Scores:
        """Return the exact scores of labels that are named, or of a model of next words those of texts.

        An instance names its own `labels`, or says `"sequence": True`; `labels` and `sequence` here are of
        those that say neither. A label that the model does not know is refused.
        """
        return await self._call(calls.score(model, instances, version, alias, labels, sequence=sequence))

    async def batch(
        self,
        model: str,
        instances: Iterable[Instance] | AsyncIterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[Prediction | LineError, None]:
        """Yield a prediction, or an error, for each instance, in their order, while later ones are sent.

        Memory does not grow with their number. `instances` that take long to come should be asynchronous:
        others are asked in the event loop. See docs/batch.md.
        """
        answers = self.batch_lines(model, lines_of(instances), version, alias, **options)
        async with contextlib.aclosing(answers):
            async for line in answers:
                yield item_of(line)

    async def batch_lines(
        self,
        model: str,
        lines: AsyncIterable[bytes],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[bytes, None]:
        """Yield the answer to each line of JSON, as it came; lines have no line feed, neither in nor out."""
        blocks = self.batch_blocks(model, lines, version, alias, **options)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                for line in block:
                    yield line

    def batch_blocks(
        self,
        model: str,
        lines: AsyncIterable[bytes],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield what `batch_lines` does, in blocks: the answers that came together."""
        path_of = calls.batch_paths(model, version, alias, **options)
        return batch(self._target, path_of, lines, self._retries, self._timeout)

    async def feedback(
        self,
        model: str,
        events: Iterable[Mapping[str, Any]],
        version: int | None = None,
        alias: str | None = None,
    ) -> Feedback:
        """Send true labels: events with `labels` and an `instance` or a `prediction_id` (docs/feedback.md).

        An event without an `event_id` is given one. Each counts once, so a call that failed may be made again
        with events that have ids of their own.
        """
        return await self._run(calls.feedback(model, events, version, alias, self._retries, self._timeout))

    async def models(self) -> list[ModelInfo]:
        """List the models."""
        return await self._call(calls.models())

    async def model(self, name: str) -> ModelDetails:
        """Describe a model and its versions."""
        return await self._call(calls.model(name))

    async def thresholds(
        self,
        model: str,
        version: int | None = None,
        alias: str | None = None,
        *,
        offset: int = 0,
        limit: int = 100,
        marks_below: int | None = None,
    ) -> Thresholds:
        """Return a page of the thresholds of a version; `next_offset` is where the next one begins."""
        return await self._call(calls.thresholds(model, version, alias, offset, limit, marks_below))
