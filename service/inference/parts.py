"""All labels of many rows that reach their thresholds, part by part, so that memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from model_store.compiled.handles import I32, I64
from service.base.rows import SparseRows
from service.inference.answering import Predictions
from service.inference.predictor import NodeThresholds, PredictOptions
from service.inference.searcher import Searcher

PLACES_MAX = 1 << 24
"""Places for predicted labels at a time: rows of a part times labels of the model."""


def predict_parts(
    predictor: Searcher,
    rows: SparseRows,
    threshold_of: Callable[[], float | NodeThresholds],
    threads: int,
    on_done: Callable[[int], None],
) -> Iterator[Predictions]:
    """Yield the predictions of the rows, one part after the other.

    threshold_of  is asked for the threshold of each part
    on_done       is told how many rows have been answered
    """
    step = max(1, PLACES_MAX // predictor.n_labels)
    for first in range(0, rows.n_rows, step):
        on_done(first)
        options = PredictOptions(top_r=predictor.n_labels, exact=True, threshold=threshold_of())
        yield predictor.predict(rows.cut(first, first + step), options, threads)
    on_done(rows.n_rows)


def predict_all(
    predictor: Searcher,
    rows: SparseRows,
    threshold: float | NodeThresholds,
    threads: int,
    on_done: Callable[[int], None],
) -> tuple[I64, I32]:
    """Return (ptr int64[n + 1], labels int32[..]): all labels of each row that reach the threshold."""
    return labels_of(predict_parts(predictor, rows, lambda: threshold, threads, on_done))


def labels_of(parts: Iterable[Predictions]) -> tuple[I64, I32]:
    """Return (ptr int64[n + 1], labels int32[..]) of the answers of parts, without their scores."""
    ptrs, labels = [np.zeros(1, np.int64)], []
    for found in parts:
        ptrs.append(found.ptr[1:] + ptrs[-1][-1])
        labels.append(found.labels)
    return np.concatenate(ptrs), np.concatenate(labels)
