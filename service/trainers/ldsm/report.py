"""What a training of `ldsm` tells: the shape of its trees, and J, balance and purity by depth."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from model_store.ensemble import Tree


class SplitFacts(NamedTuple):
    """A trained node: whether its split was kept, trainings beyond the first, and J, beta, alpha."""

    depth: int
    n_rows: int
    serves: bool
    n_retries: int
    objective: float
    balance: float
    purity: float


class LdsmTree(NamedTuple):
    """A tree: its leaves, deepest leaf, the rows in all leaves (a row may be in several), trained nodes."""

    tree: Tree
    n_leaves: int
    depth: int
    rows_in_leaves: int
    splits: list[SplitFacts]


def report_of(trees: Sequence[LdsmTree], arity: int, n_labels: int) -> dict[str, Any]:
    """Return the report of an ensemble as JSON takes it.

    Source: LdSM, figure 1 (J at the levels of a tree), figure 2 (the depth against log_M K), definitions 1
    and 2. `depths` has, for the kept splits of each depth, how many there are, the rows that they share out,
    the least, mean and greatest J, the mean balancedness factor (0: even) and purity factor (0: pure).

    n_labels  labels that occur (K)
    """
    facts = [fact for grown in trees for fact in grown.splits]
    kept = [fact for fact in facts if fact.serves]
    by_depth: dict[int, list[SplitFacts]] = {}
    for fact in kept:
        by_depth.setdefault(fact.depth, []).append(fact)
    return {
        "trees": len(trees),
        "depth_max": max(grown.depth for grown in trees),
        "log_arity_of_labels": math.log(n_labels, arity),
        "nodes_mean": fmean([len(grown.tree.node_label) for grown in trees]),
        "leaves_mean": fmean([grown.n_leaves for grown in trees]),
        "rows_in_leaves_mean": fmean([grown.rows_in_leaves for grown in trees]),
        "splits": len(kept),
        "splits_retried": sum(fact.n_retries > 0 for fact in kept),
        "splits_given_up": len(facts) - len(kept),
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
