"""Evaluate a version on a file as `xylem evaluate` does, and run OFO over rows."""

from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import LabelRows, SparseRows, no_progress
from xylem.base.db.engine import Database, default_url
from xylem.engine import Searcher
from xylem.evaluation import USUAL_EMPTY
from xylem.thresholds.methods.aims import LIMITS, PROBABILITIES, UNIT
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, thresholds_of
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import learn
from xylem.workflows.evaluate import evaluate_rows
from xylem.workflows.labelled import read_labelled
from xylem_store.store import Store
from xylem_store.version import Model


def evaluate(model: Model, data: Path, threads: int = 1, **options: Any) -> dict[str, Any]:
    """Return the object of `xylem evaluate --json`; the options are those of `evaluate_rows`."""
    return evaluate_rows(model, read_labelled(model, data, no_progress), threads, **options).report


LIMIT = 3
LEAST = np.float32(PROBABILITIES[-1])
"""The limit and the threshold of `with_limits`."""


def with_limits(store: Store) -> Store:
    """Tune the versions `raw` and `text` of a store to the threshold LEAST and the limit LIMIT."""
    best = (len(PROBABILITIES) - 1) * len(LIMITS) + LIMITS.index(LIMIT)
    database = Database(default_url(store.root))
    for name in ("raw", "text"):
        manifest = store.open(name).manifest
        state = Tuned.begin("instance", USUAL_EMPTY, Start(), np.full(manifest.n_labels, LEAST))
        state.aim.sums[0] = 1  # a row, on which this pair was the best
        state.aim.sums[1 + best] = UNIT
        ThresholdDatabase(database).save(name, manifest.version, state, manifest.digest)
    database.close()
    return store


def tuned_to(thresholds: Any, objective: Any = "macro", limit: int | None = None) -> Tuned:
    """Return a state with these thresholds, float32[K]."""
    begun = Tuned.begin(objective, USUAL_EMPTY, Start(), np.full(len(thresholds), 0.01, np.float32))
    aim = begun.aim._replace(limit=limit or begun.aim.limit)
    return begun._replace(thresholds=np.asarray(thresholds, np.float32), aim=aim)


def learnt(
    predictor: Searcher,
    rows: SparseRows,
    truth: LabelRows,
    start: Start,
    label_counts: Any,
    n_rows: int,
    counters: Counters | None = None,
) -> tuple[Counters, Any]:
    """Return the counters and the thresholds of OFO after rows, and after counters before them."""
    bounds = lower_bounds(label_counts, n_rows, truth.n_labels)
    begun = Tuned.begin("macro", USUAL_EMPTY, start, bounds)
    if counters is not None:
        before = thresholds_of(counters, start, bounds)
        begun = begun._replace(counters=counters, thresholds=before)
    final = learn(predictor, rows, truth, begun, label_counts, n_rows, no_progress)
    return final.counters, final.thresholds
