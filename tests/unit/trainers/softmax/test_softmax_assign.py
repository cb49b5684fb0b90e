"""Labels dealt to children: as a slow greedy deals them, within the bounds of the tree."""

import math
from typing import Any

import numpy as np
import pytest

from service.trainers.softmax.assignment import assign_labels
from service.trainers.softmax.dealing import Rule
from service.trainers.softmax.shapes import empty_topology
from service.trainers.softmax.tree import LabelStatistics, LearningState, Network, SoftmaxTree
from tests.oracles.softmax_trees import alone_of, greedy, keepers

PADDED = 16


def network_of(n_nodes: int, arity: int, rng: np.random.Generator) -> Network:
    return Network(
        rng.normal(size=(n_nodes, arity, PADDED)).astype(np.float32),
        rng.normal(size=(n_nodes, arity)).astype(np.float32),
        np.zeros((1, PADDED), np.float32),
        np.zeros((1, 0, PADDED), np.float32),
    )


def state_of(tree: SoftmaxTree, network: Network, known: LabelStatistics) -> LearningState:
    return LearningState(tree, network, Network(*(part[:0] for part in network)), known)


def by_means(n_labels: int, rng: np.random.Generator) -> LabelStatistics:
    return LabelStatistics(
        np.zeros((0, 1, 2), np.float32),
        np.zeros((0, 1), np.float32),
        rng.normal(size=(n_labels, PADDED)).astype(np.float32),
        rng.integers(0, 9, n_labels) * (rng.random(n_labels) < 0.8),
    )


def by_sums(n_labels: int, arity: int, depth: int, rng: np.random.Generator) -> LabelStatistics:
    counts = 1 + rng.integers(0, 3, (n_labels, depth)).astype(np.float32)
    p = np.round(rng.dirichlet(np.ones(arity), (n_labels, depth)) * 4) / 4  # ties
    return LabelStatistics(
        (p * counts[:, :, None]).astype(np.float32),
        counts,
        np.zeros((0, PADDED), np.float32),
        np.zeros(0, np.int64),
    )


@pytest.mark.parametrize("times_p", [False, True])
@pytest.mark.parametrize("arity", [2, 3, 5])
@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    "bound", ["well-formed", "depth", "slack", "depth and slack", "slack and alone", "depth and alone"]
)
def test_a_node_deals_as_the_slow_greedy(times_p: bool, arity: int, bound: str, margin: float) -> None:
    n_kept, n_alone = 0, 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 20))
        labels = np.arange(n, dtype=np.int32)
        share = rng.integers(1, 5, n).astype(float)
        labels = labels[np.argsort(-share, kind="stable")]
        depth = max(1, math.ceil(math.log(n, arity) - 1e-9)) if "depth" in bound else 0
        rule = Rule(
            depth, 1.3 if "slack" in bound else 0.0, 0.25 if "alone" in bound else 0.0, times_p, margin
        )
        pads = (1 - n) % (arity - 1) if bound == "well-formed" else 0
        capacity = 0
        if bound != "well-formed":
            most = arity ** (depth - 1) if depth else n
            capacity = 1 if n <= arity else min(n - 1, most)
        tree = empty_topology(1, arity, n)
        tree.child[0], tree.level[0] = -2, 0
        own = rng.integers(-1, arity, n)
        tree.leaf_node[:], tree.leaf_branch[:] = np.minimum(own, 0), own.copy()
        known = by_sums(n, arity, 1, rng)
        n_rows = np.where((known.counts[:, 0] > 1) & (own >= 0), known.counts[:, 0], 0)
        p = known.sums[:, 0] / known.counts[:, :1]
        p[n_rows == 0] = np.float32(1 / arity)
        is_known, how = n_rows > 0, dict[str, Any]()
        if rule.alone:
            how["alone"] = alone_of(share[labels], arity, own[labels], capacity, rule.alone, stay=margin > 0)
            n_alone += len(how["alone"])
            own[labels[: len(how["alone"])]] = -1
            is_known &= own >= 0
        if margin:
            is_known = own >= 0
            of_labels = share[labels], p[labels], is_known[labels], own[labels], n_rows[labels]
            how["keeps"] = keepers(*of_labels, margin)
        made = empty_topology(n, arity, n)
        assign_labels(labels, share, rule, state_of(tree, network_of(1, arity, rng), known), made)
        found = [branch_at_root(made, label) for label in labels.tolist()]
        how |= {"times_p": times_p, "slack": rule.slack}
        slow = greedy(share[labels], p[labels], is_known[labels], capacity, pads, **how)
        assert found == slow, (seed, n)
        n_kept += sum(found[i] == child for i, child in how.get("keeps", {}).items())
    assert bool(n_kept) == (margin > 0)
    assert bool(n_alone) == ("alone" in bound)


