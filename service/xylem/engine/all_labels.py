"""All labels of many rows that reach a threshold, predicted part by part."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from xylem.base import SparseRows
from xylem.engine.answering import Predictions
from xylem.engine.options import (
    NodeThresholds as NodeThresholds,
    NodeWeights as NodeWeights,
    PredictOptions as PredictOptions,
)
from xylem.engine.searcher import Searcher
from xylem_store import (
    I32,
    I64,
)

# The most places for predicted labels at a time: rows of a part times labels of the model.
PLACES_MAX = 1 << 24


def predict_parts(
    predictor: Searcher,
    rows: SparseRows,
    threshold_of: Callable[[], float | NodeThresholds],
    threads: int,
    on_done: Callable[[int], None],
    limit: int | None = None,
) -> Iterator[Predictions]:
    """Yield the predictions of the rows, one part after the other.

    threshold_of  returns the threshold; it is called for each part
    on_done       is called with the number of rows that have been predicted
    limit         the most labels of a row, the best ones; None: all labels
    """
    step = max(1, PLACES_MAX // predictor.n_labels)
    for first in range(0, rows.n_rows, step):
        on_done(first)
        options = PredictOptions(
            top_r=predictor.n_labels, exact=True, threshold=threshold_of(), limit=limit
        )
        yield predictor.predict(rows.cut(first, first + step), options, threads)
    on_done(rows.n_rows)


def predict_all(
    predictor: Searcher,
    rows: SparseRows,
    threshold: float | NodeThresholds,
    threads: int,
    on_done: Callable[[int], None],
    limit: int | None = None,
) -> tuple[I64, I32]:
    """Return (ptr int64[n + 1], labels int32[..]), the labels that reach the threshold.

    These are all of them, or the best ones if a row has more than `limit`. Row i has
    labels[ptr[i] : ptr[i + 1]].
    """
    return labels_of(predict_parts(predictor, rows, lambda: threshold, threads, on_done, limit))


def labels_of(parts: Iterable[Predictions]) -> tuple[I64, I32]:
    """Join the predictions of parts; return (ptr int64[n + 1], labels int32[..])."""
    ptrs = [np.zeros(1, np.int64)]
    labels = []
    for predictions in parts:
        ptrs.append(predictions.ptr[1:] + ptrs[-1][-1])
        labels.append(predictions.labels)
    return np.concatenate(ptrs), np.concatenate(labels)
