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
from importlib.metadata import version
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from xylem.base.errors import BadParameter
from xylem.base.logs import log
from xylem.base.traces.span_messages import add_spans
from xylem.base.traces.tracer import EndedTrace
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
