"""The state of a training of a softmax tree as arrays, and the tree that they describe."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.trainers.softmax.shapes import topology_with
from xylem.trainers.softmax.tree import LearningState, SoftmaxTree
from xylem.trainers.state import LearnerState, check_that
from xylem_store import U64


def restore(stored: LearnerState, state: LearningState, random: U64) -> None:
    """Write a stored state over the state before the first step, on `stored_tree`.

    Raises Corrupt.
    """
    for name, array in {"random": random, **state_arrays(state)}.items():
        array[...] = stored.take(name, array.dtype.name, *array.shape)


def state_arrays(state: LearningState) -> dict[str, NDArray[Any]]:
    """Return the arrays that steps write, by name.

    The mean representations of labels are not among them: they are computed before each use.
    """
    parts = {"network": state.network, "squares": state.squares}
    arrays = {
        f"{part}/{name}": array for part in parts for name, array in parts[part]._asdict().items()
    }
    sums = {"sums": state.statistics.sums, "counts": state.statistics.counts}
    return {**arrays, **(sums if len(state.statistics.sums) else {})}


def stored_tree(stored: LearnerState, n_labels: int) -> SoftmaxTree:
    """Return the tree of a state. Raises Corrupt.

    Nodes that cannot be reached from the root are not in use.
    """
    child = stored.take("child", "int32", None, None)
    check_that(len(child) > 0, "a root")
    check_that(
        ((child >= -1 - n_labels) & (child < len(child)) & (child != 0)).all(),
        "numbers of nodes and labels",
    )
    inner = child[child > 0]
    leaves = child[child < -1]
    check_that(
        len(np.unique(inner)) == len(inner) and len(np.unique(leaves)) == len(leaves), "a tree"
    )
    return topology_with(child, n_labels)
