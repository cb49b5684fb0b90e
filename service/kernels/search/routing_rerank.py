"""Re-ranking: how near a row is to the mean row of a label's training rows counts beside the trees.

Source: Jain et al. 2016 (PFastreXML), the re-ranking of its tail labels; LdSM (Majzoubi and Choromanska 2019)
uses the same. A label that the trees give the score P is scored P^alpha * exp(-gamma / 2 * |x - mu|^2)^(1 -
alpha), x the row at length 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.rerank import Rerank

NO_RERANK = Rerank(
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.float32),
)
"""Of a model that does not re-rank."""

_ZERO = np.float32(0.0)


@inlined
def spread_row(
    indices: NDArray[np.int32], values: NDArray[np.float32], dense_row: NDArray[np.float32]
) -> np.float32:
    """Write the row at length 1 into zeros, float32[D]; return |x|^2: 1, or 0 for a row of zeros.

    Lengths are computed in float64, so that no finite value overflows.
    """
    square = 0.0
    for i in range(len(values)):
        square += np.float64(values[i]) * np.float64(values[i])
    if square == 0.0:
        return _ZERO
    scale = 1.0 / np.sqrt(square)
    for i in range(len(indices)):
        dense_row[indices[i]] = np.float32(values[i] * scale)
    return np.float32(1.0)


@inlined
def clear_row(indices: NDArray[np.int32], dense_row: NDArray[np.float32]) -> None:
    """Set what `spread_row` wrote to zero again."""
    for i in range(len(indices)):
        dense_row[indices[i]] = _ZERO


@inlined
def share_of_trees(rerank: Rerank, score: np.float32) -> np.float32:
    """Return P^alpha, which the re-ranked score does not exceed."""
    return np.float32(np.exp(rerank.parameters[0] * np.log(score)))


@inlined
def nearness(
    rerank: Rerank, label: int, row_square: np.float32, dense_row: NDArray[np.float32]
) -> np.float32:
    """Return exp(-gamma / 2 * |x - mu|^2)^(1 - alpha), in [0, 1], of the row spread in `dense_row`.

    The products are added by ascending feature. Cost: the features of the mean row.
    """
    product = _ZERO
    for i in range(rerank.ptr[label], rerank.ptr[label + 1]):
        product += rerank.values[i] * dense_row[rerank.features[i]]
    distance = row_square - np.float32(2.0) * product + rerank.norm2[label]
    distance = distance if distance > _ZERO else _ZERO
    rate = np.float32(0.5) * (np.float32(1.0) - rerank.parameters[0]) * rerank.parameters[1]
    return np.float32(np.exp(-rate * distance))
