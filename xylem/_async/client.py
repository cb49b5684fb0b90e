"""The client for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import orjson

from xylem import calls
from xylem._async.admin import AsyncAdmin
from xylem._async.batches import AsyncBatches
from xylem.calls import Instance, PredictOptions, model_path
from xylem.errors import BadAnswer
from xylem.results import (
    Feedback,
    FeedbackVerdict,
    ModelDetails,
    ModelInfo,
    Models,
    Predictions,
    Scores,
    Thresholds,
    read_as,
)


class AsyncClient(AsyncBatches, AsyncAdmin):
    """A client of a server of Xylem, for one event loop. Close it, or use it as a context manager.

    Calls raise ProblemError (the server refused), ConnectionFailed (no answer) or BadAnswer (an answer that
    cannot be used). Redirects are not followed; proxies of the environment are not used.

    url      as http://HOST:PORT, or https://HOST/PREFIX
    key      sent with each request, and shown nowhere
    timeout  seconds for each wait (to connect, to send, for the next bytes), and for an answer after its head
    retries  how calls that may safely be repeated are: a number, or `xylem.Retries`
    tls      which certificates are trusted; by default those that the system trusts
    """

    async def predict(
        self,
        model: str,
        instances: Iterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[PredictOptions],
    ) -> Predictions:
        """Predict the labels of instances, by what `latest` names unless a version or an alias is given."""
        return await self._read(Predictions, calls.predict(model, instances, version, alias, options))

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
        request = calls.score(model, instances, version, alias, labels, sequence=sequence)
        return await self._read(Scores, request)

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
        done: Feedback | None = None
        results: list[FeedbackVerdict] = []
        for request, n_events in calls.feedback_requests(model, events, version, alias):
            done = await self._read(Feedback, request)
            if len(done.results) != n_events:
                raise BadAnswer(f"expected {n_events} results, found {len(done.results)}")
            results += done.results
        if done is None:
            raise ValueError("events: expected at least one, found none")
        return replace(done, results=results)

    async def models(self) -> list[ModelInfo]:
        """List the models."""
        return (await self._read(Models, calls.get("/v1/models"))).models

    async def model(self, name: str) -> ModelDetails:
        """Describe a model and its versions."""
        return await self._read(ModelDetails, calls.get(model_path(name)))

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
        path = f"{model_path(model, version, alias)}/thresholds"
        request = calls.get(path, offset=offset, limit=limit, marks_below=marks_below)
        body = await self._send(request)
        page = read_as(Thresholds, body)
        details = {name: value for name, value in orjson.loads(body).items() if name != "labels"}
        return replace(page, details=details)
