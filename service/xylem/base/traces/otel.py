"""Spans as messages of OpenTelemetry's protocol, which its exporter sends over HTTP.

Its standard variables configure it. Requests that have ended wait in a bounded queue; a thread
makes their spans and sends them: a receiver that is down, or slow, costs spans and never a request.
The SDK would make an object for each span and each attribute first, and takes seven times as long.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceState

from xylem.base.errors import BadParameter
from xylem.base.logs import log
from xylem.base.traces.tracer import REQUEST_ID, SPAN_ID, EndedTrace, SpanShape
from xylem_store import code_version

CLOSE_SECONDS = 2.0  # the longest time that a process waits at its end for spans to be sent

WHOLE_MAX = 10_000_000  # the greatest value of a variable of the queue
# The number of stretches that take one place of the queue.
#
# A long stream takes several places, so that memory is bounded.
STRETCHES_A_PLACE = 16


class QueueLimits(NamedTuple):
    """The limits of the queue; a request counts as one span, with all its stages.

    size     how many spans wait
    seconds  how long they wait
    batch    how many are sent at once
    """

    size: int
    seconds: float
    batch: int


class OtlpSender:
    """Sends spans from a thread. Thread-safe.

    For a sampled request, the caller only appends to a queue. The SDK's own queue, with the code
    around it, took five times as long when one request in a hundred is sampled, because its code
    and data are then no longer in the processor's caches.

    n_dropped  spans that found no room since the last log line about them
    """

    def __init__(self, part: str, environment: Mapping[str, str]) -> None:
        variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        # the first, which is specific to traces, takes precedence
        variable = next(filter(environment.get, variables), variables[0])
        if (protocol := environment.get(variable) or "http/protobuf") != "http/protobuf":
            raise BadParameter(f"{variable}: expected http/protobuf, found {protocol[:100]!r}")
        self._limits = queue_limits(environment)
        attributes: dict[str, str | int] = {
            "service.name": "xylem",
            "service.version": code_version(),
            "process.pid": os.getpid(),
            "xylem.part": part,
        }
        resource = Resource(attributes).merge(
            OTELResourceDetector().detect()
        )  # the environment takes precedence
        try:
            self._exporter = OTLPSpanExporter()
        except ValueError as error:
            raise BadParameter(
                f"OTEL_...: expected values that OpenTelemetry takes, found: {error}"
            ) from None
        if not hasattr(self._exporter, "_client"):  # its client sends bytes; it is not public
            raise BadParameter(
                "XYLEM_TRACES: expected OpenTelemetry 1.45, whose exporter sends bytes, "
                f"found {version('opentelemetry-exporter-otlp-proto-http')}"
            )
        blank_span = ReadableSpan(
            "",
            SpanContext(1, 1, False),
            resource=resource,
            instrumentation_scope=InstrumentationScope("xylem", code_version()),
        )
        self._empty: ExportTraceServiceRequest = encode_spans([blank_span])
        del self._empty.resource_spans[0].scope_spans[0].spans[:]
        self._waiting: deque[EndedTrace | None] = deque()
        self.n_dropped = 0
        self._is_closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def send(self, ended: EndedTrace) -> None:
        """Queue a span with its stages, or drop it if the queue is full."""
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
        """Send the spans that wait, for at most CLOSE_SECONDS."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(self._limits.seconds)
            self._wake.clear()
            self._send_waiting()
        self._send_waiting()  # spans that came while it was sending

    def _send_waiting(self) -> None:
        for _ in range(-(-len(self._waiting) // self._limits.batch)):
            n = min(self._limits.batch, len(self._waiting))
            request = ExportTraceServiceRequest()
            request.CopyFrom(self._empty)
            spans = request.resource_spans[0].scope_spans[0]
            try:
                for ended in (self._waiting.popleft() for _ in range(n)):
                    if ended is not None:
                        add_spans(ended, spans)
                if spans.spans:
                    self._exporter._client.export(request.SerializeToString())
            except Exception as error:  # the thread must survive any faulty span
                log(logging.ERROR, "trace_failed", error=error)
        n_dropped = self.n_dropped
        self.n_dropped = 0
        if n_dropped:
            log(
                logging.WARNING,
                "spans_dropped",
                detail=f"expected room for {self._limits.size} spans that wait, "
                f"found none for {n_dropped}",
            )


def queue_limits(environment: Mapping[str, str]) -> QueueLimits:
    """Return the limits of the queue from the variables OTEL_BSP_.... Raises BadParameter."""
    numbers = []
    for name, default in (
        ("MAX_QUEUE_SIZE", "2048"),
        ("SCHEDULE_DELAY", "5000"),
        ("MAX_EXPORT_BATCH_SIZE", "512"),
    ):
        text = environment.get(f"OTEL_BSP_{name}", "").strip() or default
        if not text.isascii() or not text.isdigit() or not 0 < int(text[:10]) <= WHOLE_MAX:
            raise BadParameter(
                f"OTEL_BSP_{name}: expected a whole number from 1 to {WHOLE_MAX}, "
                f"found {text[:100]!r}"
            )
        numbers.append(int(text[:10]))
    size, milliseconds, batch = numbers
    return QueueLimits(size, milliseconds / 1000, min(batch, size))


_KINDS = {"server": Span.SPAN_KIND_SERVER, "consumer": Span.SPAN_KIND_CONSUMER}
# Flags of a span: that it is known whether its parent is remote; and that it is remote.
_IS_BEGUN = 0x100
_IS_CONTINUED = 0x300

_IDS = (1 << 64) - 1  # the number of valid span ids; 0 is none
# cached shapes of spans, and values of `tracestate`: a caller's requests have few different ones
_CACHE_SIZE = 256


def add_spans(ended: EndedTrace, spans: ScopeSpans) -> None:
    """Add the spans of the stages of a trace, and then the span of the whole request or job.

    The id of each stage is that of the previous span plus one.
    """
    trace = ended.trace
    clock_offset = ended.clock_offset
    trace_id = bytes.fromhex(trace.id)
    span_id = trace.span_id.to_bytes(8, "big")
    part_id = trace.span_id
    state = _checked(trace.state) if trace.state else ""
    for names, times in ended.stretches:
        for name, (began, end) in zip(names, pairwise(times), strict=True):
            if end != began:
                part_id = part_id % _IDS + 1
                spans.spans.add(
                    trace_id=trace_id,
                    span_id=part_id.to_bytes(8, "big"),
                    trace_state=state,
                    parent_span_id=span_id,
                    name=name,
                    kind=Span.SPAN_KIND_INTERNAL,
                    start_time_unix_nano=began + clock_offset,
                    end_time_unix_nano=end + clock_offset,
                    flags=_IS_BEGUN,
                )
    main_span = spans.spans.add(
        trace_id=trace_id,
        span_id=span_id,
        trace_state=state,
        parent_span_id=bytes.fromhex(trace.parent[SPAN_ID]),
        start_time_unix_nano=ended.began + clock_offset,
        end_time_unix_nano=ended.ended + clock_offset,
        flags=_IS_CONTINUED if trace.parent else _IS_BEGUN,
    )
    main_span.MergeFrom(_alike(ended.shape))
    if ended.request_id is not None:
        main_span.attributes.append(_attribute(REQUEST_ID, ended.request_id))


@lru_cache(_CACHE_SIZE)
def _alike(shape: SpanShape) -> Span:
    """Return the common part of all spans of a shape."""
    span = Span(
        name=shape.name,
        kind=_KINDS[shape.kind],
        attributes=[_attribute(*attribute) for attribute in shape.attributes],
    )
    if shape.fault is not None:
        span.attributes.append(_attribute("error.type", shape.fault))
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _attribute(name: str, value: str | int) -> KeyValue:
    return KeyValue(
        key=name,
        value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value),
    )


@lru_cache(_CACHE_SIZE)
def _checked(state: str) -> str:
    """Return a `tracestate` without the entries that break the standard's rules."""
    return TraceState.from_header([state]).to_header()
