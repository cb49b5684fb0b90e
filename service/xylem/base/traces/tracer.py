"""Spans: the trace that a request continues (W3C Trace Context), when they began and ended."""

import re
from collections.abc import Callable, Sequence
from random import getrandbits, random
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple

from xylem.base.stages import Stretch
from xylem.base.traces.trace_context import (
    ID_BITS,
    TRACE_ID,
    Sampling,
    is_sampled,
    new_id,
    parse_traceparent,
)

TRACESTATE_MAX = 512
"""The most bytes of a `tracestate`; a longer one is dropped as a whole."""
# Matches a valid `traceparent` of version 00 that says not to sample; None for any other.
find_unsampled = re.compile(
    rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]"
).fullmatch


REQUEST_ID = "xylem.request_id"  # the span attribute with the id of the request


class Trace(NamedTuple):
    """A span that has begun, or a continued trace that is not sampled here and has no span.

    id       the trace's, as in logs and exemplars: 32 hexadecimal digits
    span_id  the span's; 0 if it has none
    parent   the `traceparent` that it continues, of version 00; empty if it begins a trace
    state    the `tracestate` beside it
    """

    id: str
    span_id: int
    parent: str = ""
    state: str = ""

    @property
    def traceparent(self) -> str:
        """Return the `traceparent` with which others continue the span.

        If the trace is not sampled here, this is the parent's `traceparent`, marked as not sampled.
        """
        if self.span_id:
            return f"00-{self.id}-{self.span_id:016x}-01"
        return f"{self.parent[:-2]}00" if is_sampled(self.parent) else self.parent


class SpanShape(NamedTuple):
    """The common part of similar spans, which is encoded once for all of them.

    kind    server: of a request; consumer: of a job
    fault   the code of the error; None if there was none
    """

    name: str
    kind: Literal["server", "consumer"]
    attributes: tuple[tuple[str, str | int], ...]
    fault: str | None = None


class EndedTrace(NamedTuple):
    """A sampled span that has ended, with its stages, as it waits to be sent.

    Little is computed for it before a thread sends it.

    began, ended  by `perf_counter_ns`
    clock_offset  added to such a time, it gives nanoseconds since 1970
    stretches     its stages, as the parts of the span
    """

    trace: Trace
    shape: SpanShape
    request_id: str | None
    began: int
    ended: int
    clock_offset: int
    stretches: Sequence[Stretch]


class Tracer:
    """Begins and ends spans. Thread-safe.

    send   takes an ended span of a sampled trace; does not block, and raises nothing
    close  sends the spans that wait, for a limited time
    """

    def __init__(
        self, sampling: Sampling, send: Callable[[EndedTrace], None], close: Callable[[], None]
    ) -> None:
        self._sampling = sampling
        self._follows = sampling.follows
        self._share = sampling.bound / (1 << ID_BITS)
        self.send = send
        self.close = close

    def begin(
        self, traceparent: bytes | None = None, tracestate: bytes | None = None
    ) -> Trace | None:
        """Return the span of a request with these headers, or of a job without headers.

        None for a new trace that is not sampled. A trace that another process began is always
        returned: log lines have its id.
        """
        if traceparent is not None:
            if self._follows and find_unsampled(traceparent) is not None:  # the most frequent case
                unsampled = traceparent.decode()
                return Trace(unsampled[TRACE_ID], 0, unsampled)
            parent = parse_traceparent(traceparent)
            if parent is not None:
                if not self._sampling.samples(parent):
                    return Trace(parent[TRACE_ID], 0, parent)
                state = (
                    b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
                )
                return Trace(parent[TRACE_ID], new_id(), parent, state.decode("latin-1"))
        if random() >= self._share:
            return None
        low = getrandbits(ID_BITS) * self._sampling.bound >> ID_BITS
        return Trace(f"{new_id():016x}{low:016x}", new_id())

    def end(self, trace: Trace, shape: SpanShape, began: int, stretches: Sequence[Stretch]) -> None:
        """Pass on a span that ends now, with its stages, if it is sampled; see `EndedTrace`."""
        if trace.span_id:
            now = perf_counter_ns()
            self.send(
                EndedTrace(
                    trace=trace,
                    shape=shape,
                    request_id=None,
                    began=began,
                    ended=now,
                    clock_offset=time_ns() - now,
                    stretches=stretches,
                )
            )
