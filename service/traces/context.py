"""W3C Trace Context: which trace a request continues, and whether it is sampled."""

import re
from collections.abc import Mapping
from random import getrandbits
from typing import NamedTuple

from service.base.errors import BadParameter

TRACESTATE_MAX = 512
"""The most bytes of a `tracestate` that is kept; of a longer one nothing is."""

_TRACEPARENT = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.*)?"
)
find_unsampled = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]").fullmatch
"""Finds a right `traceparent` of version 00 that says not to sample; None: it is no such one."""

TRACE_ID, SPAN_ID = slice(3, 35), slice(36, 52)
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
"""For each sampler of the standard its bound (None: a ratio), and whether it does as the parent does."""


def parse_traceparent(value: bytes) -> str | None:
    """Return a `traceparent` as version 00 has it; None: it breaks the rules, and is as if it were not there.

    A version that is not known yet may say more behind what version 00 says (W3C Trace Context, 3.2.4).
    """
    found = _TRACEPARENT.fullmatch(value)
    if found is None:
        return None
    version, more = found.groups()
    if version == b"00":
        return value.decode() if more is None else None
    return None if version == b"ff" else f"00{value[2:55].decode()}"  # no version may be ff


def is_sampled(parent: str) -> bool:
    """Return whether a right `traceparent` says to sample: the lowest bit of the flags behind the ids."""
    return parent[-1] in "13579bdf"


class Sampling(NamedTuple):
    """Which traces are sampled: those whose id's lower 64 bits are below `bound`.

    follows   whether a trace that another process has begun is sampled as that says
    """

    bound: int
    follows: bool

    def samples(self, parent: str) -> bool:
        """Return whether a trace is sampled that another process has begun, with this `traceparent`."""
        return is_sampled(parent) if self.follows else int(parent[TRACE_ID][-ID_BITS // 4 :], 16) < self.bound


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
        said = environment.get("OTEL_TRACES_SAMPLER_ARG") or "1"
        try:
            ratio = float(said)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise BadParameter(
                f"OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, found {said[:100]!r}"
            )
        bound = round(ratio * _ALWAYS)
    return Sampling(bound, follows)
