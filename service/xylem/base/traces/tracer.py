"""Spans: which trace a request continues (W3C Trace Context), when they began and
ended; handed on.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from random import getrandbits, random
from time import perf_counter_ns, time_ns
from typing import Literal, NamedTuple

from xylem.base.errors import BadParameter
from xylem.base.stages import Stretch

TRACESTATE_MAX = 512
"""The most bytes of a `tracestate` that is kept; of a longer one nothing is."""

_TRACEPARENT = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}"
    rb"-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.*)?"
)
find_unsampled = re.compile(
    rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]"
).fullmatch
"""Finds a right `traceparent` of version 00 that says not to sample; None: it is no such one."""

TRACE_ID = slice(3, 35)
SPAN_ID = slice(36, 52)
"""Where a right `traceparent` has the hexadecimal digits of the ids."""

ID_BITS = 64
_ALWAYS = 1 << ID_BITS
_SAMPLERS = {
    "always_on": (_ALWAYS, False),
    "always_off": (0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (_ALWAYS, True),
    "parentbased_always_off": (0, True),
    "parentbased_traceidratio": (None, True),
}
"""For each sampler of the standard its bound (None: a ratio), and
whether it does as the parent does.
"""


def parse_traceparent(value: bytes) -> str | None:
    """Return a `traceparent` as version 00 has it; None: it breaks the
    rules, and is as if it were not there.

    A version that is not known yet may say more behind what version 00 says (W3C Trace Context,
    3.2.4).
    """
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, suffix = match.groups()
    if version == b"00":
        return value.decode() if suffix is None else None
    return None if version == b"ff" else f"00{value[2:55].decode()}"  # no version may be ff


def is_sampled(parent: str) -> bool:
    """Return whether a right `traceparent` says to sample: the
    lowest bit of the flags behind the ids.
    """
    return parent[-1] in "13579bdf"


class Sampling(NamedTuple):
    """Which traces are sampled: those whose id's lower 64 bits are below `bound`.

    follows   whether a trace that another process has begun is sampled as that says
    """

    bound: int
    follows: bool

    def samples(self, parent: str) -> bool:
        """Return whether a trace is sampled that another process
        has begun, with this `traceparent`.
        """
        return (
            is_sampled(parent)
            if self.follows
            else int(parent[TRACE_ID][-ID_BITS // 4 :], 16) < self.bound
        )


def new_id() -> int:
    """Return an id of a span, which is not 0."""
    return getrandbits(ID_BITS) or 1


def sampling_of(environment: Mapping[str, str]) -> Sampling:
    """Return what OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say. Raises BadParameter."""
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


REQUEST_ID = "xylem.request_id"
"""The attribute that says which request a span is of."""


class Trace(NamedTuple):
    """A span that has begun; or a trace that is continued, and not
    sampled here: it has no span of ours.

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
    """A sampled span that has ended, with its parts, as it waits to be
    sent: little is made of it before.

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

    send   hands on a span that has ended, of a trace that is sampled; does not block, and raises
           nothing
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

    def begin(
        self, traceparent: bytes | None = None, tracestate: bytes | None = None
    ) -> Trace | None:
        """Return the span of a request with these headers, or of a
        job; None: a new trace, not sampled.

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
                state = (
                    b"" if tracestate is None or len(tracestate) > TRACESTATE_MAX else tracestate
                )
                return Trace(parent[TRACE_ID], new_id(), parent, state.decode("latin-1"))
        if random() >= self._share:
            return None
        low = getrandbits(ID_BITS) * self._sampling.bound >> ID_BITS
        return Trace(f"{new_id():016x}{low:016x}", new_id())

    def end(self, trace: Trace, shape: SpanShape, began: int, stretches: Sequence[Stretch]) -> None:
        """Hand on a span that ends now, with its parts, if it is sampled; as
        `EndedTrace` has it.
        """
        if trace.span_id:
            now = perf_counter_ns()
            self.send(
                EndedTrace(
                    trace=trace,
                    shape=shape,
                    request_id=None,
                    began=began,
                    ended=now,
                    since=time_ns() - now,
                    stretches=stretches,
                )
            )
