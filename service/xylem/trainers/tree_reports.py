"""Reports on trained models: how a forest divides the rows, and how large label trees are.

Forests: Choromanska and Jain 2019, "Extreme Multiclass Classification Criteria" (the appendix's
figure: criteria and test error against the number of splits), and Majzoubi and Choromanska 2019,
figure 1 (J by depth), of any decision tree. Label trees, their weights against flat one-vs-rest,
and how features fall away by depth: Lin, Liu and Lin 2024, "Exploring Space Efficiency in a
Tree-based Linear Model for Extreme Multi-label Classification", section 6 and appendix E (equations
44 and 45, figures 4 to 7). These are figures of the ensemble as it is stored, where
`xylem.trainers.size` gives bounds for them before the training.
"""

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, offsets, ranges
from xylem.evaluation import rows_of
from xylem.trainers.tree_criteria import (
    FLAT_WEIGHT_BYTES,
    WEIGHT_BYTES,
    NodeCounts,
    counts_of,
    criteria_by_splits,
    depths,
    errors_by_splits,
    leaf_criteria,
    splits_by_depth,
)
from xylem_store import I32, I64, TreeEnsemble, levels_of

_POINTS = 40  # the criteria are reported for at most this many numbers of splits
_TREES_MAX = 100
# only the first trees and depths are reported, because the length of a report must be bounded
_DEPTHS_MAX = 200


class Reached(NamedTuple):
    """The leaves that rows reached, and the rows' labels.

    Row i reached the leaves leaf[ptr[i]:ptr[i + 1]].
    """

    ptr: I64
    leaf: I32
    labels: LabelRows


def forest_report(
    ensemble: TreeEnsemble, train: Reached, test: Reached | None = None
) -> dict[str, Any]:
    """Return the report on a forest, as JSON takes it.

    rows      number of rows that were sent down the trees
    trees     for each tree its nodes, leaves, depth, and the criteria of its leaves
    splits    the criteria after 0, 1, 2, 4 ... splits, where the heaviest leaf is split first:
              means over the trees. With `test` there is `test_error` too: the share of the test
              rows' labels that are wrong if each leaf answers with its commonest training label
    depths    for each depth the number of splits, and the means of J, balance and purity over the
              trees

    The report has at most _TREES_MAX trees and _DEPTHS_MAX depths. A row that several leaves of a
    tree receive counts in each. Cost: some passes over (row, node, label).
    """
    tree_of = np.arange(len(ensemble.parent))
    for level in islice(levels_of(ensemble.child_ptr, int(ensemble.child_ptr[0])), 1, None):
        tree_of[level.start : level.stop] = tree_of[ensemble.parent[level.start : level.stop]]
    trees = []
    curves = []
    lines = []
    train_pairs = _visits(ensemble, train)
    test_pairs = None if test is None else _visits(ensemble, test)
    for tree in range(min(_TREES_MAX, int(ensemble.child_ptr[0]))):
        nodes = np.flatnonzero(tree_of == tree)
        n_children = np.diff(ensemble.child_ptr)[nodes]
        child_ptr = np.concatenate([[1], 1 + np.cumsum(n_children)]).astype(np.int32)
        counts = _counts(nodes, train_pairs, train.labels)
        curve: dict[str, Any] = criteria_by_splits(child_ptr, counts)
        if test is not None and test_pairs is not None:
            curve["test_error"] = errors_by_splits(
                child_ptr, counts, _counts(nodes, test_pairs, test.labels)
            )
        curves.append(curve)
        lines.append(splits_by_depth(child_ptr, counts))
        trees.append(
            {
                "nodes": len(nodes),
                "leaves": int((n_children == 0).sum()),
                "depth": int(depths(child_ptr).max()),
                **_rounded(
                    leaf_criteria(_counts(nodes[n_children == 0], train_pairs, train.labels))
                ),
            }
        )
    return {
        "rows": len(train.ptr) - 1,
        "trees": trees,
        "splits": _mean_curve(curves),
        "depths": _mean_lines(lines),
    }


def _visits(ensemble: TreeEnsemble, reached: Reached) -> tuple[I64, I64]:
    """Return the nodes on the ways to the leaves that rows reached, and the rows that entered them.

    Pairs (node, row) are sorted by node, and each occurs once.
    """
    n_rows = len(reached.ptr) - 1
    cells = reached.leaf.astype(np.int64) * n_rows + rows_of(reached.ptr)
    cells_by_level = [cells]
    while len(cells):
        node, row = np.divmod(cells, n_rows)
        above = ensemble.parent[node].astype(np.int64)
        cells = np.unique((above * n_rows + row)[above >= 0])
        cells_by_level.append(cells)
    node, row = np.divmod(np.unique(np.concatenate(cells_by_level)), n_rows)
    return node, row


