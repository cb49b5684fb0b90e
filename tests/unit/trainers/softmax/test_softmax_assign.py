"""Labels dealt to children: as a slow greedy deals them, within the bounds of the tree."""

import math
from typing import Any

import numpy as np
import pytest
from tests.oracles.softmax_trees import alone_of, greedy, keepers

from xylem.trainers.softmax.assignment import assign_labels
from xylem.trainers.softmax.dealing import Rule
from xylem.trainers.softmax.shapes import empty_topology
from xylem.trainers.softmax.tree import LabelStatistics, LearningState, Network, SoftmaxTree

PADDED = 16


def dealt(
    labels: Any, share: Any, rule: Any, tree: Any, known: Any, seed: int
) -> tuple[SoftmaxTree, int, np.ndarray]:
    """The tree that a tree with random weights becomes, how many nodes
    it has, and which of them are new.
    """
    rng, (n_nodes, arity) = np.random.default_rng(seed), tree.child.shape
    network = Network(
        rng.normal(size=(n_nodes, arity, PADDED)).astype(np.float32),
        rng.normal(size=(n_nodes, arity)).astype(np.float32),
        np.zeros((1, PADDED), np.float32),
        np.zeros((1, 0, PADDED), np.float32),
    )
    state = LearningState(tree, network, Network(*(part[:0] for part in network)), known)
    made = empty_topology(max(len(labels), n_nodes), arity, len(share))
    return made, *assign_labels(labels, share, rule, state, made)


def by_means(n_labels: int, seen: np.ndarray, rng: np.random.Generator) -> LabelStatistics:
    means = rng.normal(size=(n_labels, PADDED)).astype(np.float32)
    return LabelStatistics(
        np.zeros((0, 1, 2), np.float32), np.zeros((0, 1), np.float32), means, seen
    )


def by_sums(n_labels: int, arity: int, rng: np.random.Generator) -> LabelStatistics:
    counts = 1 + rng.integers(0, 3, (n_labels, 1)).astype(np.float32)
    p = np.round(rng.dirichlet(np.ones(arity), (n_labels, 1)) * 4) / 4  # ties
    sums = (p * counts[:, :, None]).astype(np.float32)
    return LabelStatistics(sums, counts, np.zeros((0, PADDED), np.float32), np.zeros(0, np.int64))


def levels_for(n_labels: int, arity: int) -> int:
    return max(1, math.ceil(math.log(n_labels, arity) - 1e-9))


@pytest.mark.parametrize("times_p", [False, True])
@pytest.mark.parametrize("arity", [2, 3, 5])
@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    "bound",
    ["well-formed", "depth", "slack", "depth and slack", "slack and alone", "depth and alone"],
)
def test_a_node_deals_as_the_slow_greedy(
    times_p: bool, arity: int, bound: str, margin: float
) -> None:
    n_kept, n_alone = 0, 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 20))
        share = rng.integers(1, 5, n).astype(float)
        labels = np.argsort(-share, kind="stable").astype(np.int32)
        depth = levels_for(n, arity) if "depth" in bound else 0
        slack, alone = 1.3 if "slack" in bound else 0.0, 0.25 if "alone" in bound else 0.0
        pads, capacity = 0, 0
        if bound == "well-formed":
            pads = (1 - n) % (arity - 1)
        else:
            most = arity ** (depth - 1) if depth else n
            capacity = 1 if n <= arity else min(n - 1, most)
        tree = empty_topology(1, arity, n)
        tree.child[0], tree.level[0] = -2, 0
        own = rng.integers(-1, arity, n)
        tree.leaf_node[:], tree.leaf_branch[:] = np.minimum(own, 0), own
        known = by_sums(n, arity, rng)
        n_rows = np.where((known.counts[:, 0] > 1) & (own >= 0), known.counts[:, 0], 0)
        p = known.sums[:, 0] / known.counts[:, :1]
        p[n_rows == 0] = np.float32(1 / arity)

        q, p, own, n_rows = share[labels], p[labels], own[labels], n_rows[labels]
        is_known, how = n_rows > 0, dict[str, Any]()
        if alone:
            how["alone"] = alone_of(q, arity, own, capacity, alone, stay=margin > 0)
            n_alone += len(how["alone"])
            own[: len(how["alone"])] = -1
            is_known &= own >= 0
        if margin:
            is_known = own >= 0
            how["keeps"] = keepers(q, p, is_known, own, n_rows, margin)
        slow = greedy(q, p, is_known, capacity, pads, times_p=times_p, slack=slack, **how)
        made, _, _ = dealt(
            labels, share, Rule(depth, slack, alone, times_p, margin), tree, known, seed
        )
        found = [branch_at_root(made, label) for label in labels.tolist()]
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


