"""Changes of a split: a canary or a shadow that comes, with its part of the requests, or goes."""

from __future__ import annotations

from collections.abc import Callable

from model_store.errors import BadSplit
from model_store.splits import PARTS, Split

_ROUNDING = 1e-6
"""Parts by which a fraction may miss a whole number of them: doubles do."""


def with_canary(version: int, weight: float, stable_weight: float | None = None) -> Callable[[Split], Split]:
    """Return the change that has a version answer a part of the requests.

    weight         the part, above 0 and below 1, a multiple of 0.0001
    stable_weight  what is left for the version that the alias names; None: 1 - weight

    Raises BadSplit for weights that are out of range, or do not add up to 1.
    """
    parts = parts_of("weight", weight)
    if stable_weight is not None and parts + parts_of("stable_weight", stable_weight) != PARTS:
        raise BadSplit(f"expected weights that add up to 1, found {weight:g} and {stable_weight:g}")
    return lambda split: split._replace(canary=version, weight=parts)


def with_shadow(version: int, share: float) -> Callable[[Split], Split]:
    """Return the change that has a version answer a part of the requests besides, without being returned.

    share  the part, above 0 and at most 1, a multiple of 0.0001. Raises BadSplit
    """
    parts = parts_of("share", share)
    return lambda split: split._replace(shadow=version, share=parts)


def without_canary(split: Split) -> Split:
    """Return a split with its shadow alone."""
    return split._replace(canary=None, weight=0)


def without_shadow(split: Split) -> Split:
    """Return a split with its canary alone."""
    return split._replace(shadow=None, share=0)


def parts_of(name: str, fraction: float) -> int:
    """Return how many of PARTS the fraction `weight` (below 1) or `share` (up to 1) is. Raises BadSplit."""
    if fraction == 1 and name == "share":
        return PARTS
    parts = round(fraction * PARTS) if 0 < fraction < 1 else 0
    if not 0 < parts < PARTS or abs(fraction * PARTS - parts) > _ROUNDING:
        expected = f"a multiple of {1 / PARTS:g} above 0 and {'at most' if name == 'share' else 'below'} 1"
        raise BadSplit(f"{name}: expected {expected}, found {fraction:g}")
    return parts
