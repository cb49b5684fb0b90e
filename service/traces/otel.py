"""Spans sent by OpenTelemetry's SDK, over HTTP, as its standard variables of the environment say.

The only module that imports it. Spans wait in the SDK's bounded queue, from which a thread of its own sends
them: a receiver that is down, or slow, costs spans and never a request.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from model_store.version import code_version
from service.errors import BadParameter
from service.logs import log
from service.traces.tracer import EndedSpan

CLOSE_SECONDS = 2.0
"""So long the end of a process waits for spans to be sent."""

_KINDS = {"server": SpanKind.SERVER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_FAILED = Status(StatusCode.ERROR)
_FINE = Status()
_NO_STATE = TraceState()


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
        self._resource = Resource(ours).merge(said)
        self._scope = InstrumentationScope("xylem", code_version())
        try:
            self._processor = BatchSpanProcessor(OTLPSpanExporter())
        except ValueError as error:
            raise BadParameter(
                f"OTEL_...: expected values that OpenTelemetry takes, found: {error}"
            ) from None

    def send(self, spans: Sequence[EndedSpan]) -> None:
        """Take spans, to be sent soon; the SDK drops the oldest where too many wait."""
        try:
            contexts: dict[int, SpanContext] = {}
            for span in spans:
                self._processor.on_end(self._readable(span, contexts))
        except Exception as error:  # no span is worth an answer
            log(logging.ERROR, "trace_failed", error=error)

    def close(self) -> None:
        """Send what waits, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _readable(self, span: EndedSpan, contexts: dict[int, SpanContext]) -> ReadableSpan:
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


def _check(environment: Mapping[str, str]) -> None:
    """Raise BadParameter for a protocol that is not the one we speak."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        said = environment.get(name) or "http/protobuf"
        if said != "http/protobuf":
            raise BadParameter(f"{name}: expected http/protobuf, found {said[:100]!r}")
