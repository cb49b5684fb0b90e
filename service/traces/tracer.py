"""Spans: begun as two numbers, made when what they tell of has ended, and handed on to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    own        the span; None: it is not sampled, and there is none
    parent     the span of another process that it continues; None: it begins a trace
    state      that process's `tracestate`
    unsampled  the parent as others continue it, where there is no span
    """

    own: TraceContext | None
    parent: TraceContext | None = None
    state: str = ""
    unsampled: str = ""

    @property
    def traceparent(self) -> str:
        """Return the span as others continue it; of one that is not sampled the parent."""
        return self.unsampled if self.own is None else self.own.traceparent()

    @property
    def id_text(self) -> str:
        """Return the trace's id as logs and exemplars have it: 32 hexadecimal digits."""
        return self.unsampled[3:35] if self.own is None else f"{self.own.trace_id:032x}"


class SpanFacts(NamedTuple):
    """What a span says of a request or a job that has ended, and its parts.

    kind    server: of a request; consumer: of a job
    began   when it began, by `perf_counter_ns`
    fault   why it failed, a code; None: it did not
    """

    name: str
    kind: Literal["server", "consumer"]
    began: int
    attributes: Attributes
    parts: Sequence[Part]
    fault: str | None = None

    @property
    def n_parts(self) -> int:
        """Return how many parts it has."""
        return len(self.parts)

    def facts(self) -> SpanFacts:
        """Return itself."""
        return self


class Told(Protocol):
    """What has the facts of a span, and works them out when it is sent: many at once cost less than one."""

    @property
    def n_parts(self) -> int:
        """Return how many parts the span has."""

    def facts(self) -> SpanFacts:
        """Return them. Called once, by any thread."""


class EndedSpan(NamedTuple):
    """A span that has ended, as it is sent. Times are nanoseconds since 1970.

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


class EndedTrace(NamedTuple):
    """A sampled span that has ended, whose facts and parts are worked out when they are sent.

    ended   by `perf_counter_ns`
    since   what is added to such a time to have nanoseconds since 1970
    """

    trace: Trace
    told: Told
    ended: int
    since: int

    def spans(self, check_state: Callable[[str], str] | None = None) -> list[EndedSpan]:
        """Return the spans of the parts, and that of the whole, the last.

        check_state  leaves out of a `tracestate` what breaks the standard's rules
        """
        own, parent, since, state = self.trace.own, self.trace.parent, self.since, self.trace.state
        if own is None:
            return []
        if state and check_state is not None:
            state = check_state(state)
        facts = self.told.facts()
        parent_id = None if parent is None else parent.span_id
        spans = [
            EndedSpan(
                own._replace(span_id=new_id()),
                own.span_id,
                False,
                state,
                part,
                "internal",
                start + since,
                end + since,
                {},
                None,
            )
            for part, start, end in facts.parts
        ]
        whole = EndedSpan(
            own,
            parent_id,
            parent is not None,
            state,
            facts.name,
            facts.kind,
            facts.began + since,
            self.ended + since,
            facts.attributes,
            facts.fault,
        )
        return [*spans, whole]


class SpanSender(Protocol):
    """What sends spans (`service.traces.otel`)."""

    def send(self, ended: EndedTrace) -> None:
        """Take a span with its parts, to be sent soon, or dropped where too many wait.

        Does not block, and raises nothing.
        """

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
            return Trace(None, unsampled=traceparent.decode())
        parent = None if traceparent is None else parse_traceparent(traceparent)
        if parent is None:
            trace_id = self._sampling.new_trace_id()
            if trace_id is None:
                return None
            return Trace(TraceContext(trace_id, new_id(), True))
        if not self._sampling.samples(parent):
            return Trace(None, parent, "", parent._replace(is_sampled=False).traceparent())
        own = TraceContext(parent.trace_id, new_id(), True)
        state = b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
        return Trace(own, parent, state.decode("latin-1"))

    def end(self, trace: Trace, told: Told) -> None:
        """End a span now, and hand it on with its parts, if it is sampled."""
        if trace.own is not None:
            now = perf_counter_ns()
            self._sender.send(EndedTrace(trace, told, now, time_ns() - now))

    def close(self) -> None:
        """Send what waits, for a while at most."""
        self._sender.close()
