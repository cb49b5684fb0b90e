"""What the labels below a node say about it: is any of them allowed, which threshold is the
least, which weight the greatest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.ensemble import TreeEnsemble


def greatest_below(ensemble: TreeEnsemble, of_label: NDArray[Any], nothing: float) -> NDArray[Any]:
    """Return for each node the greatest of the values of the labels below it, [N]. O(N).

    of_label  [K], uint8 or float32
    nothing   the value of a node with no label below: no label has a lesser one
    """
    of_node = np.full(len(ensemble.parent), nothing, of_label.dtype)
    lift(ensemble.node_label, ensemble.parent, of_label, of_node)
    return of_node


@kernel
def lift(
    node_label: NDArray[np.int32], parent: NDArray[np.int32], of_label: NDArray[Any], of_node: NDArray[Any]
) -> None:
    """Set of_node, which holds the value of nodes without labels, to what `greatest_below` returns."""
    for node in range(len(of_node)):
        label = node_label[node]
        if label >= 0:
            of_node[node] = of_label[label]
    for node in range(len(of_node) - 1, -1, -1):
        above = parent[node]
        if above >= 0 and of_node[node] > of_node[above]:
            of_node[above] = of_node[node]
