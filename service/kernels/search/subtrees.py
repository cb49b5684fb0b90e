"""What the labels below a node say about it: is any of them allowed, which threshold is the
least, which weight the greatest."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_kernel as kernel

Below: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32]]
"""node_label and parent of an ensemble."""


@kernel
def mark_allowed(below: Below, allowed: NDArray[np.uint8], mask_out: NDArray[np.uint8]) -> None:
    """Set mask_out[n], uint8[N], to 1 where a label below node n is allowed (uint8[K]), else 0. O(N)."""
    node_label, parent = below
    for node in range(len(mask_out)):
        label = node_label[node]
        mask_out[node] = allowed[label] if label >= 0 else np.uint8(0)
    for node in range(len(mask_out) - 1, -1, -1):
        above = parent[node]
        if above >= 0 and mask_out[node] != 0:
            mask_out[above] = np.uint8(1)


@kernel
def least_thresholds(below: Below, log_threshold: NDArray[np.float32], log_out: NDArray[np.float32]) -> None:
    """Set log_out[n], float32[N], to the least of the labels' log-thresholds (float32[K]) below node n. O(N).

    Source: Jasinska et al. 2016 appendix B. +inf where there is no label below.
    """
    node_label, parent = below
    for node in range(len(log_out)):
        label = node_label[node]
        log_out[node] = log_threshold[label] if label >= 0 else np.float32(np.inf)
    for node in range(len(log_out) - 1, -1, -1):
        above = parent[node]
        if above >= 0 and log_out[node] < log_out[above]:
            log_out[above] = log_out[node]


@kernel
def greatest_weights(below: Below, log_weight: NDArray[np.float32], log_out: NDArray[np.float32]) -> None:
    """Set log_out[n], float32[N], to the greatest of the labels' log-weights (float32[K]) below node n. O(N).

    -inf where there is no label below.
    """
    node_label, parent = below
    for node in range(len(log_out)):
        label = node_label[node]
        log_out[node] = log_weight[label] if label >= 0 else np.float32(-np.inf)
    for node in range(len(log_out) - 1, -1, -1):
        above = parent[node]
        if above >= 0 and log_out[node] > log_out[above]:
            log_out[above] = log_out[node]
