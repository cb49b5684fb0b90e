"""Training rows that a version keeps, so that it can be extended, and old rows and new ones together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.manifest import ROWS
from model_store.version import Model, at_rest
from service.base.rows import LabelRows, SparseRows, offsets
from service.trainers.representations import matrix_of
from service.trainers.source import TrainingSet

_PARTS = ("indptr", "indices", "values", "label_ptr", "label_idx")


def kept_rows(data: TrainingSet) -> dict[str, NDArray[Any]]:
    """Return the arrays that keep training rows with a version."""
    rows, labels = data
    found: tuple[NDArray[Any], ...] = (*rows[:3], *labels[:2])
    return {f"{ROWS}/{name}": array for name, array in zip(_PARTS, found, strict=True)}


def keeps_rows(model: Model) -> bool:
    """Return whether a version keeps its training rows."""
    return f"{ROWS}/{_PARTS[0]}" in model.arrays


def read_kept(model: Model) -> TrainingSet | None:
    """Return the training rows that a version keeps, None if it keeps none. Raises Corrupt."""
    if not keeps_rows(model):
        return None
    arrays = at_rest(model, ROWS)
    indptr, indices, values, label_ptr, label_idx = (arrays[f"{ROWS}/{name}"] for name in _PARTS)
    manifest = model.manifest
    rows = SparseRows(indptr, indices, values, manifest.n_features)
    return TrainingSet(rows, LabelRows(label_ptr, label_idx, manifest.n_labels))


def join_rows(old: TrainingSet, new: TrainingSet) -> TrainingSet:
    """Return old and new rows; a new row that is an old one, to the bit, gives that its labels.

    Otherwise the document that shows what a new label is would be, without it, one of what it is not.
    """
    data = TrainingSet.join([old, new])
    rows, labels = data
    sums = matrix_of(rows) @ np.random.default_rng(0).random(rows.n_features)
    into, first = np.arange(rows.n_rows), dict[bytes, int]()
    for row in np.flatnonzero(np.isin(sums, sums[old.n_rows :]) & (np.diff(rows.indptr) > 0)).tolist():
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        key = rows.indices[part].tobytes() + rows.values[part].tobytes()
        if row < old.n_rows:
            first.setdefault(key, row)
        else:
            into[row] = first.get(key, row)
    carrier = np.repeat(into, np.diff(labels.indptr)).astype(np.int64)
    pairs = np.sort(carrier * labels.n_labels + labels.indices)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # each once; numpy's unique takes ten times as long
    carrier, label = np.divmod(pairs, labels.n_labels)
    indptr = offsets(np.bincount(carrier, minlength=rows.n_rows))
    merged = LabelRows(indptr, label.astype(np.int32), labels.n_labels)
    return TrainingSet(rows, merged).take(np.flatnonzero(into == np.arange(rows.n_rows)))
