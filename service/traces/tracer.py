"""Spans: begun as two numbers, noted when what they tell of has ended, and handed on to be sent."""

from collections.abc import Callable, Sequence
from random import getrandbits, random
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple

from service.base.stages import Stretch
from service.traces.context import (
    ID_BITS,
    TRACE_ID,
    TRACESTATE_MAX,
    Sampling,
    find_unsampled,
    is_sampled,
    new_id,
    parse_traceparent,
)

REQUEST_ID = "xylem.request_id"
"""The attribute that says which request a span is of."""


class Trace(NamedTuple):
    """A span that has begun; or a trace that is continued, and not sampled here: it has no span of ours.

    id       the trace's, as logs and exemplars have it: 32 hexadecimal digits
    span_id  the span's; 0: it has none
    parent   the `traceparent` that it continues, of version 00; empty: it begins a trace
    state    the `tracestate` beside it
    """

    id: str
    span_id: int
    parent: str = ""
    state: str = ""

    @property
    def traceparent(self) -> str:
        """Return the span as others continue it; of a trace that is not sampled here the parent."""
        if self.span_id:
            return f"00-{self.id}-{self.span_id:016x}-01"
        return f"{self.parent[:-2]}00" if is_sampled(self.parent) else self.parent


class SpanShape(NamedTuple):
    """What spans have in common that are alike: it is encoded once for many.

    kind    server: of a request; consumer: of a job
    fault   why they failed, a code; None: they did not
    """

    name: str
    kind: Literal["server", "consumer"]
    attributes: tuple[tuple[str, str | int], ...]
    fault: str | None = None


class EndedTrace(NamedTuple):
    """A sampled span that has ended, with its parts, as it waits to be sent: little is made of it before.

    began       by `perf_counter_ns`, as when it ended
    since       what is added to such a time to have nanoseconds since 1970
    """

    trace: Trace
    shape: SpanShape
    request_id: str | None
    began: int
    ended: int
    since: int
    stretches: Sequence[Stretch]


class Tracer:
    """Begins and ends spans. Thread-safe.

    send   hands on a span that has ended, of a trace that is sampled; does not block, and raises nothing
    close  sends what waits, for a while at most
    """

    def __init__(
        self, sampling: Sampling, send: Callable[[EndedTrace], None], close: Callable[[], None]
    ) -> None:
        self._sampling = sampling
        self._follows = sampling.follows
        self._share = sampling.bound / (1 << ID_BITS)
        self.send = send
        self.close = close

    def begin(self, traceparent: bytes | None = None, tracestate: bytes | None = None) -> Trace | None:
        """Return the span of a request with these headers, or of a job; None: a new trace, not sampled.

        A trace that is not sampled is returned where others began it: its id is worth a log line.
        """
        if traceparent is not None:
            if self._follows and find_unsampled(traceparent) is not None:  # as most are
                unsampled = traceparent.decode()
                return Trace(unsampled[TRACE_ID], 0, unsampled)
            parent = parse_traceparent(traceparent)
            if parent is not None:
                if not self._sampling.samples(parent):
                    return Trace(parent[TRACE_ID], 0, parent)
                state = b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
                return Trace(parent[TRACE_ID], new_id(), parent, state.decode("latin-1"))
        if random() >= self._share:
            return None
        low = getrandbits(ID_BITS) * self._sampling.bound >> ID_BITS
        return Trace(f"{new_id():016x}{low:016x}", new_id())

    def end(self, trace: Trace, shape: SpanShape, began: int, stretches: Sequence[Stretch]) -> None:
        """Hand on a span that ends now, with its parts, if it is sampled; as `EndedTrace` has it."""
        if trace.span_id:
            now = perf_counter_ns()
            self.send(EndedTrace(trace, shape, None, began, now, time_ns() - now, stretches))
