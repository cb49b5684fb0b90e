"""Spans: begun as two numbers, made when what they tell of has ended, and handed on to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple, Protocol

from service.traces.context import (
    TRACESTATE_MAX,
    Sampling,
    TraceContext,
    is_unsampled,
    new_id,
    parse_traceparent,
)

Attributes = Mapping[str, str | int | bool]

Part = tuple[str, int, int]
"""What a part of a span is called, when it began and ended, by `perf_counter_ns`."""


class Trace(NamedTuple):
    """A span that has begun.

    own          the span; None: it is not sampled, and there is none
    parent       the span of another process that it continues; None: it begins a trace
    state        that process's `tracestate`
    traceparent  the span as others continue it; of one that is not sampled the parent
    """

    own: TraceContext | None
    parent: TraceContext | None
    state: str
    traceparent: str

    @property
    def id_text(self) -> str:
        """Return the trace's id as logs and exemplars have it: 32 hexadecimal digits."""
        return self.traceparent[3:35]


class EndedSpan(NamedTuple):
    """A span that has ended. Times are nanoseconds since 1970.

    kind    server: of a request; consumer: of a job; internal: of a part of one of these
    fault   why it failed, a code; None: it did not
    """

    own: TraceContext
    parent_id: int | None
    is_parent_remote: bool
    state: str
    name: str
    kind: Literal["server", "consumer", "internal"]
    began: int
    ended: int
    attributes: Attributes
    fault: str | None


class SpanSender(Protocol):
    """What sends spans (`service.traces.otel`)."""

    def send(self, spans: Sequence[EndedSpan]) -> None:
        """Take spans, to be sent soon; drop some where too many wait. Does not block, and raises nothing."""

    def close(self) -> None:
        """Send what waits, for a while at most."""


class Tracer:
    """Begins and ends spans. Thread-safe."""

    def __init__(self, sampling: Sampling, sender: SpanSender) -> None:
        self._sampling = sampling
        self._sender = sender

    def begin(self, traceparent: bytes | None = None, tracestate: bytes | None = None) -> Trace | None:
        """Return the span of a request with these headers, or of a job; None: a new trace, not sampled.

        A span that is not sampled is returned where it continues a trace, whose id is worth a log line.
        """
        if traceparent is not None and self._sampling.follows and is_unsampled(traceparent):
            return Trace(None, None, "", traceparent.decode())
        parent = None if traceparent is None else parse_traceparent(traceparent)
        if parent is None:
            trace_id = self._sampling.new_trace_id()
            if trace_id is None:
                return None
            own = TraceContext(trace_id, new_id(), True)
            return Trace(own, None, "", own.traceparent())
        if not self._sampling.samples(parent):
            return Trace(None, parent, "", parent._replace(is_sampled=False).traceparent())
        own = TraceContext(parent.trace_id, new_id(), True)
        state = b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
        return Trace(own, parent, state.decode("latin-1"), own.traceparent())

    def end(
        self,
        trace: Trace,
        name: str,
        kind: Literal["server", "consumer"],
        began: int,
        attributes: Attributes,
        parts: Sequence[Part],
        fault: str | None = None,
    ) -> None:
        """End a span, and hand it on with its parts, if it is sampled.

        began   when it began, by `perf_counter_ns`
        """
        own, parent = trace.own, trace.parent
        if own is None:
            return
        now = perf_counter_ns()
        since = time_ns() - now
        parent_id = None if parent is None else parent.span_id
        whole = EndedSpan(
            own,
            parent_id,
            parent is not None,
            trace.state,
            name,
            kind,
            began + since,
            now + since,
            attributes,
            fault,
        )
        spans = [
            EndedSpan(
                own._replace(span_id=new_id()),
                own.span_id,
                False,
                trace.state,
                part,
                "internal",
                start + since,
                end + since,
                {},
                None,
            )
            for part, start, end in parts
        ]
        self._sender.send([*spans, whole])

    def close(self) -> None:
        """Send what waits, for a while at most."""
        self._sender.close()
