"""Values of nodes that depend on the labels below them: whether any label is allowed, the least
threshold, the greatest weight. Thresholds are updated in place."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.search.calibrated import Knots, log_reaching
from xylem_store import (
    F32,
    I32,
    I64,
    TreeEnsemble,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    read_only,
)


def greatest_below(
    ensemble: TreeEnsemble, label_values: NDArray[Any], default: float
) -> NDArray[Any]:
    """Return for each node the greatest value of the labels below it, [N]. O(N).

    label_values  [K], uint8 or float32: the labels' values
    default       the value of a node without labels below it; no label has a smaller one
    """
    node_values = np.full(len(ensemble.parent), default, label_values.dtype)
    # a training in memory has arrays that can be written to: `lift` would be compiled once more
    lift(read_only(ensemble.node_label), read_only(ensemble.parent), label_values, node_values)
    return node_values


@kernel
def lift(
    node_label: I32, parent: I32, label_values: NDArray[Any], node_values: NDArray[Any]
) -> None:
    """Fill `node_values` as `greatest_below` returns it; before the call it is all `default`."""
    for node in range(len(node_values)):
        label = node_label[node]
        if label >= 0:
            node_values[node] = label_values[label]
    for node in range(len(node_values) - 1, -1, -1):
        parent_node = parent[node]
        if parent_node >= 0 and node_values[node] > node_values[parent_node]:
            node_values[parent_node] = node_values[node]


# child_ptr, parent and label_leaf, as `move_thresholds` takes them.
Paths: TypeAlias = tuple[I32, I32, I32]


class RowSearch(NamedTuple):
    """A search with thresholds that kernels call for one row at a time.

    Between two searches the kernels move its thresholds.

    address  the address of the traversal, as `calls.address_of` returns it
    call     the handle of its Call, whose search and answers are set
    rows     the handle of the Call's Rows, to which the caller writes the row to search
    n_found  int64[1]: how many labels the search has found
    labels   int32[top_r]: these labels, the best first
    scores   float32[top_r]: their scores
    paths    the paths from the labels to the nodes whose thresholds are compared
    knots    the knots of the model's calibration
    """

    address: int
    call: I64
    rows: I64
    n_found: I64
    labels: I32
    scores: F32
    paths: Paths
    knots: Knots


# The paths of a search that compares thresholds of labels, not of nodes.
NO_PATHS: Paths = (
    read_only(np.empty(0, np.int32)),
    read_only(np.empty(0, np.int32)),
    read_only(np.empty((0, 0), np.int32)),
)


@inlined
def log_of(score: np.float32) -> np.float32:
    """Return the logarithm of a score, for the comparison with thresholds: -inf for 0.

    It is computed in float64 and rounded, as the thresholds' logarithms are.
    """
    return np.float32(np.log(np.float64(score)))


@kernel
def set_logs(knots: Knots, thresholds: F32, log_out: F32) -> None:
    """Set log_out, float32[n], to the logarithms of the model's own scores that reach thresholds.

    They have the same bits as those that `move_thresholds` writes. With NO_KNOTS they are the
    logarithms of the thresholds.
    """
    x, y = knots
    for i in range(len(thresholds)):
        log_out[i] = log_reaching(x, y, thresholds[i])


@kernel
def move_thresholds(
    child_ptr: I32,
    parent: I32,
    label_leaf: I32,
    knots: Knots,
    labels: I32,
    thresholds: F32,
    log_threshold: F32,
) -> None:
    """Update log_threshold in place after the thresholds of these labels have changed.

    Source: Jasinska et al. 2016 section 5.2 (a node's threshold is the least of its children's).
    Traversals may read the array at the same time: they see each node's old or new threshold.

    child_ptr, parent, label_leaf  the fields of a label tree's ensemble; or NO_PATHS
    knots          those of the model's calibration, as thresholds are on the scale of calibrated
                   scores; or NO_KNOTS
    labels         int32[n], in [0, K), in any order
    thresholds     float32[K], in [0, 1]: the new thresholds
    log_threshold  float32[N], as `Predictor.node_thresholds` makes it, before and after; with
                   NO_PATHS float32[K], the logarithms of the labels' thresholds

    Cost: the labels' paths upwards, until a minimum does not change. Where a minimum rises, the
    node's children are searched for the new one, until a child has the old one too.
    """
    x, y = knots
    for i in range(len(labels)):
        new_threshold = log_reaching(x, y, thresholds[labels[i]])
        if len(parent) == 0:
            log_threshold[labels[i]] = new_threshold
        for tree in range(len(label_leaf)):
            leaf = label_leaf[tree, labels[i]]
            if leaf >= 0:
                _move_leaf(child_ptr, parent, leaf, new_threshold, log_threshold)


@inlined
def _move_leaf(
    child_ptr: I32, parent: I32, node: int, new_threshold: np.float32, log_threshold: F32
) -> None:
    """Set the threshold of a node, and update the minima above it."""
    while True:
        old_threshold = log_threshold[node]
        if new_threshold == old_threshold:
            return
        log_threshold[node] = new_threshold
        node = parent[node]
        if node < 0:
            return
        parent_threshold = log_threshold[node]
        if new_threshold < old_threshold:
            if new_threshold >= parent_threshold:
                return
        else:
            if old_threshold > parent_threshold:
                return
            new_threshold = _least_child(child_ptr, node, parent_threshold, log_threshold)


@inlined
def _least_child(child_ptr: I32, node: int, bound: np.float32, log_threshold: F32) -> np.float32:
    """Return the least threshold of a node's children, none of which is below `bound`."""
    least = np.float32(np.inf)
    for child in range(child_ptr[node], child_ptr[node + 1]):
        least = min(least, log_threshold[child])
        if least <= bound:
            return least
    return least
