"""Re-ranking arrays: what a decision-tree ensemble needs to re-rank its candidates, and their checks.

Source: the re-ranking of Jain et al. 2016 (PFastreXML); FORMAT.md says the arrays. A version has all of them
or none, and only a decision-tree ensemble has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import at, take
from model_store.compiled.decorators import kernel
from model_store.compiled.handles import F32_1, I32_1, I64_1, handle
from model_store.errors import Corrupt
from model_store.manifest import Manifest

RERANK = "tail"
"""How the names of these arrays begin."""


@handle
class Rerank(NamedTuple):
    """The mean row of every label, and how much it counts.

    ptr         int64[K + 1]  label l has features[ptr[l] : ptr[l + 1]], ascending without repeats
    features    int32[..]     below D
    values      float32[..]   of mu_l, the mean of the label's l2-normalised training rows; may be pruned
    norm2       float32[K]    |mu_l|^2, 0 or more
    parameters  float32[2]    alpha in [0, 1] and gamma >= 0: a candidate's score P becomes
                              P^alpha * exp(-gamma / 2 * |x - mu_l|^2)^(1 - alpha), x the l2-normalised row
    """

    ptr: I64_1
    features: I32_1
    values: F32_1
    norm2: F32_1
    parameters: F32_1


FAULTS: dict[int, tuple[str, str]] = {
    1: ("ptr", "ascending offsets from 0 to the number of features"),
    2: ("features", "features below n_features, ascending within a label"),
    3: ("norm2", "a square, 0 or more"),
    4: ("parameters", "alpha from 0 to 1, then gamma of 0 or more"),
}
"""What a fault means: the array at whose index it was found, and what was expected there."""


def has_rerank(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a version has re-ranking arrays, whole or not."""
    return any(name.startswith(f"{RERANK}/") for name in arrays)


def assemble_rerank(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> Rerank:
    """Return the re-ranking arrays of a version that has them, read-only; raise Corrupt. Reads no data."""
    if manifest.kind != "decision-tree":
        raise Corrupt("manifest.json: arrays", f"no array of {RERANK} in a {manifest.kind}", "one")
    n_labels = manifest.n_labels
    ptr = take(arrays, f"{RERANK}/ptr", "int64", (n_labels + 1,))
    features = take(arrays, f"{RERANK}/features", "int32", (None,))
    return Rerank(
        ptr,
        features,
        take(arrays, f"{RERANK}/values", "float32", (len(features),)),
        take(arrays, f"{RERANK}/norm2", "float32", (n_labels,)),
        take(arrays, f"{RERANK}/parameters", "float32", (2,)),
    )


def check_rerank(rerank: Rerank, n_features: int) -> None:
    """Raise Corrupt unless every invariant of Rerank holds; its floats were seen to be finite. One pass."""
    number, index = _check(rerank.ptr, rerank.features, rerank.norm2, rerank.parameters, n_features)
    if number:
        name, expected = FAULTS[number]
        array = getattr(rerank, name)
        raise Corrupt(at(f"{RERANK}/{name}", index), expected, array[index])


@kernel
def _check(
    ptr: NDArray[np.int64],
    features: NDArray[np.int32],
    norm2: NDArray[np.float32],
    parameters: NDArray[np.float32],
    n_features: int,
) -> tuple[int, int]:
    """Return (fault, index), fault 0 when all is well."""
    n_labels = len(norm2)
    if ptr[0] != 0:
        return 1, 0
    for label in range(n_labels):
        if ptr[label + 1] < ptr[label] or ptr[label + 1] > len(features):
            return 1, label + 1
    if ptr[n_labels] != len(features):
        return 1, n_labels
    for label in range(n_labels):
        before = -1
        for i in range(ptr[label], ptr[label + 1]):
            if features[i] <= before or features[i] >= n_features:
                return 2, i
            before = features[i]
        if norm2[label] < 0:
            return 3, label
    if parameters[0] < 0 or parameters[0] > 1:
        return 4, 0
    if parameters[1] < 0:
        return 4, 1
    return 0, 0
