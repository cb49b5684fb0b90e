"""One threshold for all labels, and a limit of labels a row: for micro-F and for instance-F.

For both measures a common threshold is optimal (Koyejo et al. 2015, "Consistent multilabel
classification"; Jasinska et al. 2016 section 4.2 notes it).

Micro-F is the F-measure of all decisions, whatever their label. So OFO for one binary problem
(Busa-Fekete et al. 2015, "Online F-measure optimization") runs on the decisions of all labels: the
threshold is half the F of the pooled counts, (a + hits) / (b + marks). The deviations are those of
`ofo`, and the limit stays the highest of LIMITS: on two sets of Debian packages the best of them
had 0.08 points more on test rows.

Instance-F is the mean over rows. Each pair of a grid, a threshold and a limit, decides about each
row; the pair with the largest sum of F is in force. `annif optimize` (Suominen et al. 2022, "Annif
and Finto AI") tries limits and thresholds on documents in this way. Here the sums are stored, so
that feedback goes on with them. They are integers, so replicas that add them have the same bits.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadParameter
from xylem.evaluation import EmptyConvention
from xylem.thresholds.methods.ofo import LEAST, Counters, Start, threshold_at, thresholds_of
from xylem_store import F32, I32, I64, U8, inlined

# The F-measure that thresholds are for: the mean over labels, of all decisions, over rows.
Objective = Literal["macro", "micro", "instance"]

OBJECTIVES: tuple[Objective, ...] = ("macro", "micro", "instance")


def check_objective(
    objective: str, methods: Iterable[str], *, has_kappa: bool, has_start: bool
) -> None:
    """Raise BadParameter for an unknown objective, and for options that it does not have.

    methods    the requested methods
    has_kappa  whether kappa is requested; has_start: start values
    """
    if objective not in OBJECTIVES:
        raise BadParameter(f"objective: expected macro, micro or instance, found {objective!r}")
    if objective == "macro":
        return
    for method in methods:
        if method != "ofo":
            raise BadParameter(
                "method: expected ofo, as the other methods tune for macro-F only, found "
                f"{method!r} with the objective {objective!r}"
            )
    if has_kappa:
        raise BadParameter(
            f"kappa: expected it with the objective 'macro' only, found it with {objective!r}"
        )
    if has_start and objective == "instance":
        raise BadParameter(
            "start: expected it with the objectives 'macro' and 'micro', found it with 'instance'"
        )


# The thresholds of the grid, descending.
#
# None is above a half, as the best threshold is half the best F, and none below `ofo.LEAST`.
# Between are the paper's values of FTA, and more where the best ones were found: 1/4 and 1/5 on two
# sets of Debian packages.
PROBABILITIES = tuple(1.0 / c for c in (2, 2.5, 3, 3.5, 4, 5, 6, 7, 10, 20, 50, 100))

# The limits of the grid, ascending: what a person reads, and for rows with many labels more.
#
# Stored sums belong to these limits and thresholds, so the two must not change.
LIMITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50)

# The number of sums: of rows, and of F for each pair of the grid.
N_SUMS = 1 + len(PROBABILITIES) * len(LIMITS)

# An F of 1 in the sums. They have room for eight thousand million rows.
UNIT = 1 << 30

_PROBABILITIES = np.array(PROBABILITIES)
_LIMITS = np.array(LIMITS, np.int64)
_LEAST = np.float32(LEAST)


# An aim for kernels.
#
# The place in OBJECTIVES; the thresholds and limits of the grid; F of a row without true and
# without predicted labels, in UNITs; int64[2], the hits and marks of all labels together; the sums.
KernelAim: TypeAlias = tuple[int, tuple[F32, I64], int, I64, I64]


class Aim(NamedTuple):
    """The F-measure that thresholds are for, and what a common threshold is computed from.

    limit  the most labels of a row; None for macro
    sums   int64[N_SUMS]: the rows, and for each pair the sum of their F, in UNITs; a pair's place
           is 1 + its threshold's place * the number of limits + its limit's place. Zeros for macro
    """

    objective: Objective
    limit: int | None
    sums: I64

    @classmethod
    def begin(cls, objective: Objective) -> Self:
        """Return an objective before the first row."""
        return cls(
            objective, None if objective == "macro" else LIMITS[-1], np.zeros(N_SUMS, np.int64)
        )

    def instance_f(self) -> float | None:
        """Return the mean F of the rows at the best pair, 0 to 1; None before the first row."""
        return float(self.sums[1:].max() / self.sums[0]) / UNIT if self.sums[0] else None

    def common_threshold(
        self, counters: Iterable[NDArray[Any]], start: Start
    ) -> tuple[np.float32, int | None]:
        """Return the common threshold, a score, and the limit, that the counts so far give.

        counters  hits and marks of the labels, integers[K]
        """
        if self.objective == "micro":
            return thresholds_of(
                Counters(*(counts.sum(keepdims=True) for counts in counters)),
                start,
                np.full(1, _LEAST),
            )[0], self.limit
        threshold, limit = divmod(int(np.argmax(self.sums[1:])), len(LIMITS))
        return start.score_of(_PROBABILITIES)[threshold], LIMITS[limit]

    def for_kernel(
        self, counters: Iterable[NDArray[Any]], start: Start, empty: EmptyConvention
    ) -> KernelAim:
        """Return the aim as `decide` takes it; a kernel changes the pooled counts and the sums.

        counters  as `common_threshold` takes them
        """
        # only micro uses them: for the others the sums would be a pass over all labels for nothing
        pooled = [counts.sum() if self.objective == "micro" else 0 for counts in counters]
        return (
            OBJECTIVES.index(self.objective),
            (start.score_of(_PROBABILITIES), _LIMITS.copy()),
            UNIT if empty == "one" else 0,
            np.array(pooled, np.int64),
            self.sums,
        )


MACRO = 0
_MICRO = 1


@inlined
def decide(
    labels: I32,
    scores: F32,
    true: I32,
    allowed: U8,
    start: tuple[float, float, float, float],
    aim: KernelAim,
) -> int:
    """Return how many of a row's best labels are predicted; add the row to the sums.

    labels, scores  the best labels of the row, all that reach the score of LEAST
    true            its true labels
    allowed         uint8[K], 0 for labels that are not counted; [0]: all are

    Cost: O(labels times true), and a pass over the grid. Deterministic.
    """
    objective, (cuts, limits), empty_f, pooled, sums = aim
    limit = limits[-1]
    if objective == _MICRO:
        cut = threshold_at(pooled[0], pooled[1], start, _LEAST)
    else:
        pair = np.argmax(sums[1:])
        cut = cuts[pair // len(limits)]
        limit = limits[pair % len(limits)]
    n_true = len(true)
    if len(allowed) > 0:
        n_true = allowed[true].sum()
    n_hits = np.zeros(len(labels) + 1, np.int64)  # among the first n labels
    for n in range(len(labels)):
        n_hits[n + 1] = n_hits[n] + (true == labels[n]).sum()
    n_reached = 0
    sums[0] += 1
    for i in range(len(cuts)):
        while n_reached < len(labels) and scores[n_reached] >= cuts[i]:
            n_reached += 1
        for j in range(len(limits)):
            n = min(n_reached, limits[j])
            f = 2 * n_hits[n] * UNIT // (n + n_true) if n + n_true > 0 else empty_f
            sums[1 + i * len(limits) + j] += f
    n_predicted = 0
    while n_predicted < min(limit, len(labels)) and scores[n_predicted] >= cut:
        n_predicted += 1
    return n_predicted
