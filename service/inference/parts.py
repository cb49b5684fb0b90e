"""All labels of many rows that reach their thresholds, part by part, so that memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from model_store.compiled.handles import F32, I32, I64
from service.base.rows import SparseRows
from service.inference.answering import Predictions
from service.inference.chunks import CHUNK_LABELS, mean_of
from service.inference.predictor import NodeThresholds, PredictOptions
from service.inference.searcher import Searcher

PLACES_MAX = 1 << 24
"""Places for predicted labels at a time: rows of a part times labels of the model."""

CHUNK_PLACES_MAX = PLACES_MAX // 8
"""The same of chunks, whose means take eight times the memory."""


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


def predict_chunked_parts(
    predictor: Searcher,
    rows: SparseRows,
    ptr: I64,
    top_r: int,
    least: F32 | float | None,
    threads: int,
    on_done: Callable[[int], None],
) -> Iterator[Predictions]:
    """Yield the predictions of texts whose chunks the rows are, one part after the other.

    ptr, top_r, least  as `service.inference.chunks.mean_of` takes them; of a chunk CHUNK_LABELS labels count
    on_done            is told how many texts have been answered
    """
    n, n_labels = len(ptr) - 1, predictor.n_labels
    options = PredictOptions(top_r=min(CHUNK_LABELS, n_labels))
    most, first = CHUNK_PLACES_MAX // options.top_r, 0
    while first < n:
        on_done(first)
        last = max(first + 1, int(np.searchsorted(ptr, ptr[first] + most, "right")) - 1)
        part = rows.cut(int(ptr[first]), int(ptr[last]))
        found = predictor.predict(part, options, threads)
        has_features = np.diff(part.indptr) > 0
        yield mean_of(found, ptr[first : last + 1] - ptr[first], has_features, n_labels, top_r, least)
        first = last
    on_done(n)


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


def joined(parts: Iterable[Predictions]) -> Predictions:
    """Return the answers of parts as one."""
    found = list(parts)
    ptr, labels = labels_of(found)
    scores, exact, costs = (np.concatenate(each) for each in zip(*(part[2:] for part in found), strict=True))
    return Predictions(ptr, labels, scores, exact, costs)
