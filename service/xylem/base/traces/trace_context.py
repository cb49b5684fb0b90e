"""The trace that a request continues (W3C Trace Context), and which traces are sampled."""

import re
from collections.abc import Mapping
from random import getrandbits
from typing import NamedTuple

from xylem.base.errors import BadParameter

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
