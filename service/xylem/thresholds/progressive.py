"""OFO beside a training: thresholds from rows that are predicted before they are learnt.

Source: Jasinska et al. 2016, section 4.3. Deviations: a row is predicted by the trees as they were
when its part of the first pass began, not by those of the row before; the start values are chosen
from STARTS.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from xylem.base import BadData, LabelRows, SparseRows
from xylem.engine import Searcher, predict_parts
from xylem.evaluation import USUAL_EMPTY
from xylem.thresholds.methods.estimates import EstimateKeeper, Estimates, count_at
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.methods.starts import count_rows
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem_store import F32, I64, Manifest, TreeEnsemble

# The start values that are tried, each with its own counters and thresholds: 20 bytes a label.
STARTS = tuple(
    Start(a, a * ratio) for a in (1.0, 3.0, 10.0, 100.0) for ratio in (2.0, 4.0, 10.0, 20.0)
)

# The bounds for the number of late rows, which are the last rows of the first pass.
#
# They are the share LATE_SHARE of all rows within these bounds. Start values are chosen by how good
# their final thresholds are on the late rows: the trees are then most like those that are
# published.
LATE_SHARE = 0.2
LATE_ROWS_MIN = 100
LATE_ROWS_MAX = 1 << 16


class _Learner(NamedTuple):
    """OFO from some start values."""

    start: Start
    counters: Counters
    thresholds: F32


# Returns the number of training rows of each label, int64[K], and of all rows.
CountRows: TypeAlias = Callable[[], tuple[I64, int]]

# Returns a predictor of trees that are not a version yet, for rows with this number of features.
PredictorSoFar: TypeAlias = Callable[[TreeEnsemble, int], Searcher]


class ProgressiveThresholds:
    """Finds thresholds as an OnRows of a training; scores must be probabilities (link logistic).

    count     counts the training's rows
    n_parts   the number of parts of the first pass over the rows; rows of the first part are not
              predicted
    database  stores the thresholds
    n_rows    number of rows that have been counted

    Memory: the model so far, predictions of 2^24 places at a time, the estimates and labels of
    LATE_ROWS_MAX rows, and 340 bytes a label.
    """

    def __init__(
        self,
        count: CountRows,
        predictor_so_far: PredictorSoFar,
        *,
        n_parts: int,
        threads: int,
        database: ThresholdDatabase,
    ) -> None:

        self.n_rows = 0
        self._database = database
        self._count = count
        self._predictor_so_far = predictor_so_far
        self._n_parts = n_parts
        self._threads = threads
        self._n_training_rows = 0
        self._ensemble: TreeEnsemble | None = None
        self._predictor: Searcher | None = None
        self._bounds = np.empty(0, np.float32)
        self._learners: list[_Learner] = []
        self._late = EstimateKeeper(self._bounds)
        self._truth: list[LabelRows] = []

    def __call__(self, ensemble: TreeEnsemble, data: tuple[SparseRows, LabelRows]) -> None:
        """Count rows; they are predicted by the trees so far, under the thresholds so far."""
        rows, labels = data
        if not self._learners:
            label_rows, self._n_training_rows = self._count()
            n_labels = len(label_rows)
            self._bounds = lower_bounds(label_rows, self._n_training_rows, n_labels)
            self._late = EstimateKeeper(self._bounds)
            for start in STARTS:
                thresholds = thresholds_of(no_counts(n_labels), start, self._bounds)
                self._learners.append(_Learner(start, no_counts(n_labels), thresholds))
        if ensemble is not self._ensemble:
            self._ensemble = ensemble
            self._predictor = self._predictor_so_far(ensemble, rows.n_features)
        assert self._predictor is not None
        floor = self._predictor.node_thresholds(self._bounds)
        first = 0
        for predictions in predict_parts(
            self._predictor, rows, lambda: floor, self._threads, lambda n: None
        ):
            n = len(predictions.ptr) - 1
            estimates = Estimates(
                predictions.ptr, predictions.labels, predictions.scores, self._bounds
            )
            truth = labels.cut(first, first + n)
            for start, counters, thresholds in self._learners:
                count_rows(estimates, truth, self._bounds, start, counters, thresholds)
            n_rows = self._n_training_rows
            n_left = n_rows - n_rows // self._n_parts - self.n_rows
            n_kept = sum(part.n_rows for part in self._truth)
            if n_left <= max(LATE_SHARE * n_rows, LATE_ROWS_MIN) and n_kept < LATE_ROWS_MAX:
                self._late.add(estimates.ptr, estimates.labels, estimates.scores)
                self._truth.append(truth)
            first += n
            self.n_rows += n

    def check(self) -> None:
        """Raise BadData if no row was counted."""
        if not self._learners:
            raise BadData("thresholds: expected two rows at least to find them on, found one")

    def tuned(self) -> Tuned:
        """Return the thresholds of the best start values."""
        best = max(self._learners, key=self._macro_f)
        return Tuned("ofo", USUAL_EMPTY, best.start, best.thresholds, best.counters)

    def keep(self, manifest: Manifest) -> dict[str, Any]:
        """Store the thresholds with a version, and return a report on them.

        `validation_macro_f` is of the late rows.
        """
        best = max(self._learners, key=self._macro_f)
        return {
            "method": "ofo",
            "epoch": self._database.save(
                manifest.model, manifest.version, self.tuned(), manifest.digest
            ),
            "rows": self.n_rows,
            "start": [best.start.a, best.start.b],
            "validation_macro_f": self._macro_f(best),
        }

    def _macro_f(self, learner: _Learner) -> float:
        """Return the macro-F of thresholds on the late rows, in percent."""
        estimates = self._late.all()
        return 100.0 * count_at(
            estimates, LabelRows.join(self._truth), np.maximum(learner.thresholds, estimates.floor)
        ).macro_f(USUAL_EMPTY)