def _counts(nodes: I64, visits: tuple[I64, I64], labels: LabelRows) -> NodeCounts:
    """Return how often each label came to each of some nodes.

    nodes   ascending; they get the numbers 0, 1, 2 ... in the counts
    visits  pairs (node, row), as `_visits` returns them
    """
    entered, rows = visits
    first = np.searchsorted(entered, nodes)
    sizes = np.searchsorted(entered, nodes, "right") - first
    carried = labels.take(rows[ranges(first, sizes)])
    at_node = np.repeat(np.repeat(np.arange(len(nodes)), sizes), np.diff(carried.indptr))
    return counts_of(len(nodes), at_node, carried.indices, np.ones(len(at_node)))


def _mean_curve(curves: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the means of the criteria over the trees, for a growing number of splits.

    A tree that has fewer splits counts with its last values.
    """
    n_splits_max = max(len(curve["splits"]) for curve in curves) - 1
    points = np.unique(
        np.concatenate([[0], np.geomspace(1, max(1, n_splits_max), _POINTS).astype(np.int64)])
    )

    def mean_at(point: int, name: str) -> float:
        return float(np.mean([curve[name][min(point, len(curve[name]) - 1)] for curve in curves]))

    return [
        {**_rounded({name: mean_at(point, name) for name in curves[0]}), "splits": point}
        for point in points[points <= n_splits_max].tolist()
    ]


def _mean_lines(lines: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Return a line for each depth over all trees: means weighted by the number of splits."""
    mean_lines = []
    for depth in range(min(_DEPTHS_MAX, max(map(len, lines)))):
        depth_lines = [of_tree[depth] for of_tree in lines if depth < len(of_tree)]
        weight = np.array([line["nodes"] for line in depth_lines])
        means = {
            name: float(np.average([line[name] for line in depth_lines], weights=weight))
            for name in ("objective", "smaller_side", "purity")
        }
        mean_lines.append({"depth": depth, "splits": int(weight.sum()), **_rounded(means)})
    return mean_lines


def _rounded(values: dict[str, float]) -> dict[str, float]:

    return {name: round(value, 5) for name, value in values.items()}


def size_report(ensemble: TreeEnsemble) -> dict[str, Any]:
    """Return the report on the size of label trees, as JSON takes it.

    weights        number of stored weights that are not zero
    bytes          of all arrays of the ensemble
    ovr_bytes      of flat one-vs-rest: features used at the root times labels with a leaf, 8 bytes
                   each
    ratio_to_ovr   equation 20: weights, WEIGHT_BYTES each, over ovr_bytes; `xylem estimate` gives a
                   bound for it
    stored_to_ovr  bytes over ovr_bytes
    depths         for each depth with inner nodes: their number, their children, and the mean
                   number of features used; below the roots also alpha, the features used at a node
                   over those used at its parent, averaged with the number of children as weights

    Cost: a pass over the blocks and the weights.
    """
    n_used = offsets(np.bitwise_count(ensemble.blocks[:, 0]))[ensemble.block_ptr]
    used = np.zeros(len(ensemble.parent), np.int64)  # features of each inner node's chunk
    used[ensemble.node_chunk >= 0] = np.diff(n_used)
    n_children = np.diff(ensemble.child_ptr)
    n_trees = int(ensemble.child_ptr[0])
    depth = depths(ensemble.child_ptr, n_trees)
    alpha = used / np.maximum(1, used[ensemble.parent])  # equation 44; used only below the roots
    lines = []
    for d in range(min(_DEPTHS_MAX, int(depth[n_children > 0].max(initial=-1)) + 1)):
        inner = np.flatnonzero((depth == d) & (n_children > 0))
        line = {
            "depth": d,
            "nodes": len(inner),
            "children": int(n_children[inner].sum()),
            "features_mean": round(float(used[inner].mean()), 1),
        }
        if d:
            line["alpha"] = round(float(np.average(alpha[inner], weights=n_children[inner])), 5)
        lines.append(line)
    n_bytes = sum(array.nbytes for array in ensemble)
    n_labels = int((ensemble.label_leaf >= 0).any(axis=0).sum())
    ovr_bytes = FLAT_WEIGHT_BYTES * int(used[:n_trees].max()) * n_labels
    n_weights = len(ensemble.sparse) + int(np.count_nonzero(ensemble.dense))
    return {
        "weights": n_weights,
        "bytes": n_bytes,
        "ovr_bytes": ovr_bytes,
        "ratio_to_ovr": round(n_weights * WEIGHT_BYTES / max(1, ovr_bytes), 5),
        "stored_to_ovr": round(n_bytes / max(1, ovr_bytes), 5),
        "depths": lines,
    }
