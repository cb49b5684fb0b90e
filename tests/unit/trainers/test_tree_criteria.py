"""The criteria of decision trees against their definitions and against the lemmas of the paper."""

from math import e, log, log2, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import entropy
from tests.helpers.small_models import small_draft
from tests.oracles.trees import random_tree

from xylem.trainers import tree_criteria
from xylem.trainers.lomtree.trainer import sum_to_inner_nodes
from xylem.trainers.tree_criteria import (
    NodeCounts,
    counts_of,
    criteria_of,
    leaf_criteria,
    splits_of,
)
from xylem_store.ensemble import TreeEnsemble

seeds = st.integers(0, 2**32 - 1)


def counts_of_matrix(matrix: np.ndarray) -> NodeCounts:
    """Counts[node, label] as NodeCounts."""
    node, label = np.nonzero(matrix)
    return counts_of(
        len(matrix), node, label.astype(np.int32), matrix[node, label].astype(np.float64)
    )


def matrix_of(counts: NodeCounts, n_labels: int) -> np.ndarray:
    """NodeCounts as counts[node, label]."""
    matrix = np.zeros((len(counts.ptr) - 1, n_labels))
    matrix[counts.node, counts.label] = counts.value
    return matrix


def random_counts(
    seed: int, arity: int, n_leaves: int, n_labels: int
) -> tuple[np.ndarray, NodeCounts]:
    """A tree of at most so many leaves, and the counts of its nodes, some leaves without any."""
    rng = np.random.default_rng(seed)
    child_ptr = random_tree(rng, n_leaves, 1, arity).child_ptr
    n = len(child_ptr) - 1
    matrix = rng.integers(0, 6, (n, n_labels)) * (rng.random((n, 1)) < 0.9)
    matrix[-1, 0] += 1
    return child_ptr, sum_to_inner_nodes(child_ptr, counts_of_matrix(matrix))


@given(seeds, st.integers(1, 9), st.integers(1, 12), st.floats(2.01, 8.0))
def test_criteria_of_nodes_follow_their_definitions(seed: int, n: int, k: int, c: float) -> None:
    matrix = np.random.default_rng(seed).integers(0, 4, (n, k))
    criteria = criteria_of(counts_of_matrix(matrix), c)
    for row, found in zip(matrix, np.transpose(criteria), strict=True):
        if row.sum() == 0:
            assert found.tolist() == [0, 0, 0, 0]
            continue
        share = row / row.sum()
        modified = sum(sqrt(p * (c - p)) for p in share)
        expected = [entropy(row), 1 - (share**2).sum(), modified, 1 - share.max()]
        assert found == pytest.approx(expected, abs=1e-12)
        assert sqrt(c - 1) - 1e-9 <= found[2] <= sqrt(k * c - 1) + 1e-9


@given(seeds, st.integers(1, 9), st.integers(1, 12))
def test_the_error_of_leaves_is_bounded_by_their_shannon_entropy(seed: int, n: int, k: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 4, (n, k))
    found = leaf_criteria(counts_of_matrix(matrix))
    assert found["error"] <= found["shannon"] * log2(e) + 1e-12
    assert found["error"] <= found["gini"] + 1e-12
    if matrix.sum():
        weights = matrix.sum(axis=1) / matrix.sum()
        entropies = [entropy(row) if row.sum() else 0.0 for row in matrix]
        assert found["shannon"] == pytest.approx(weights @ entropies, abs=1e-12)
        assert 0 <= found["shannon"] <= log(k) + 1e-12


@given(seeds, st.integers(2, 5), st.integers(1, 13), st.integers(1, 7))
def test_growing_a_tree_again_never_raises_an_entropy(
    seed: int, arity: int, n_leaves: Any, k: int
) -> None:
    child_ptr, counts = random_counts(seed, arity, n_leaves, k)
    growth = tree_criteria.criteria_by_splits(child_ptr, counts)
    n_splits = np.count_nonzero(np.diff(child_ptr))
    assert growth["splits"].tolist() == list(range(n_splits + 1))
    leaves = matrix_of(counts, k)[np.diff(child_ptr) == 0]
    for name, value in leaf_criteria(counts_of_matrix(leaves)).items():
        assert (np.diff(growth[name]) <= 1e-9).all()
        assert growth[name][-1] == pytest.approx(value, abs=1e-9)
    root = criteria_of(counts)
    assert growth["shannon"][0] == pytest.approx(root.shannon[0], abs=1e-9)


def objective(children: np.ndarray) -> float:
    """J of counts[child, label], by the definition."""
    p = children / children.sum()
    to_child, share = p.sum(axis=1), p.sum(axis=0)
    gaps = [abs(share[i] * to_child[j] - p[j, i]) for j in range(len(p)) for i in range(p.shape[1])]
    return 2 / len(p) * sum(gaps)


