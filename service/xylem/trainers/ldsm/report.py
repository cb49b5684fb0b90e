"""The figures of trained trees and splits, and the report of an ensemble."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from xylem_store import Tree


class SplitFacts(NamedTuple):
    """The figures of a trained node.

    serves     whether the node was split; else it stayed a leaf
    n_retries  number of trainings after the first one
    objective, balance, purity  J, beta and alpha (`split_quality`)
    """

    depth: int
    n_rows: int
    serves: bool
    n_retries: int
    objective: float
    balance: float
    purity: float


class LdsmTree(NamedTuple):
    """A tree and its figures.

    depth           of the deepest leaf
    rows_in_leaves  sum of the rows of all leaves; a row may be in several
    splits          the trained nodes
    """

    tree: Tree
    n_leaves: int
    depth: int
    rows_in_leaves: int
    splits: list[SplitFacts]


def report_of(trees: Sequence[LdsmTree], arity: int, n_labels: int) -> dict[str, Any]:
    """Return the report of an ensemble as values of JSON.

    Source: LdSM, figure 1 (J at the levels of a tree), figure 2 (the depth against log_M K),
    definitions 1 and 2. `depths` has, for the splits of each depth, their number, the number of
    rows that they split, the least, mean and greatest J, the mean balancedness factor (0: even) and
    the mean purity factor (0: pure). Nodes that stayed leaves are not counted.

    n_labels  number of labels that occur (K)
    """
    facts = [fact for grown in trees for fact in grown.splits]
    kept_splits = [fact for fact in facts if fact.serves]
    by_depth: dict[int, list[SplitFacts]] = {}
    for fact in kept_splits:
        by_depth.setdefault(fact.depth, []).append(fact)
    return {
        "trees": len(trees),
        "depth_max": max(grown.depth for grown in trees),
        "log_arity_of_labels": math.log(n_labels, arity),
        "nodes_mean": fmean([len(grown.tree.node_label) for grown in trees]),
        "leaves_mean": fmean([grown.n_leaves for grown in trees]),
        "rows_in_leaves_mean": fmean([grown.rows_in_leaves for grown in trees]),
        "splits": len(kept_splits),
        "splits_retried": sum(fact.n_retries > 0 for fact in kept_splits),
        "splits_given_up": len(facts) - len(kept_splits),
        "depths": [_of_depth(depth, by_depth[depth]) for depth in sorted(by_depth)],
    }


def _of_depth(depth: int, splits: list[SplitFacts]) -> dict[str, Any]:
    objectives = [split.objective for split in splits]
    return {
        "depth": depth,
        "splits": len(splits),
        "rows": sum(split.n_rows for split in splits),
        "objective_min": min(objectives),
        "objective_mean": fmean(objectives),
        "objective_max": max(objectives),
        "balance_mean": fmean([split.balance for split in splits]),
        "purity_mean": fmean([split.purity for split in splits]),
    }