def check(tree: SoftmaxTree, n_nodes: int, labels: np.ndarray, rule: Rule) -> None:
    """Prove that every label has one leaf, all numbers agree, and the bounds hold."""
    arity = tree.child.shape[1]
    assert tree.parent[0] == -1
    places = [(int(tree.child[at]), *at) for at in np.ndindex(tree.child.shape)]
    leaves = {-2 - child: (node, branch) for child, node, branch in places if child < -1}
    assert sorted(leaves) == sorted(labels.tolist())
    assert np.count_nonzero(tree.child < -1) == len(leaves)
    sizes = np.zeros(n_nodes, int)
    for label, place in leaves.items():
        assert (tree.leaf_node[label], tree.leaf_branch[label]) == place
        above = place[0]
        while above >= 0:
            sizes[above] += 1
            above = int(tree.parent[above])
    inner = [(child, node, branch) for child, node, branch in places if child >= 0]
    for child, node, branch in inner:
        assert (tree.parent[child], tree.branch[child]) == (node, branch)
        assert tree.level[child] == tree.level[node] + 1
    used = [0, *(child for child, _, _ in inner)]
    assert len(set(used)) == len(used)
    for node in used:
        assert sizes[node] >= 2
        assert np.count_nonzero(tree.child[node] != -1) >= 2
        assert not rule.depth or sizes[node] <= arity ** (rule.depth - tree.level[node])
    if not rule.depth and not rule.slack:
        assert len(used) == -(-(len(labels) - 1) // (arity - 1))
        if (len(labels) - 1) % (arity - 1) == 0:
            assert not ((sizes[used] - 1) % (arity - 1)).any()


@pytest.mark.parametrize(
    ("arity", "n_labels"), [(2, 2), (2, 33), (3, 27), (3, 28), (5, 60), (7, 8), (9, 5)]
)
@pytest.mark.parametrize("margin", [0.0, 2.0])
@pytest.mark.parametrize(
    "bound", ["well-formed", "depth", "slack", "slack and alone", "depth and alone"]
)
def test_trees_stay_within_their_bounds_update_after_update(
    arity: int, n_labels: int, bound: str, margin: float
) -> None:
    n = n_labels + 3
    rng = np.random.default_rng(arity * 100 + n_labels)
    labels = rng.permutation(n)[:n_labels].astype(np.int32)
    share = np.zeros(n)
    share[labels] = np.sort(rng.random(n_labels))[::-1] + 0.1
    depth = levels_for(n_labels, arity) if "depth" in bound else 0
    slack, alone = 1.3 if "slack" in bound else 0.0, 0.3 if "alone" in bound else 0.0
    rule = Rule(depth, slack, alone, False, margin)
    tree, seen, moved = empty_topology(1, arity, n), np.zeros(n, np.int64), 0
    for update in range(6):
        made, n_nodes, is_new = dealt(labels, share, rule, tree, by_means(n, seen, rng), update)
        check(made, n_nodes, labels, rule)
        moved += int((made.leaf_node != tree.leaf_node).any())
        assert not is_new[n_nodes:].any()
        tree, seen = made, rng.integers(0, 9, n) * (rng.random(n) < 0.8)
    assert moved >= 1
