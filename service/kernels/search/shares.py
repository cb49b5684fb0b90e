"""The features that added most to a node's margin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.decorators import nonallocating_kernel as kernel

FEATURES_MAX = 5
"""So many features a node are told, those that added or took away most."""

NO_FEATURE = -1
"""Stands behind the last feature where a node has fewer."""

_LARGEST = np.float32(np.finfo(np.float32).max)


@inlined
def keep_share(
    feature: int, share: np.float32, features_out: NDArray[np.int32], shares_out: NDArray[np.float32]
) -> None:
    """Put a feature among those that added most so far, if it belongs there; of equals the first one stays.

    features_out  int32[FEATURES_MAX], NO_FEATURE behind the last one
    shares_out    float32[FEATURES_MAX]: by absolute value, descending
    A share of 0 or none is left out; one beyond a float32 counts as its largest number.
    """
    if abs(share) > 0:
        share = min(max(share, -_LARGEST), _LARGEST)
        size = abs(share)
        place = FEATURES_MAX
        while place > 0 and (features_out[place - 1] < 0 or abs(shares_out[place - 1]) < size):
            if place < FEATURES_MAX:
                features_out[place] = features_out[place - 1]
                shares_out[place] = shares_out[place - 1]
            place -= 1
        if place < FEATURES_MAX:
            features_out[place] = feature
            shares_out[place] = share


@kernel
def keep_shares(
    features: NDArray[np.int32],
    shares: NDArray[np.float32],
    features_out: NDArray[np.int32],
    shares_out: NDArray[np.float32],
) -> None:
    """Choose among features, int32[n], by what each added, float32[n]; outputs as of `keep_share`."""
    features_out[:] = NO_FEATURE
    for i in range(len(features)):
        keep_share(features[i], shares[i], features_out, shares_out)
