"""The nodes of a label tree by the labels below them: what it has put together (Learned trees, table 4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble


class TreeNodeLabels(NamedTuple):
    """A node, and the labels below it.

    place     the positions of the nodes from the root's child down to it, from 1; () is the root
    n_labels  labels below it
    n_rows    rows of training that these have, a row once for each of its labels
    labels    int64[<= n]  the labels with most rows, those first
    """

    place: tuple[int, ...]
    n_labels: int
    n_rows: int
    labels: NDArray[np.int64]


def tree_labels(
    ensemble: TreeEnsemble, counts: NDArray[np.int64], *, tree: int, depth: int, n_labels: int
) -> list[TreeNodeLabels]:
    """Return the nodes of a label tree down to a depth that have nodes below them, parents before children.

    counts    int64[K]  rows of each label
    tree      its number, from 0
    depth     0: the root alone
    n_labels  of each node, at most

    Cost: O(nodes) for each depth, and a sort of the labels.
    """
    leaves = ensemble.label_leaf[tree]
    by_rows = np.argsort(-counts, kind="stable")
    by_rows = by_rows[leaves[by_rows] >= 0]
    path = _paths(ensemble, leaves[by_rows], depth)
    found = []
    for level in range(depth + 1):
        at = path[level]
        for node in np.unique(at[at >= 0]).tolist():
            if ensemble.node_chunk[node] < 0:
                continue
            below = by_rows[at == node]
            place = _place(ensemble, node, level)
            found.append(TreeNodeLabels(place, len(below), int(counts[below].sum()), below[:n_labels]))
    return sorted(found, key=lambda each: each.place)


def _paths(ensemble: TreeEnsemble, leaves: NDArray[np.int32], depth: int) -> list[NDArray[np.int64]]:
    """Return for each level down to `depth` the node there on the way to each leaf, -1 below the leaf."""
    ways = [leaves.astype(np.int64)]
    while np.any(ensemble.parent[ways[-1]] >= 0):
        ways.append(np.where(ensemble.parent[ways[-1]] >= 0, ensemble.parent[ways[-1]], ways[-1]))
    levels = np.zeros(len(leaves), np.int64)
    for way in ways[:-1]:
        levels += ensemble.parent[way] >= 0
    up = np.array(ways)  # [steps up, leaves]
    places = np.arange(len(leaves))
    return [
        np.where(levels >= level, up[np.maximum(levels - level, 0), places], -1) for level in range(depth + 1)
    ]


def _place(ensemble: TreeEnsemble, node: int, level: int) -> tuple[int, ...]:
    """Return the positions of the nodes on the way to a node of a level."""
    steps: list[int] = []
    for _ in range(level):
        parent = int(ensemble.parent[node])
        steps.append(node - int(ensemble.child_ptr[parent]) + 1)
        node = parent
    return tuple(reversed(steps))
