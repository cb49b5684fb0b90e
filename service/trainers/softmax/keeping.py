"""The state of a softmax training as arrays, and back: all that its next step depends on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import U64
from service.trainers.softmax.shapes import topology_with
from service.trainers.softmax.tree import LearningState, SoftmaxTree
from service.trainers.state import LearnerState, check_that


def restore(found: LearnerState, state: LearningState, random: U64) -> None:
    """Write what was kept over the state before the first step, on `kept_tree`. Raises Corrupt."""
    for name, array in {"random": random, **written(state)}.items():
        array[...] = found.take(name, array.dtype.name, *array.shape)


def written(state: LearningState) -> dict[str, NDArray[Any]]:
    """Return what steps write, by name; labels' means are not among it: they are found before each use."""
    parts = {"network": state.network, "squares": state.squares}
    arrays = {f"{part}/{name}": array for part in parts for name, array in parts[part]._asdict().items()}
    sums = {"sums": state.statistics.sums, "counts": state.statistics.counts}
    return {**arrays, **(sums if len(state.statistics.sums) else {})}


def kept_tree(found: LearnerState, n_labels: int) -> SoftmaxTree:
    """Return the tree of a state; nodes that its root does not reach are not in use. Raises Corrupt."""
    child = found.take("child", "int32", None, None)
    check_that(len(child) > 0, "a root")
    check_that(((child >= -1 - n_labels) & (child < len(child)) & (child != 0)).all(), "nodes and labels")
    inner, leaves = child[child > 0], child[child < -1]
    check_that(len(np.unique(inner)) == len(inner) and len(np.unique(leaves)) == len(leaves), "a tree")
    return topology_with(child, n_labels)