@given(seeds, st.integers(2, 5), st.integers(2, 13), st.integers(1, 7))
def test_objective_balance_and_purity_follow_their_definitions(
    seed: int, arity: int, n_leaves: Any, k: int
) -> None:
    child_ptr, counts = random_counts(seed, arity, n_leaves, k)
    matrix, found = matrix_of(counts, k), splits_of(child_ptr, counts)
    inner = [i for i in np.flatnonzero(np.diff(child_ptr)) if matrix[i].sum()]
    assert found.node.tolist() == inner
    for i, node in enumerate(inner):
        children = matrix[child_ptr[node] : child_ptr[node + 1]]
        j, alpha, beta = found.objective[i], found.purity[i], found.balance[i]
        assert j == pytest.approx(objective(children), abs=1e-9)
        assert 0 <= j <= 1
        assert beta == pytest.approx(children[-1].sum() / children.sum())
        assert alpha == pytest.approx(1 - children.max(axis=0).sum() / children.sum(), abs=1e-9)
        if len(children) == 2:
            p = children / children.sum()
            assert j == pytest.approx(2 * np.abs(p.sum(axis=0) * beta - p[1]).sum(), abs=1e-9)
            slack = sqrt(max(0.0, 1 - j))
            assert 0.5 * (1 - slack) - 1e-6 <= beta <= 0.5 * (1 + slack) + 1e-6  # lemma 2
            assert alpha <= 0.5 + 1e-9


@given(seeds, st.integers(2, 13), st.integers(2, 7))
def test_a_split_lowers_the_entropies_by_what_lemma_4_says(
    seed: int, n_leaves: int, k: int
) -> None:
    child_ptr, counts = random_counts(seed, 2, n_leaves, k)
    alone, total, found = criteria_of(counts), counts.total, splits_of(child_ptr, counts)
    for i, node in enumerate(found.node):
        children = slice(child_ptr[node], child_ptr[node + 1])
        weight = total[children] / total[node]
        beta, j = found.balance[i], found.objective[i]
        if 0 < beta < 1:
            shannon = alone.shannon[node] - weight @ alone.shannon[children]
            gini = alone.gini[node] - weight @ alone.gini[children]
            assert shannon >= j**2 / (8 * beta * (1 - beta)) - 1e-9
            assert gini >= j**2 / (4 * k * beta * (1 - beta)) - 1e-9


def test_a_pure_and_balanced_split_has_the_objective_1() -> None:
    child_ptr = np.array([1, 3, 3, 3], np.int32)
    counts = counts_of_matrix(np.array([[2, 3, 5], [2, 3, 0], [0, 0, 5]]))
    found = splits_of(child_ptr, counts)
    assert (found.objective[0], found.balance[0], found.purity[0]) == pytest.approx((1.0, 0.5, 0.0))
    assert tree_criteria.depths(child_ptr).tolist() == [0, 1, 1]
    line = {"depth": 0, "nodes": 1, "objective": 1.0, "smaller_side": 0.5, "purity": 0.0}
    assert tree_criteria.splits_by_depth(child_ptr, counts) == [pytest.approx(line)]


def test_a_tree_that_is_a_leaf_without_counts() -> None:
    child_ptr = np.array([1, 1], np.int32)
    counts = counts_of(1, np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0))
    assert leaf_criteria(counts) == {"shannon": 0, "gini": 0, "modified_gini": 0, "error": 0}
    assert tree_criteria.criteria_by_splits(child_ptr, counts)["error"].tolist() == [0]
    assert tree_criteria.splits_by_depth(child_ptr, counts) == []
    assert len(sum_to_inner_nodes(child_ptr, counts).value) == 0


def walk(
    ensemble: TreeEnsemble, node: int, place: tuple[int, ...]
) -> dict[tuple[int, ...], list[int]]:
    """The labels below each node that has children, by where the
    node is: this one and those below it.
    """
    found: dict[tuple[int, ...], list[int]] = {place: []}
    for number, child in enumerate(range(*ensemble.child_ptr[node : node + 2]), 1):
        if ensemble.node_label[child] >= 0:
            found[place].append(int(ensemble.node_label[child]))
        else:
            below = walk(ensemble, child, (*place, number))
            found[place] += below[(*place, number)]
            found |= below
    return found


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_nodes_have_the_labels_that_a_walk_finds(depth: int, n_trees: int) -> None:
    ensemble = small_draft(7, n_labels=40, n_features=30, n_trees=n_trees).ensemble
    counts = np.random.default_rng(0).integers(0, 5, 40)
    for tree in range(n_trees):
        places = walk(ensemble, tree, ())
        expected = {place: labels for place, labels in places.items() if len(place) <= depth}
        found = tree_criteria.tree_labels(ensemble, counts, tree=tree, depth=depth, n_labels=6)
        assert [each.place for each in found] == sorted(expected)
        for each in found:
            labels = sorted(expected[each.place], key=lambda label: (-counts[label], label))
            assert each.labels.tolist() == labels[:6]
            assert (each.n_labels, each.n_rows) == (len(labels), counts[labels].sum())
