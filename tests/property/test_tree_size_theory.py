"""Theorem 1 of the model-size paper, on balanced trees that the trainer makes of data made to fit them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.trainers import estimate, parse_parameters, train
from service.trainers.clustering import derived_seed
from service.trainers.plt_trees import random_shape
from tests.oracles.problems import to_labels, to_rows

WEIGHT_BYTES, FLAT_WEIGHT_BYTES = 12, 8


def balanced_data(arity: int, depth: int, n_features: int, share: float, seed: int) -> tuple[np.ndarray, int]:
    """Rows, one a label, such that a node one level further down uses `share` of its parent's features.

    The tree is the complete one that `plt` draws for the seed. Returns (float64[L, n], sum of children times
    features used).
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
        n_kept = (
            len(features) if shape.last[node] - shape.first[node] == arity else round(share * len(features))
        )
        for j, child in enumerate(children):
            start = j * len(features) // arity
            used[child] = np.take(features, range(start, start + n_kept), mode="wrap")
    return x, weights


def ratio_of_the_paper(arity: int, depth: int, alpha: float) -> float:
    """Equation (15) for L = arity^depth labels."""
    n_labels, k_alpha = arity**depth, arity * alpha
    return arity * (k_alpha ** (depth - 1) - 1) / (n_labels * (k_alpha - 1)) + alpha ** (depth - 1)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(4, 2), (4, 3), (5, 3), (8, 2)]),
    st.sampled_from([0.5, 0.75, 1.0]),
    st.integers(0, 2**31),
)
def test_a_balanced_tree_has_the_weights_of_equation_14(tree, alpha, seed):
    arity, depth = tree
    assume(arity * alpha != 1)
    n_features = 64
    x, weights = balanced_data(arity, depth, n_features, alpha, seed)
    n_labels = len(x)
    parameters = parse_parameters("plt", ["tree=random", f"arity={arity}", "prune=0"])
    found = estimate("plt", parameters, to_rows(x), to_labels(np.eye(n_labels) > 0), seed)
    assert found["nonzeros_bound"] == weights
    assert found["alpha_per_depth"] == pytest.approx([alpha] * (depth - 1))
    ratio = found["ratio_to_ovr"] * FLAT_WEIGHT_BYTES / WEIGHT_BYTES
    assert ratio == pytest.approx(ratio_of_the_paper(arity, depth, alpha), rel=1e-9)
    if depth == 3 and alpha < 0.618:  # alpha* solves alpha (1 + alpha) = 1
        assert ratio < 1, "theorem 1"


def test_a_tree_is_smaller_than_one_vs_rest_below_the_theorems_bound_and_larger_at_1():
    """Theorem 1: for arity 4 and depth 3, alpha* solves alpha (1 + alpha) = 1, about 0.618."""
    sizes = {}
    for alpha in (0.5, 1.0):
        x, _ = balanced_data(4, 3, 64, alpha, 3)
        rows, labels = to_rows(x), to_labels(np.eye(64) > 0)
        parameters = parse_parameters("plt", ["tree=random", "arity=4", "prune=0", "max_epochs=3"])
        trained = train("plt", parameters, rows, labels, 3)
        sizes[alpha] = trained.n_nonzeros / (64 * 64)
        assert trained.n_nonzeros <= estimate("plt", parameters, rows, labels, 3)["nonzeros_bound"]
    assert sizes[0.5] < 1 < sizes[1.0]
