"""From counts to weighted and normalised rows."""

from __future__ import annotations

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.features.parameters import Norm

NORM_CODES = {norm: code for code, norm in enumerate(get_args(Norm))}
"""Norms as kernels take them."""

_L2, _L1, _NONE = range(3)


def idf_of(frequency: NDArray[np.int64], n_texts: int, smooth: bool) -> NDArray[np.float32]:
    """Return the inverse document frequencies of features that so many of n_texts texts have.

    smooth  as if one more text had every feature. Source: scikit-learn, TfidfTransformer.
    """
    extra = int(smooth)
    return (np.log((n_texts + extra) / (frequency + extra)) + 1.0).astype(np.float32)


@kernel
def weigh_counts(
    indices: NDArray[np.int32], values: NDArray[np.float32], idf: NDArray[np.float32], sublinear_tf: int
) -> None:
    """Turn counts into tf-idf weights, in place: (1 + ln(count), or the count) times idf[feature].

    An empty `idf` stands for ones. Source: scikit-learn, TfidfTransformer.
    """
    for i in range(len(indices)):
        weight = np.float64(values[i])
        if sublinear_tf and weight != 1.0:
            weight = 1.0 + np.log(weight)
        if len(idf):
            weight *= idf[indices[i]]
        values[i] = np.float32(weight)


def normalise(indptr: NDArray[np.int64], values: NDArray[np.float32], norm: Norm) -> None:
    """Scale every row as `norm` says, in place; a row of zeros stays as it is."""
    normalise_rows(indptr, values, NORM_CODES[norm])


@kernel
def normalise_rows(indptr: NDArray[np.int64], values: NDArray[np.float32], code: int) -> None:
    """Do as `normalise`, in a kernel; `code` is one of NORM_CODES."""
    if code == _NONE:
        return
    for row in range(len(indptr) - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            value = np.float64(values[i])
            total += value * value if code == _L2 else abs(value)
        if total > 0.0:
            scale = np.sqrt(total) if code == _L2 else total
            for i in range(indptr[row], indptr[row + 1]):
                values[i] = np.float32(np.float64(values[i]) / scale)


@kernel
def weighted_rows(
    counts: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    idf: NDArray[np.float32],
    sublinear_tf: int,
    norm: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return rows of counts (indptr, indices, values) as rows of weights, scaled; the arrays are used up.

    idf, sublinear_tf  as `weigh_counts` takes them
    norm               one of NORM_CODES
    """
    indptr, indices, values = counts
    weigh_counts(indices, values, idf, sublinear_tf)
    normalise_rows(indptr, values, norm)
    return indptr, indices, values
