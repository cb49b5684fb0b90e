"""Spans: begun as two numbers, made when what they tell of has ended, and handed on to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple, Protocol

from service.traces.context import TRACESTATE_MAX, Sampling, TraceContext, new_id, parse_traceparent

Attributes = Mapping[str, str | int | bool]

Part = tuple[str, int, int]
"""What a part of a span is called, when it began and ended, by `perf_counter_ns`."""


class Trace(NamedTuple):
    """A span that has begun.

    own      of the span
    parent   the span of another process that it continues; None: it begins a trace
    state    that process's `tracestate`
    """

    own: TraceContext
    parent: TraceContext | None
    state: str

    @property
    def id_text(self) -> str:
        """Return the trace's id as logs and exemplars have it: 32 hexadecimal digits."""
        return f"{self.own.trace_id:032x}"


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
        parent = None if traceparent is None else parse_traceparent(traceparent)
        if parent is None:
            trace_id = self._sampling.new_trace_id()
            return None if trace_id is None else Trace(TraceContext(trace_id, new_id(), True), None, "")
        is_sampled = self._sampling.samples(parent)
        own = TraceContext(parent.trace_id, new_id(), is_sampled)
        has_state = is_sampled and tracestate and len(tracestate) <= TRACESTATE_MAX
        return Trace(own, parent, tracestate.decode("latin-1") if has_state and tracestate else "")

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
        if not trace.own.is_sampled:
            return
        now = perf_counter_ns()
        since = time_ns() - now
        own, parent = trace.own, trace.parent
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
