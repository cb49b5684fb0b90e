"""The options of models in this process, and a predicted label."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict

TUNED = "tuned"
"""The value of `threshold` that means: for each label its tuned threshold."""

TOP_R = 5
"""The default of `top_r`, the most labels that are returned for an instance."""


class ScoredLabel(NamedTuple):
    """A predicted label, and its score: a probability from 0 to 1."""

    label: str
    score: float


class Resampling(TypedDict, total=False):
    """Options of the resampling tests in `Model.compare`.

    resamples  how often rows are resampled, and exchanged between the models: 100 to 100,000
    seed       the seed of the random numbers
    """

    resamples: int
    seed: int


class ThresholdOptions(TypedDict, total=False):
    """Options of `Model.tune_thresholds`.

    kappa  the least probability of an estimate
    start  the start values of OFO
    """

    kappa: float | Literal["auto"] | None
    start: tuple[float, float] | None


def top_of(top_r: int | None, top_k: int | None) -> int:
    """Return the one of top_r and top_k that is not None, or the default."""
    if top_r is not None and top_k is not None:
        raise TypeError("expected top_r or top_k, which are the same, found both")
    return next((limit for limit in (top_r, top_k) if limit is not None), TOP_R)
