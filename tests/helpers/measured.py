"""Evaluate a version on a file as `xylem evaluate` does, and run OFO over rows."""

from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import LabelRows, SparseRows, no_progress
from xylem.engine import Searcher
from xylem.evaluation import USUAL_EMPTY
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, thresholds_of
from xylem.thresholds.store.codec import Tuned
from xylem.workflows.evaluate import evaluate_rows
from xylem.workflows.labelled import read_labelled
from xylem.workflows.tuning import learn
from xylem_store.version import Model


def evaluate(model: Model, data: Path, threads: int = 1, **options: Any) -> dict[str, Any]:
    """Return the object of `xylem evaluate --json`; the options are those of `evaluate_rows`."""
    return evaluate_rows(model, read_labelled(model, data, no_progress), threads, **options).report


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
