"""Spans sent by OpenTelemetry's SDK, over HTTP, as its standard variables of the environment say.

The only module that imports it. Requests wait in the SDK's bounded queue, from which a thread of its own
makes their spans and sends them: a receiver that is down, or slow, costs spans and never a request.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from model_store.version import code_version
from service.errors import BadParameter
from service.logs import log
from service.traces.context import TraceContext
from service.traces.otlp import encode_request
from service.traces.tracer import EndedSpan, EndedTrace

CLOSE_SECONDS = 2.0
"""So long the end of a process waits for spans to be sent."""

PARTS_A_PLACE = 16
"""Parts of a span that wait in one place of the queue: a long stream takes several, so memory has a bound."""

_KINDS = {"server": SpanKind.SERVER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_SAMPLED = SpanContext(1, 1, is_remote=False, trace_flags=_FLAGS)
_FAILED = Status(StatusCode.ERROR)
_FINE = Status()
_NO_STATE = TraceState()
_NOTHING = EndedSpan(TraceContext(1, 1, True), None, False, "", "", "internal", 0, 0, {}, None)

STATES_KEPT = 256
"""Values of `tracestate` whose check is remembered: a caller's requests have few."""


class OtlpSender:
    """Sends spans. Thread-safe.

    part    which part of the service sends: serve, or jobs
    """

    def __init__(self, part: str, environment: Mapping[str, str]) -> None:
        _check(environment)
        ours: dict[str, str | int] = {
            "service.name": "xylem",
            "service.version": code_version(),
            "process.pid": os.getpid(),
            "xylem.part": part,
        }
        said = OTELResourceDetector().detect()  # by the environment, which wins
        try:
            self._processor = BatchSpanProcessor(WaitingExporter(Resource(ours).merge(said)))
        except ValueError as error:
            raise BadParameter(
                f"OTEL_...: expected values that OpenTelemetry takes, found: {error}"
            ) from None

    def send(self, ended: EndedTrace) -> None:
        """Take a span with its parts, to be sent soon; the SDK drops the oldest where too many wait."""
        try:
            self._processor.on_end(Waiting(ended))
            for _ in range(ended.told.n_parts // PARTS_A_PLACE):
                self._processor.on_end(_PLACE)
        except Exception as error:  # no span is worth an answer
            log(logging.ERROR, "trace_failed", error=error)

    def close(self) -> None:
        """Send what waits, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


class Waiting(ReadableSpan):
    """A span with its parts, of which nothing is made before it is sent; None: it only takes a place."""

    def __init__(self, ended: EndedTrace | None) -> None:
        self.ended = ended

    @property
    def context(self) -> SpanContext:
        """Return one that is sampled: all that the queue asks for."""
        return _SAMPLED


class WaitingExporter(SpanExporter):
    """Makes the spans of what has waited, and sends them.

    is_quick  whether they are encoded by `service.traces.otlp`, and not by the SDK: where the SDK's exporter
              has, as the one that we are tested with, what sends bytes
    encoded   the resource and the scope
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("xylem", code_version())
        self._exporter = OTLPSpanExporter()
        self._post = getattr(getattr(self._exporter, "_client", None), "export", None)
        self.is_quick = self._post is not None
        [of_resource] = encode_spans([self.readable(_NOTHING, {})]).resource_spans
        self.encoded = (
            of_resource.resource.SerializeToString(),
            of_resource.scope_spans[0].scope.SerializeToString(),
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send what has waited."""
        traces = [each.ended.spans(_checked) for each in spans if isinstance(each, Waiting) and each.ended]
        if not traces:
            return SpanExportResult.SUCCESS
        if not self.is_quick or self._post is None:
            made: list[ReadableSpan] = []
            for trace in traces:
                contexts: dict[int, SpanContext] = {}
                made += [self.readable(span, contexts) for span in trace]
            return self._exporter.export(made)
        done = self._post(encode_request(*self.encoded, itertools.chain.from_iterable(traces)))
        return SpanExportResult.SUCCESS if done.success else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Give up what is being sent."""
        give_up: Callable[[], None] = self._exporter.shutdown
        give_up()

    def readable(self, span: EndedSpan, contexts: dict[int, SpanContext]) -> ReadableSpan:
        """Return a span as the SDK has it; `contexts` are those of one trace by their ids, each made once."""
        own, parent = self._context(span, span.own.span_id, contexts), None
        if span.parent_id is not None:
            parent = self._context(span, span.parent_id, contexts, is_remote=span.is_parent_remote)
        attributes = span.attributes if span.fault is None else {**span.attributes, "error.type": span.fault}
        return ReadableSpan(
            span.name,
            own,
            parent,
            self._resource,
            attributes,
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
            found = contexts[span_id] = SpanContext(span.own.trace_id, span_id, is_remote, _FLAGS, state)
        return found


_PLACE = Waiting(None)


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
