"""What tuning leaves with a version: thresholds, how they came about, and the counters that go on growing."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.evaluation.fmeasure import EmptyConvention
from service.thresholds.ofo import Counters, Start, thresholds_of

Method = Literal["sto", "fta", "fta-one", "ofo"]
"""Ways to tune: search over all cuts, a fixed grid (each label its threshold, or one for all), online."""

METHODS: tuple[Method, ...] = ("ofo", "fta", "fta-one", "sto")


class Tuned(NamedTuple):
    """The thresholds of a version.

    method      how they were found; feedback moves them by OFO whatever it was
    convention  the convention of empty labels under which start values and kappa were chosen
    start       the start values of OFO that `counters` count from
    thresholds  float32[K] in [0, 1]
    counters    what the validation rows added up to
    """

    method: Method
    convention: EmptyConvention
    start: Start
    thresholds: NDArray[np.float32]
    counters: Counters


def thresholds_after(
    tuned: Tuned, counters: Counters, lower_bound: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the thresholds once feedback has brought the counters from `tuned.counters` to `counters`.

    A label without feedback keeps its tuned threshold; the others have OFO's.

    counters     at least tuned.counters, a label at a time
    lower_bound  float32[K], as `ofo.lower_bounds` returns it
    """
    is_moved = counters.marks > tuned.counters.marks
    return np.where(is_moved, thresholds_of(counters, tuned.start, lower_bound), tuned.thresholds)


class ThresholdStore(Protocol):
    """Where the thresholds of versions are kept: every save is a new epoch, nothing is overwritten."""

    def save(self, model: str, version: int, tuned: Tuned) -> int:
        """Keep the thresholds of a version, durably; return their epoch, larger than any before."""
        ...

    def load(self, model: str, version: int) -> Tuned | None:
        """Return the newest thresholds of a version; None when it was never tuned."""
        ...
