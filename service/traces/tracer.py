"""Spans: begun as two numbers, made when what they tell of has ended, and handed on to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import getrandbits
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple, Protocol

from service.traces.context import (
    ID_BITS,
    TRACESTATE_MAX,
    Sampling,
    TraceContext,
    is_unsampled,
    new_id,
    parse_traceparent,
)

Attributes = tuple[tuple[str, str | int], ...]
"""Names and values. Each name once."""

_IDS = (1 << 64) - 1
"""So many ids of spans there are."""

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


class SpanShape(NamedTuple):
    """What spans have in common that are alike: it is encoded once for many.

    kind    server: of a request; consumer: of a job
    fault   why they failed, a code; None: they did not
    """

    name: str
    kind: Literal["server", "consumer"]
    attributes: Attributes
    fault: str | None = None

    @property
    def said(self) -> Attributes:
        """Return the attributes, why they failed among them."""
        return self.attributes if self.fault is None else (*self.attributes, ("error.type", self.fault))


class SpanFacts(NamedTuple):
    """What a span says of a request or a job that has ended, and its parts.

    own     attributes that only this span has
    began   when it began, by `perf_counter_ns`
    """

    shape: SpanShape
    own: Attributes
    began: int
    parts: Sequence[Part]


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
    """A sampled span that has ended, with its parts.

    ended   by `perf_counter_ns`
    since   what is added to such a time to have nanoseconds since 1970
    """

    own: TraceContext
    parent: TraceContext | None
    state: str
    facts: SpanFacts
    ended: int
    since: int

    def part_ids(self) -> Iterable[int]:
        """Return an id for the span of each part: those that follow the span's own, without 0."""
        first = self.own.span_id
        return (each % _IDS + 1 for each in range(first, first + len(self.facts.parts)))

    def spans(self) -> list[EndedSpan]:
        """Return the spans of the parts, and that of the whole, the last."""
        (shape, attributes, began, parts), since, own = self.facts, self.since, self.own
        spans = [
            EndedSpan(
                own._replace(span_id=span_id),
                own.span_id,
                False,
                self.state,
                part,
                "internal",
                start + since,
                end + since,
                (),
                None,
            )
            for span_id, (part, start, end) in zip(self.part_ids(), parts, strict=True)
        ]
        whole = EndedSpan(
            own,
            None if self.parent is None else self.parent.span_id,
            self.parent is not None,
            self.state,
            shape.name,
            shape.kind,
            began + since,
            self.ended + since,
            (*shape.said, *attributes),
            shape.fault,
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
        self._bound = sampling.bound
        self._sender = sender

    def begin(self, traceparent: bytes | None = None, tracestate: bytes | None = None) -> Trace | None:
        """Return the span of a request with these headers, or of a job; None: a new trace, not sampled.

        A span that is not sampled is returned where it continues a trace, whose id is worth a log line.
        """
        if traceparent is not None:
            if self._sampling.follows and is_unsampled(traceparent):
                return Trace(None, unsampled=traceparent.decode())
            parent = parse_traceparent(traceparent)
            if parent is not None:
                return self._continue(parent, tracestate)
        low = getrandbits(ID_BITS)
        if low >= self._bound:
            return None
        return Trace(TraceContext(new_id() << ID_BITS | low, new_id(), True))

    def _continue(self, parent: TraceContext, tracestate: bytes | None) -> Trace:
        if not self._sampling.samples(parent):
            return Trace(None, parent, "", parent._replace(is_sampled=False).traceparent())
        own = TraceContext(parent.trace_id, new_id(), True)
        state = b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
        return Trace(own, parent, state.decode("latin-1"))

    def end(self, trace: Trace, facts: SpanFacts, ended: int | None = None) -> None:
        """Hand a span on that has ended, with its parts, if it is sampled.

        ended   when, by `perf_counter_ns`; None: now
        """
        own, parent, state, _ = trace
        if own is not None:
            now = perf_counter_ns()
            since = time_ns() - now
            self._sender.send(EndedTrace(own, parent, state, facts, now if ended is None else ended, since))

    def close(self) -> None:
        """Send what waits, for a while at most."""
        self._sender.close()
