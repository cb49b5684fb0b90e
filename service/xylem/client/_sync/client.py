"""The client for callers that block, made from the client for asyncio."""

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Unpack

from xylem.client import batch_parts, calls
from xylem.client._sync.admin import Admin
from xylem.client._sync.base import Answer
from xylem.client.batch_parts import Part, item_of, parts_of
from xylem.client.calls import (
    BatchOptions,
    Instance,
    PredictOptions,
    Request,
    batch_request,
    model_path,
)
from xylem.client.results import (
    Feedback,
    FeedbackVerdict,
    LineError,
    ModelDetails,
    ModelInfo,
    Prediction,
    Predictions,
    Scores,
    Thresholds,
)
from xylem.client.retries import Attempts, wait_after
from xylem.client.runtime import Source, iterate, sleep
from xylem.errors import BadAnswer, ClientError

UNDER_WAY = 2  # requests of a batch that are sent before the first answer is read


@dataclass
class _Sent:
    """A request of a batch, and its answer once that has begun."""

    part: Part
    request: Request
    attempts: Attempts
    answer: Answer | None = None


def _blocks_of(instances: Source[Instance]) -> Iterator[list[bytes]]:
    """Yield the lines of instances in blocks, each as long as a request may be."""
    block: list[bytes] = []
    n_bytes = 0
    try:
        for instance in iterate(instances):
            block.append(calls.dumped(calls.instance_of(instance)))
            n_bytes += len(block[-1])
            if len(block) == batch_parts.LINES_MAX or n_bytes >= batch_parts.BYTES_MAX:
                yield block
                block = []
                n_bytes = 0
    except Exception:
        yield block
        raise
    yield block


class Client(Admin):
    """A client of a server, which threads may share. Close it, or use it as a context manager.

    Calls raise ProblemError (the server refused), ConnectionFailed (no answer) or BadAnswer (an
    answer that cannot be used). Redirects are not followed; proxies of the environment are not
    used.

    url      http://HOST:PORT, or https://HOST/PREFIX
    key      sent with each request, and never shown
    timeout  seconds for each wait (to connect, to send, for the next bytes), and for an answer
             after its head
    retries  how often a call is repeated if that is safe: a number, or `xylem.Retries`
    tls      the certificates that are trusted; by default those of the system
    """

    def predict(
        self,
        model: str,
        instances: Iterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[PredictOptions],
    ) -> Predictions:
        """Predict the labels of instances.

        The version is the one that `latest` names, unless a version or an alias is given.
        """
        return self._read(Predictions, calls.predict(model, instances, version, alias, options))

    def score(
        self,
        model: str,
        instances: Iterable[Instance],
        version: int | None = None,
        alias: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        sequence: bool = False,
    ) -> Scores:
        """Return the exact scores of labels, or, for a model of next words, those of texts.

        An instance has its own `labels`, or `"sequence": True`. The arguments `labels` and
        `sequence` are for instances that have neither. A label that the model does not know is
        refused.
        """
        return self._read(
            Scores, calls.score(model, instances, version, alias, labels, sequence=sequence)
        )

    def feedback(
        self,
        model: str,
        events: Iterable[Mapping[str, Any]],
        version: int | None = None,
        alias: str | None = None,
    ) -> Feedback:
        """Send true labels: events with `labels` and an `instance` or a `prediction_id`.

        An event without an `event_id` gets one. Each id counts once. So repeat a failed call only
        if your events have ids. See docs/feedback.md.
        """
        last_answer: Feedback | None = None
        results: list[FeedbackVerdict] = []
        for request, n_events in calls.feedback_requests(model, events, version, alias):
            last_answer = self._read(Feedback, request)
            if len(last_answer.results) != n_events:
                raise BadAnswer(f"expected {n_events} results, found {len(last_answer.results)}")
            results += last_answer.results
        if last_answer is None:
            raise ValueError("events: expected at least one, found none")
        return replace(last_answer, results=results)

    def models(self) -> list[ModelInfo]:
        """List the models."""
        return (self._read(dict[str, list[ModelInfo]], calls.get("/v1/models")))["models"]

    def model(self, name: str) -> ModelDetails:
        """Describe a model and its versions."""
        return self._read(ModelDetails, calls.get(model_path(name)))

    def thresholds(
        self,
        model: str,
        version: int | None = None,
        alias: str | None = None,
        *,
        offset: int = 0,
        limit: int = 100,
        marks_below: int | None = None,
    ) -> Thresholds:
        """Return a page of the thresholds of a version.

        `next_offset` is the offset of the next page.
        """
        return self._read(
            Thresholds,
            calls.get(
                f"{model_path(model, version, alias)}/thresholds",
                offset=offset,
                limit=limit,
                marks_below=marks_below,
            ),
        )

    def batch(
        self,
        model: str,
        instances: Source[Instance],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> Generator[Prediction | LineError]:
        """Yield a prediction, or an error, for each instance, in their order.

        A request has up to a thousand instances. Memory does not grow with their number.
        See docs/batch.md.
        """
        answers = self.batch_blocks(model, _blocks_of(instances), version, alias, **options)
        with closing(answers):
            for lines in answers:
                for line in lines:
                    yield item_of(line)

    def batch_blocks(
        self,
        model: str,
        blocks: Source[Sequence[bytes]],
        version: int | None = None,
        alias: str | None = None,
        **options: Unpack[BatchOptions],
    ) -> Generator[list[bytes]]:
        """Yield the answers to blocks of lines of JSON, unparsed; lines have no line feed.

        A block is a request, or several if it is long. Lines that come a few at a time are answered
        before more are read.
        """
        sent: deque[_Sent] = deque()
        n_lines = 0
        fault = None
        source = iterate(blocks)
        try:
            while fault is None:
                try:
                    block = next(source, None)
                except (
                    Exception
                ) as error:  # of the caller's source: raised after the answers before it
                    fault = error
                    block = ()
                if block is None:
                    break
                for part in parts_of(block, n_lines):
                    n_lines += part.n_lines
                    exchange = _Sent(
                        part,
                        batch_request(model, version, alias, part.body, options),
                        Attempts(self._retries),
                    )
                    sent.append(exchange)
                    exchange.answer = self._opened(exchange)
                    version_header = exchange.answer.headers.get("xylem-version", "")
                    # all further answers must come from the version of the first one
                    if version is None and version_header.isdigit():
                        version = int(version_header)
                        alias = None
                        exchange.request = batch_request(model, version, None, part.body, options)
                    while len(sent) >= (UNDER_WAY if part.is_long else 1):
                        yield self._answers(sent.popleft())
            while sent:
                yield self._answers(sent.popleft())
            if fault is not None:
                raise fault
        finally:
            for exchange in sent:
                if exchange.answer is not None:
                    exchange.answer.close()

    def _opened(self, exchange: _Sent) -> Answer:
        """Send a request, several times if that may help; return its answer. Raises ClientError."""
        while True:
            try:
                return self._wire.open(exchange.request)
            except ClientError as error:
                sleep(wait_after(error, exchange.attempts, repeatable=True))

    def _answers(self, exchange: _Sent) -> list[bytes]:
        """Return the answers to the lines of a request, which is sent again if they are cut off."""
        while True:
            try:
                assert exchange.answer is not None
                return exchange.part.answers_in(exchange.answer.read(math.inf))
            except ClientError as error:
                sleep(wait_after(error, exchange.attempts, repeatable=True))
            exchange.answer = self._opened(exchange)
