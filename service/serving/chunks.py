"""Instances -> rows, long texts divided into chunks: a row for each (`service.inference.chunks`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.base.errors import BadInput
from service.base.rows import SparseRows
from service.features import Featurizer
from service.inference.answering import Predictions
from service.inference.chunks import chunks_of, search_chunks
from service.inference.predictor import NodeThresholds, PredictOptions
from service.serving.rows import to_rows, transform, unknown_rows
from service.serving.schemas.instances import AnyInstance, TextInstance
from service.serving.served import ServedVersion


class ChunkedRows(NamedTuple):
    """Rows of instances, some of which are divided.

    rows      a row for each chunk
    ptr       int64[n + 1]: instance i has the rows ptr[i] to ptr[i + 1]; None: each has one
    unknown   the instances of which the model knows nothing
    """

    rows: SparseRows
    ptr: NDArray[np.int64] | None
    unknown: list[int]


def to_chunked_rows(
    instances: Sequence[AnyInstance], featurizer: Featurizer, most: int | None
) -> ChunkedRows:
    """Return the rows of instances, texts in chunks of at most so many characters; None: undivided.

    Raises BadInstance as `service.serving.rows.to_rows`.
    """
    try:
        return divided(instances, featurizer, most)
    except BadInput:
        to_rows(instances, featurizer)  # which names the instance
        raise


def divided(instances: Sequence[AnyInstance], featurizer: Featurizer, most: int | None) -> ChunkedRows:
    """Do as `to_chunked_rows`, but for an error, which need not name the instance."""
    if most is None:
        rows = transform(instances, featurizer)
        return ChunkedRows(rows, None, unknown_rows(instances, rows))
    chunks: list[AnyInstance] = []
    ptr = np.zeros(len(instances) + 1, np.int64)
    for i, instance in enumerate(instances):
        if isinstance(instance, TextInstance) and len(instance.text) > most:
            chunks += [TextInstance(text=chunk) for chunk in chunks_of(instance.text, most)]
        else:
            chunks.append(instance)
        ptr[i + 1] = len(chunks)
    rows = transform(chunks, featurizer)
    is_unknown = np.zeros(len(chunks) + 1, np.int64)
    is_unknown[[chunk + 1 for chunk in unknown_rows(chunks, rows)]] = 1
    n_unknown = np.diff(np.cumsum(is_unknown)[ptr])
    return ChunkedRows(rows, ptr, np.flatnonzero(n_unknown == np.diff(ptr)).tolist())


def search_chunked(
    search: Callable[[SparseRows, PredictOptions], Predictions],
    chunked: ChunkedRows,
    options: PredictOptions,
    served: ServedVersion,
) -> Predictions:
    """Return the answers to instances, by a search of rows."""
    if chunked.ptr is None:
        return search(chunked.rows, options)
    threshold = options.threshold
    least = served.thresholds.thresholds if isinstance(threshold, NodeThresholds) else threshold
    return search_chunks(search, chunked.rows, chunked.ptr, options, served.labels.n_names, least)
