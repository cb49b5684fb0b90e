"""What tuning leaves with a version: thresholds, how they came about, and the counters that go on growing."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.evaluation.fmeasure import EmptyConvention
from service.thresholds.methods.ofo import Counters, Start

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
