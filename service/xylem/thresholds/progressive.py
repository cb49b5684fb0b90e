"""OFO beside a training: thresholds from rows that are predicted before they are learnt.

Source: Jasinska et al. 2016, section 4.3. Deviations: a row is predicted by the trees as they were
when its part of the first pass began, not by those of the row before; the start values are chosen
from STARTS.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadData, LabelRows
from xylem.engine import Searcher, make_predictor, predict_parts
from xylem.evaluation import USUAL_EMPTY
from xylem.thresholds import (
    Counters,
    EstimateKeeper,
    Estimates,
    Start,
    ThresholdDatabase,
    Tuned,
    count_at,
    count_rows,
    lower_bounds,
    no_counts,
    thresholds_of,
)
from xylem.trainers import PARTS, RowSource, Trained, TrainingSet
from xylem.workflows.choose_features import trial_model
from xylem_store import F32, Manifest, TreeEnsemble

STARTS = tuple(
    Start(a, a * ratio) for a in (1.0, 3.0, 10.0, 100.0) for ratio in (2.0, 4.0, 10.0, 20.0)
)
"""The start values that are tried, each with its own counters and thresholds: 20 bytes a label."""

LATE_SHARE = 0.2
LATE_ROWS_MIN = 100
LATE_ROWS_MAX = 1 << 16
"""The bounds for the number of late rows, which are the last rows of the first pass.

They are the share LATE_SHARE of all rows within these bounds. Start values are chosen by how good
their final thresholds are on the late rows: the trees are then most like those that are published.
"""


class _Learner(NamedTuple):
    """OFO from some start values."""

    start: Start
    counters: Counters
    thresholds: F32


class ProgressiveThresholds:
    """An OnRows that finds thresholds; scores must be probabilities (link logistic).

    n_rows  number of rows that have been counted

    Memory: the model so far, predictions of 2^24 places at a time, the estimates and labels of
    LATE_ROWS_MAX rows, and 340 bytes a label.
    """

    def __init__(self, source: RowSource, threads: int, database: ThresholdDatabase) -> None:
        """Take a source whose rows are counted, and the database that stores the thresholds."""
        self.n_rows = 0
        self._database = database
        self._source = source
        self._threads = threads
        self._ensemble: TreeEnsemble | None = None
        self._predictor: Searcher | None = None
        self._bounds = np.empty(0, np.float32)
        self._learners: list[_Learner] = []
        self._late = EstimateKeeper(self._bounds)
        self._truth: list[LabelRows] = []

    def __call__(self, ensemble: TreeEnsemble, data: TrainingSet) -> None:
        """Count rows; they are predicted by the trees so far, under the thresholds so far."""
        if not self._learners:
            census = self._source.census
            n_labels = len(census.label_rows)
            self._bounds = lower_bounds(census.label_rows, census.n_rows, n_labels)
            self._late = EstimateKeeper(self._bounds)
            for start in STARTS:
                thresholds = thresholds_of(no_counts(n_labels), start, self._bounds)
                self._learners.append(_Learner(start, no_counts(n_labels), thresholds))
        if ensemble is not self._ensemble:
            self._ensemble, self._predictor = (
                ensemble,
                predictor_so_far(ensemble, data.rows.n_features),
            )
        assert self._predictor is not None
        floor = self._predictor.node_thresholds(self._bounds)
        first = 0
        for predictions in predict_parts(
            self._predictor, data.rows, lambda: floor, self._threads, lambda n: None
        ):
            n = len(predictions.ptr) - 1
            estimates = Estimates(
                predictions.ptr, predictions.labels, predictions.scores, self._bounds
            )
            truth = data.labels.cut(first, first + n)
            for start, counters, thresholds in self._learners:
                count_rows(estimates, truth, self._bounds, start, counters, thresholds)
            self._keep_late(estimates, truth)
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
        version = manifest.model, manifest.version
        return {
            "method": "ofo",
            "epoch": self._database.save(*version, self.tuned(), manifest.digest),
            "rows": self.n_rows,
            "start": [best.start.a, best.start.b],
            "validation_macro_f": self._macro_f(best),
        }

    def _keep_late(self, estimates: Estimates, truth: LabelRows) -> None:
        n_rows = self._source.census.n_rows
        n_left = n_rows - n_rows // PARTS - self.n_rows
        n_kept = sum(part.n_rows for part in self._truth)
        if n_left <= max(LATE_SHARE * n_rows, LATE_ROWS_MIN) and n_kept < LATE_ROWS_MAX:
            self._late.add(estimates.ptr, estimates.labels, estimates.scores)
            self._truth.append(truth)

    def _macro_f(self, learner: _Learner) -> float:
        """Return the macro-F of thresholds on the late rows, in percent."""
        estimates = self._late.all()
        truth = LabelRows.join(self._truth)
        thresholds = np.maximum(learner.thresholds, estimates.floor)
        return 100.0 * count_at(estimates, truth, thresholds).macro_f(USUAL_EMPTY)


def predictor_so_far(ensemble: TreeEnsemble, n_features: int) -> Searcher:
    """Return a predictor of trees that are not a version yet."""
    trained = Trained(ensemble, "label-tree", "logistic", {}, 0)
    return make_predictor(trial_model(trained, ensemble.label_leaf.shape[1], n_features, "plt"))
