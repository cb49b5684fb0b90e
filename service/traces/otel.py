"""Spans sent by OpenTelemetry's SDK, over HTTP, as its standard variables of the environment say.

The only module that imports it. Requests that have ended wait in a bounded queue, from which a thread of its
own makes their spans and sends them: a receiver that is down, or slow, costs spans and never a request.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from model_store.version import code_version
from service.base.errors import BadParameter
from service.base.logs import log
from service.traces.otlp import encode_request
from service.traces.tracer import EndedSpan, EndedTrace

CLOSE_SECONDS = 2.0
"""So long the end of a process waits for spans to be sent."""

WHOLE_MAX = 10_000_000
"""The most that a variable of the queue may say."""

STRETCHES_A_PLACE = 16
"""Stretches of a span in one place of the queue. A long stream takes several: memory has a bound."""

_KINDS = {"server": SpanKind.SERVER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_FAILED = Status(StatusCode.ERROR)
_FINE = Status()
_NO_STATE = TraceState()
_NOTHING = EndedSpan(1, 1, 0, False, "", "", "internal", 0, 0, (), None)

STATES_KEPT = 256
"""Values of `tracestate` whose check is remembered: a caller's requests have few."""


class QueueLimits(NamedTuple):
    """How many spans wait, how long, and how many are sent at once: of requests, with their parts."""

    size: int
    seconds: float
    batch: int


