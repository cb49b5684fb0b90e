"""W3C Trace Context: which trace a request continues, and whether it is sampled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import getrandbits
from typing import NamedTuple

from service.errors import BadParameter

TRACESTATE_MAX = 512
"""The most bytes of a `tracestate` that is kept; of a longer one nothing is."""

TRACEPARENT_CHARACTERS = 55

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_UNSAMPLED = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]")
ID_BITS = 64
_LOW = (1 << ID_BITS) - 1
_SAMPLED = 1

_ALWAYS = 1 << ID_BITS
_SAMPLERS = {
    "always_on": (_ALWAYS, False),
    "always_off": (0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (_ALWAYS, True),
    "parentbased_always_off": (0, True),
    "parentbased_traceidratio": (None, True),
}
"""For each sampler of the standard its bound (None: a ratio), and whether it does as the parent does."""


class TraceContext(NamedTuple):
    """A span of another process, or of ours, that others continue."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def traceparent(self) -> str:
        """Return the header that says it: 55 characters."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse_traceparent(value: bytes) -> TraceContext | None:
    """Return what a `traceparent` says; None: it breaks the rules, and is as if it were not there.

    A version that is not known yet may say more behind what version 00 says (W3C Trace Context, 3.2.4).
    """
    found = _TRACEPARENT.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return context if context.trace_id and context.span_id else None


def is_unsampled(value: bytes) -> bool:
    """Return whether a `traceparent` of version 00 is right, and says not to sample."""
    return _UNSAMPLED.fullmatch(value) is not None


class Sampling(NamedTuple):
    """Which traces are sampled: those whose id's lower 64 bits are below `bound`.

    follows   whether a trace that another process has begun is sampled as that says
    """

    bound: int
    follows: bool

    def samples(self, parent: TraceContext) -> bool:
        """Return whether a trace is sampled that another process has begun."""
        return parent.is_sampled if self.follows else parent.trace_id & _LOW < self.bound


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
        bound = round(_ratio(environment.get("OTEL_TRACES_SAMPLER_ARG") or "1") * _ALWAYS)
    return Sampling(bound, follows)


def _ratio(said: str) -> float:
    try:
        ratio = float(said)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise BadParameter(f"OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, found {said[:100]!r}")
    return ratio
