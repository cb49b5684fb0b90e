"""What re-ranking by the labels' mean rows needs: the arrays "tail/..." of a version."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows
from service.trainers.representations import label_sums, squared_lengths


def rerank_arrays(rows: SparseRows, labels: LabelRows, alpha: float, gamma: float) -> dict[str, NDArray[Any]]:
    """Return the mean row mu_l of each label l, and how much a prediction heeds it.

    Source: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions", section 4 (the tail-label
    classifiers of PFastreXML), as its authors' code has it: a prediction re-scores a label that the trees
    give the score P with P^alpha * exp(-gamma / 2 * |x - mu_l|^2)^(1 - alpha), x scaled to length 1.

    rows    any scaling: a row counts at length 1; a row without features counts as 0 in the mean
    labels  as many rows; a label without rows has an empty mean
    alpha   in [0, 1]; 1: the trees alone
    gamma   >= 0, finite

    Returns "tail/ptr" int64[K + 1], "tail/features" int32[nnz] ascending within a label, "tail/values"
    float32[nnz], "tail/norm2" float32[K] = |mu_l|^2 and "tail/parameters" float32[2] = (alpha, gamma). Raises
    BadParameter. Cost: the non-zeros of each row once for each of its labels; memory of the result.
    Deterministic.
    """
    if not 0.0 <= alpha <= 1.0:
        raise BadParameter(f"alpha: expected a number from 0 to 1, found {alpha!r}")
    if not 0.0 <= gamma < np.inf:
        raise BadParameter(f"gamma: expected a finite number >= 0, found {gamma!r}")
    scaled: Any = _at_length_one(rows)
    sums = label_sums(rows._replace(values=scaled), labels)
    counts = np.bincount(labels.indices, minlength=labels.n_labels)
    values = sums.data / np.repeat(np.maximum(counts, 1), np.diff(sums.indptr))
    return {
        "tail/ptr": sums.indptr.astype(np.int64),
        "tail/features": sums.indices.astype(np.int32),
        "tail/values": values.astype(np.float32),
        "tail/norm2": squared_lengths(values, sums.indptr).astype(np.float32),
        "tail/parameters": np.array([alpha, gamma], np.float32),
    }


def _at_length_one(rows: SparseRows) -> NDArray[np.float64]:
    """Return the values of the rows scaled to length 1; a row of zeros stays."""
    lengths = np.sqrt(squared_lengths(rows.values, rows.indptr))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    scaled: NDArray[np.float64] = rows.values * np.repeat(scale, np.diff(rows.indptr))
    return scaled
