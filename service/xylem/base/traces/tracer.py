"""Spans: the trace that a request continues (W3C Trace Context), when they began and ended."""

import re
from collections.abc import Callable, Mapping, Sequence
from random import getrandbits, random
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple

from xylem.base.errors import BadParameter
from xylem.base.stages import Stretch

_TRACEPARENT = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}"
    rb"-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.*)?"
)

# The positions of the hexadecimal digits of the ids in a valid `traceparent`.
TRACE_ID = slice(3, 35)
SPAN_ID = slice(36, 52)

ID_BITS = 64
# Hexadecimal digits of a span's id; a trace's id has twice as many.
ID_DIGITS = ID_BITS // 4

_ALWAYS = 1 << ID_BITS
# The standard's samplers: a pair of the bound, and whether the parent's decision is followed.
#
# A bound of None is computed from a ratio.
_SAMPLERS = {
    "always_on": (_ALWAYS, False),
    "always_off": (0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (_ALWAYS, True),
    "parentbased_always_off": (0, True),
    "parentbased_traceidratio": (None, True),
}


def parse_traceparent(value: bytes) -> str | None:
    """Return a `traceparent` in the form of version 00; None if it is invalid, and to be ignored.

    A later version may have more fields after those of version 00 (W3C Trace Context, 3.2.4).
    """
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, suffix = match.groups()
    if version == b"00":
        return value.decode() if suffix is None else None
    return None if version == b"ff" else f"00{value[2:55].decode()}"  # ff is no valid version


def is_sampled(parent: str) -> bool:
    """Return whether a valid `traceparent` says to sample: the lowest bit of its flags."""
    return parent[-1] in "13579bdf"


class Sampling(NamedTuple):
    """Which traces are sampled: those where the lower 64 bits of the id are below `bound`.

    follows   whether a trace from another process follows that process's decision instead
    """

    bound: int
    follows: bool

    def samples(self, parent: str) -> bool:
        """Return whether a trace from another process, with this `traceparent`, is sampled."""
        return (
            is_sampled(parent)
            if self.follows
            else int(parent[TRACE_ID][-ID_DIGITS:], 16) < self.bound
        )


def new_id() -> int:
    """Return the id of a new span, which is never 0."""
    return getrandbits(ID_BITS) or 1


def sampling_of(environment: Mapping[str, str]) -> Sampling:
    """Return the sampling that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG request.

    Raises BadParameter.
    """
    name = environment.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    if name not in _SAMPLERS:
        raise BadParameter(
            f"OTEL_TRACES_SAMPLER: expected one of {', '.join(_SAMPLERS)}, found {name[:100]!r}"
        )
    bound, follows = _SAMPLERS[name]
    if bound is None:
        text = environment.get("OTEL_TRACES_SAMPLER_ARG") or "1"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise BadParameter(
                f"OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, found {text[:100]!r}"
            )
        bound = round(ratio * _ALWAYS)
    return Sampling(bound, follows)


# The most bytes of a `tracestate`; a longer one is dropped as a whole.
TRACESTATE_MAX = 512

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
