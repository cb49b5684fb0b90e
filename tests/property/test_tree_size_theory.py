"""Theorems 1 to 3 of Lin, Liu and Lin 2024, "Exploring Space Efficiency in a Tree-based Linear
Model for Extreme Multi-label Classification", on balanced trees of data made to fit them.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from tests.oracles.problems import to_labels, to_rows, training_sets

from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers import estimate, parse_parameters, train
from xylem.trainers.classifiers import members_of
from xylem.trainers.representations import rows_by_label
from xylem.trainers.shape import join, random_shape
from xylem.trainers.size import SizeEstimate, estimate_size
from xylem.trainers.source import Tools, TrainingSet, derived_seed

seeds = st.integers(0, 2**31)
WEIGHT_BYTES, FLAT_WEIGHT_BYTES = 12, 8


def balanced_data(
    arity: int, depth: int, n_features: int, share: float, seed: int
) -> tuple[np.ndarray, int]:
    """Rows, one a label, such that a node one level further down
    uses `share` of its parent's features.

    The tree is the complete one that `plt` draws for the seed. Returns (float64[L, n], sum of
    children times features used).
    """
    n_labels = arity**depth
    shape = random_shape(np.arange(n_labels, dtype=np.int32), arity, derived_seed(seed, 0))
    used = {0: np.arange(n_features)}
    x = np.zeros((n_labels, n_features))
    weights = 0
    for node in range(len(shape.first)):
        children = range(shape.child_ptr[node], shape.child_ptr[node + 1])
        if not children:
            x[shape.labels[shape.first[node]], used[node]] = 1.0
            continue
        features = used[node]
        weights += len(children) * len(features)
        is_lowest = shape.last[node] - shape.first[node] == arity
        n_kept = len(features) if is_lowest else round(share * len(features))
        for j, child in enumerate(children):
            start = j * len(features) // arity
            used[child] = np.take(features, range(start, start + n_kept), mode="wrap")
    return x, weights


def one_a_label(x: np.ndarray) -> TrainingSet:
    """Rows that have a label each."""
    return TrainingSet(to_rows(x), to_labels(np.eye(len(x)) > 0))


def plt_of(arity: int, *more: str) -> Any:
    """The parameters of the complete tree that `plt` draws."""
    return parse_parameters("plt", ["tree=random", f"arity={arity}", "prune=0", *more])


def ratio_of_the_paper(arity: int, depth: int, alpha: float) -> float:
    """Equation (15) for L = arity^depth labels."""
    n_labels, k_alpha = arity**depth, arity * alpha
    return arity * (k_alpha ** (depth - 1) - 1) / (n_labels * (k_alpha - 1)) + alpha ** (depth - 1)


@settings(max_examples=25)
@given(st.sampled_from([(4, 2), (4, 3), (5, 3), (8, 2)]), st.sampled_from([0.5, 0.75, 1.0]), seeds)
def test_a_balanced_tree_has_the_weights_of_equation_14(tree: Any, alpha: Any, seed: int) -> None:
    arity, depth = tree
    assume(arity * alpha != 1)
    x, weights = balanced_data(arity, depth, 64, alpha, seed)
    found = estimate("plt", plt_of(arity), one_a_label(x), Tools(seed))
    assert found["nonzeros_bound"] == weights
    assert found["alpha_per_depth"] == pytest.approx([alpha] * (depth - 1))
    ratio = found["ratio_to_ovr"] * FLAT_WEIGHT_BYTES / WEIGHT_BYTES
    assert ratio == pytest.approx(ratio_of_the_paper(arity, depth, alpha), rel=1e-9)
    if depth == 3 and alpha < 0.618:  # alpha* solves alpha (1 + alpha) = 1
        assert ratio < 1, "theorem 1"


def test_a_tree_is_smaller_than_one_vs_rest_below_the_bound() -> None:
    """Theorem 1: for arity 4 and depth 3, alpha* solves alpha (1 + alpha) = 1, about 0.618."""
    sizes = {}
    for alpha in (0.5, 1.0):
        data, parameters = (
            one_a_label(balanced_data(4, 3, 64, alpha, 3)[0]),
            plt_of(4, "max_epochs=3"),
        )
        trained = train("plt", parameters, data.rows, data.labels, 3)
        sizes[alpha] = trained.n_nonzeros / (64 * 64)
        assert trained.n_nonzeros <= estimate("plt", parameters, data, Tools(3))["nonzeros_bound"]
    assert sizes[0.5] < 1 < sizes[1.0]


def largest_depth(n_labels: int, arity: int) -> int:
    """D of equation (13)."""
    return math.floor(1 + math.log(n_labels / 2, arity) + 1e-9)


def nested_rows(arity: int, n_labels: int, n_features: int, alpha: float) -> np.ndarray:
    """A row a label, float64[L, n]; a part of the division of the labels
    has alpha of its parent's features.

    Down to the second level, below which all rows of a part are alike.
    """
    x = np.zeros((n_labels, n_features))
    parts = [(0, n_labels, np.arange(n_features))]
    for _ in range(2):
        parts = [
            (
                first + j * (last - first) // arity,
                first + (j + 1) * (last - first) // arity,
                np.take(
                    used, j * len(used) // arity + np.arange(round(alpha * len(used))), mode="wrap"
                ),
            )
            for first, last, used in parts
            for j in range(arity)
        ]
    for first, last, used in parts:
        x[first:last, used] = 1.0
    return x


def size_of_depth(x: np.ndarray, arity: int, depth: int) -> SizeEstimate:
    """The estimate of the balanced tree of so many levels; the last one has all
    labels of a part.
    """
    data, labels = one_a_label(x), np.arange(len(x), dtype=np.int32)
    levels = [np.linspace(0, len(x), arity**i + 1).astype(np.int64) for i in range(1, depth)]
    members = members_of(*rows_by_label(data.labels), labels)
    return estimate_size(data, [(join(labels, levels), members)], Tools())


@pytest.mark.parametrize(("arity", "n_labels"), [(2, 16), (2, 31 + 1), (3, 54), (4, 128)])
@pytest.mark.parametrize("alpha", [0.5, 0.75])
def test_a_deeper_balanced_tree_is_smaller_up_to_a_depth(
    arity: int, n_labels: int, alpha: Any
) -> None:
    """Theorem 2 for d = 2, and equation (14) for both depths."""
    if alpha >= 1 - 1 / (2 * arity):
        alpha = 0.625
    assert largest_depth(n_labels, arity) >= 4
    n_features = 16 * arity * arity
    x = nested_rows(arity, n_labels, n_features, alpha)
    shallow, deep = (size_of_depth(x, arity, depth) for depth in (2, 3))
    found = shallow.alpha_per_depth[0]
    assert deep.alpha_per_depth == pytest.approx([found, found], rel=0.02)
    for depth, size in ((2, shallow), (3, deep)):
        geometric = sum((arity * found) ** i for i in range(depth - 1))
        of_the_paper = arity * n_features * geometric + n_labels * found ** (depth - 1) * n_features
        assert size.nonzeros_bound == pytest.approx(of_the_paper, rel=0.02)
    assert deep.ratio_to_ovr < shallow.ratio_to_ovr


@pytest.mark.parametrize(
    ("n_labels", "arity", "deepest"), [(2 * 10**8, 100, 5), (16, 2, 4), (15, 2, 3), (2, 7, 1)]
)
def test_the_deepest_balanced_tree_has_two_labels_at_its_bottom(
    n_labels: int, arity: int, deepest: Any
) -> None:
    """Equations (12) and (13); the first case is the paper's."""
    assert largest_depth(n_labels, arity) == deepest
    assert n_labels / arity ** (deepest - 1) >= 2 > n_labels / arity**deepest