def branch_at_root(tree: SoftmaxTree, label: int) -> int:
    """Return the child of the root that a label is below."""
    node, branch = int(tree.leaf_node[label]), int(tree.leaf_branch[label])
    while node > 0:
        node, branch = int(tree.parent[node]), int(tree.branch[node])
    return branch


def sizes_below(tree: SoftmaxTree, n_nodes: int) -> np.ndarray:
    """Return how many labels are below each node."""
    sizes = np.zeros(n_nodes, int)
    for node in tree.leaf_node[tree.leaf_node >= 0].tolist():
        while node >= 0:
            sizes[node] += 1
            node = int(tree.parent[node])
    return sizes


def check(tree: SoftmaxTree, n_nodes: int, labels: np.ndarray, rule: Rule) -> None:
    """Prove that every label has one leaf, all numbers agree, and the bounds hold."""
    arity = tree.child.shape[1]
    assert tree.parent[0] == -1
    leaves = [
        (-2 - c, n, j) for n, row in enumerate(tree.child.tolist()) for j, c in enumerate(row) if c < -1
    ]
    assert sorted(label for label, _, _ in leaves) == sorted(labels.tolist())
    for label, node, branch in leaves:
        assert (tree.leaf_node[label], tree.leaf_branch[label]) == (node, branch)
    inner = [(c, n, j) for n, row in enumerate(tree.child.tolist()) for j, c in enumerate(row) if c >= 0]
    for child, node, branch in inner:
        assert (tree.parent[child], tree.branch[child]) == (node, branch)
        assert tree.level[child] == tree.level[node] + 1
    assert len({child for child, _, _ in inner}) == len(inner)
    sizes = sizes_below(tree, n_nodes)
    used = [0, *(child for child, _, _ in inner)]
    for node in used:
        assert sizes[node] >= 2
        n_children = int((tree.child[node] != -1).sum())
        assert n_children >= 2
        if rule.depth:
            assert sizes[node] <= arity ** (rule.depth - tree.level[node])
    if not rule.depth and not rule.slack:
        n_inner = -(-(len(labels) - 1) // (arity - 1))
        assert len(used) == n_inner
        wrong = [node for node in used if (sizes[node] - 1) % (arity - 1)]
        assert len(wrong) <= 0 if (len(labels) - 1) % (arity - 1) == 0 else True


@pytest.mark.parametrize(("arity", "n_labels"), [(2, 2), (2, 33), (3, 27), (3, 28), (5, 60), (7, 8), (9, 5)])
@pytest.mark.parametrize("margin", [0.0, 2.0])
@pytest.mark.parametrize("bound", ["well-formed", "depth", "slack", "slack and alone", "depth and alone"])
def test_trees_stay_within_their_bounds_update_after_update(
    arity: int, n_labels: int, bound: str, margin: float
) -> None:
    rng = np.random.default_rng(arity * 100 + n_labels)
    labels = rng.permutation(n_labels + 3)[:n_labels].astype(np.int32)
    share = np.zeros(n_labels + 3)
    share[labels] = np.sort(rng.random(n_labels))[::-1] + 0.1
    depth = max(1, math.ceil(math.log(n_labels, arity) - 1e-9)) if "depth" in bound else 0
    slack, alone = 1.3 if "slack" in bound else 0.0, 0.3 if "alone" in bound else 0.0
    rule = Rule(depth, slack, alone, False, margin)
    tree, n_nodes = empty_topology(1, arity, n_labels + 3), 1
    nobody = LabelStatistics(*by_means(n_labels + 3, rng)[:3], np.zeros(n_labels + 3, np.int64))
    moved = 0
    for update in range(6):
        statistics = nobody if update == 0 else by_means(n_labels + 3, rng)
        made = empty_topology(max(n_labels, n_nodes), arity, n_labels + 3)
        network = network_of(len(tree.child), arity, rng)
        n_nodes, is_new = assign_labels(labels, share, rule, state_of(tree, network, statistics), made)
        check(made, n_nodes, labels, rule)
        moved += int((made.leaf_node != tree.leaf_node).any())
        assert not is_new[n_nodes:].any()
        tree = made
    assert moved >= 1
