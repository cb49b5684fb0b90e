"""The shape of a label tree: which labels lie under which node, before any classifier is trained."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Shape(NamedTuple):
    """A tree over labels: nodes numbered breadth-first, the labels under a node consecutive in `labels`.

    labels     int32[K']      the labels that have a leaf, in the order of the leaves
    child_ptr  int32[n + 1]   children of node i are child_ptr[i] .. child_ptr[i + 1] - 1; child_ptr[0] = 1
    first      int64[n]       node i has labels[first[i]] .. labels[last[i] - 1]
    last       int64[n]
    """

    labels: NDArray[np.int32]
    child_ptr: NDArray[np.int32]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @property
    def inner(self) -> NDArray[np.int64]:
        """Return the nodes that have children, ascending."""
        return np.flatnonzero(np.diff(self.child_ptr))

    def child_bounds(self, node: int) -> NDArray[np.int64]:
        """Return int64[children + 1]: child c has the labels bounds[c] .. bounds[c + 1] - 1."""
        children = slice(self.child_ptr[node], self.child_ptr[node + 1])
        return np.append(self.first[children], self.last[node])


def join(labels: NDArray[np.int32], levels: list[NDArray[np.int64]]) -> Shape:
    """Join successive partitions of the labels into a tree whose leaves are the single labels.

    labels  int32[K'], K' >= 1, in the order of the leaves
    levels  each level's partition: ascending bounds, from 0 to K'; each refines the one before. A part
            that no level divides has its labels as children; a level that does not divide a part is
            skipped there.
    """
    n = len(labels)
    levels = [*levels, np.arange(n + 1)]
    first, last, depth, child_ptr = [0], [n], [0], [1]
    node = 0
    while node < len(first):
        start, stop = first[node], last[node]
        for level in range(depth[node], len(levels)):
            if stop - start == 1 and node > 0:
                break
            bounds = levels[level]
            inside = bounds[np.searchsorted(bounds, start) : np.searchsorted(bounds, stop, "right")]
            if len(inside) > 2 or (level == len(levels) - 1):
                first.extend(inside[:-1].tolist())
                last.extend(inside[1:].tolist())
                depth.extend([level + 1] * (len(inside) - 1))
                break
        child_ptr.append(len(first))
        node += 1
    return Shape(labels, np.array(child_ptr, np.int32), np.array(first), np.array(last))
