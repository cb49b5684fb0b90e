"""Thresholds that OFO finds beside a training: what the training has for them."""

from xylem.engine import Searcher, make_predictor
from xylem.thresholds import ProgressiveThresholds, ThresholdDatabase
from xylem.trainers import PARTS, RowSource, Trained
from xylem.workflows.choose_features import trial_model
from xylem_store import I64, TreeEnsemble


def thresholds_beside(
    source: RowSource, threads: int, database: ThresholdDatabase
) -> ProgressiveThresholds:
    """Return an OnRows that finds thresholds on the rows of a source, and stores them."""

    def count() -> tuple[I64, int]:
        n_rows, label_rows = source.census.weighed.rounded()
        return label_rows, n_rows

    return ProgressiveThresholds(
        count, predictor_so_far, n_parts=PARTS, threads=threads, database=database
    )


def predictor_so_far(ensemble: TreeEnsemble, n_features: int) -> Searcher:
    """Return a predictor of trees that are not a version yet."""
    return make_predictor(
        trial_model(
            Trained(ensemble, "label-tree", "logistic", {}, 0),
            ensemble.label_leaf.shape[1],
            n_features,
            "plt",
        )
    )