class OtlpSender:
    """Sends spans, by a thread of its own. Thread-safe.

    What a sampled request does here is to append to a queue: the SDK's own, with what is around it, took five
    times as long where one request in a hundred is sampled, and finds nothing of it in the caches.

    part       which part of the service sends: serve, or jobs
    n_dropped  spans that found no room since it was logged last
    """

    def __init__(self, part: str, environment: Mapping[str, str]) -> None:
        _check(environment)
        self._limits = queue_limits(environment)
        ours: dict[str, str | int] = {
            "service.name": "xylem",
            "service.version": code_version(),
            "process.pid": os.getpid(),
            "xylem.part": part,
        }
        said = OTELResourceDetector().detect()  # by the environment, which wins
        try:
            self._exporter = Exporter(Resource(ours).merge(said))
        except ValueError as error:
            raise BadParameter(
                f"OTEL_...: expected values that OpenTelemetry takes, found: {error}"
            ) from None
        self._waiting: deque[EndedTrace | None] = deque()
        self.n_dropped = 0
        self._is_closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Return how many places of the queue are taken."""
        return len(self._waiting)

    def send(self, ended: EndedTrace) -> None:
        """Take a span with its parts, to be sent soon, or drop it where too many wait."""
        waiting = self._waiting
        n_waiting = len(waiting)
        if n_waiting >= self._limits.size:
            self.n_dropped += 1
            return
        waiting.append(ended)
        n_stretches = len(ended.stretches)
        if n_stretches >= STRETCHES_A_PLACE:
            waiting.extend([None] * (n_stretches // STRETCHES_A_PLACE))
        if n_waiting + 1 >= self._limits.batch:
            self._wake.set()

    def close(self) -> None:
        """Send what waits, for CLOSE_SECONDS at most."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.give_up()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(self._limits.seconds)
            self._wake.clear()
            self._send_waiting()
        self._send_waiting()  # what came while it was sending

    def _send_waiting(self) -> None:
        """Send what waits now, and say how many were dropped."""
        for _ in range(-(-len(self._waiting) // self._limits.batch)):
            n = min(self._limits.batch, len(self._waiting))
            waited = [self._waiting.popleft() for _ in range(n)]
            try:
                self._exporter.export([ended for ended in waited if ended is not None])
            except Exception as error:  # no span is worth the thread
                log(logging.ERROR, "trace_failed", error=error)
        n_dropped, self.n_dropped = self.n_dropped, 0
        if n_dropped:
            detail = f"expected room for {self._limits.size} spans that wait, found none for {n_dropped}"
            log(logging.WARNING, "spans_dropped", detail=detail)


class Exporter:
    """Makes the spans of what has waited, and sends them.

    is_quick  whether they are encoded by `service.traces.otlp`, and not by the SDK: where the SDK's exporter
              has, as the one that we are tested with, what sends bytes
    encoded   the resource and the scope
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("xylem", code_version())
        self._exporter = OTLPSpanExporter()
        self.give_up: Callable[[], None] = self._exporter.shutdown
        self._post = getattr(getattr(self._exporter, "_client", None), "export", None)
        self.is_quick = self._post is not None
        [of_resource] = encode_spans([self.readable(_NOTHING, {})]).resource_spans
        self.encoded = (
            of_resource.resource.SerializeToString(),
            of_resource.scope_spans[0].scope.SerializeToString(),
        )

    def export(self, traces: Sequence[EndedTrace]) -> None:
        """Send traces. One that fails is logged by the SDK."""
        if not traces:
            return
        right = (_right(ended) if ended.trace.state else ended for ended in traces)
        if self._post is not None and self.is_quick:
            self._post(encode_request(*self.encoded, right))
            return
        spans: list[ReadableSpan] = []
        for ended in right:
            contexts: dict[int, SpanContext] = {}
            spans += [self.readable(span, contexts) for span in ended.spans()]
        self._exporter.export(spans)

    def readable(self, span: EndedSpan, contexts: dict[int, SpanContext]) -> ReadableSpan:
        """Return a span as the SDK has it; `contexts` are those of one trace by their ids, each made once."""
        own, parent = self._context(span, span.span_id, contexts), None
        if span.parent_id:
            parent = self._context(span, span.parent_id, contexts, is_remote=span.is_parent_remote)
        return ReadableSpan(
            span.name,
            own,
            parent,
            self._resource,
            dict(span.attributes),
            kind=_KINDS[span.kind],
            status=_FINE if span.fault is None else _FAILED,
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )

    def _context(
        self, span: EndedSpan, span_id: int, contexts: dict[int, SpanContext], *, is_remote: bool = False
    ) -> SpanContext:
        found = contexts.get(span_id)
        if found is None:
            state = TraceState.from_header([span.state]) if span.state else _NO_STATE
            found = contexts[span_id] = SpanContext(span.trace_id, span_id, is_remote, _FLAGS, state)
        return found


def _right(ended: EndedTrace) -> EndedTrace:
    """Return a trace whose `tracestate` is right."""
    return ended._replace(trace=ended.trace._replace(state=_checked(ended.trace.state)))


@lru_cache(STATES_KEPT)
def _checked(state: str) -> str:
    """Return a `tracestate` without what breaks the standard's rules."""
    return TraceState.from_header([state]).to_header()


def _check(environment: Mapping[str, str]) -> None:
    """Raise BadParameter for a protocol that is not the one we speak."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        said = environment.get(name) or "http/protobuf"
        if said != "http/protobuf":
            raise BadParameter(f"{name}: expected http/protobuf, found {said[:100]!r}")


def queue_limits(environment: Mapping[str, str]) -> QueueLimits:
    """Return what OTEL_BSP_... say of the queue. Raises BadParameter."""
    size, milliseconds, batch = (
        _whole(environment, f"OTEL_BSP_{name}", default)
        for name, default in (
            ("MAX_QUEUE_SIZE", 2048),
            ("SCHEDULE_DELAY", 5000),
            ("MAX_EXPORT_BATCH_SIZE", 512),
        )
    )
    return QueueLimits(size, milliseconds / 1000, min(batch, size))


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    said = environment.get(name, "").strip() or str(default)
    if not said.isascii() or not said.isdigit() or not 0 < int(said[:10]) <= WHOLE_MAX:
        raise BadParameter(f"{name}: expected a whole number from 1 to {WHOLE_MAX}, found {said[:100]!r}")
    return int(said[:10])