@settings(max_examples=25)
@given(st.sampled_from([(2, 3), (3, 2), (4, 2)]), st.floats(0.02, 0.6), seeds)
def test_a_node_has_the_share_1_over_k_of_its_parents_features(
    tree: Any, density: float, seed: int
) -> None:
    """Theorem 3, of any rows: the children of a node have all of its features between them."""
    arity, depth = tree
    rng = np.random.default_rng(seed)
    n_labels = arity**depth
    x = (rng.random((3 * n_labels, 40)) < density).astype(float)
    carried = rng.random((3 * n_labels, n_labels)) < 0.1
    carried[np.arange(3 * n_labels), np.arange(3 * n_labels) % n_labels] = True
    x[:, 0] = 1.0
    found = estimate("plt", plt_of(arity), TrainingSet(to_rows(x), to_labels(carried)), Tools(seed))
    assert min(found["alpha_per_depth"]) >= 1 / arity - 1e-9


data_sets = training_sets(40, 60, 50, [0.0, 0.1, 0.9], [0.0, 0.1, 0.6])
CHOICES = [
    ["leaf_size=1", "leaf_size=3", "leaf_size=100"],
    ["arity=2", "arity=16", "arity=64"],
    ["clustering=balanced", "clustering=kmeans"],
    ["loss=squared_hinge", "loss=logistic"],
    ["prune=0", "prune=0.1"],
    ["trees=1", "trees=2"],
]


@settings(max_examples=80)
@given(data_sets, st.tuples(*map(st.sampled_from, CHOICES)), st.integers(0, 2**63 - 1))
def test_trees_are_valid_and_do_not_depend_on_threads(
    data: tuple[SparseRows, LabelRows], items: list[str], seed: int
) -> None:
    rows, labels = data
    parameters = parse_parameters("label-tree", items)
    trained = train("label-tree", parameters, rows, labels, seed, 1)
    ensemble = trained.ensemble
    carried = np.bincount(labels.indices, minlength=labels.n_labels) > 0
    for leaves in ensemble.label_leaf:
        assert ((leaves >= 0) == carried).all()
        assert (ensemble.node_label[leaves[carried]] == np.flatnonzero(carried)).all()
    assert (ensemble.node_label >= 0).sum() == carried.sum() * len(ensemble.label_leaf)
    n_children = np.diff(ensemble.child_ptr)
    assert ((n_children == 0) == (ensemble.node_label >= 0)).all()
    inner = n_children > 0
    inner[: len(ensemble.label_leaf)] = False
    assert (n_children[inner] > 1).all(), "a node below the root has a choice to make"
    assert np.isfinite(ensemble.node_bias).all()
    assert np.isfinite(ensemble.dense).all()
    size = estimate("label-tree", parameters, TrainingSet(rows, labels), Tools(seed))
    assert trained.n_nonzeros <= size["nonzeros_bound"]
    again = train("label-tree", parameters, rows, labels, seed, 3).ensemble
    for name, array in ensemble._asdict().items():
        assert array.tobytes() == getattr(again, name).tobytes(), name
