"""A ranker's trees for sixteen candidates at once, against walks down each tree."""

import numpy as np
import pytest

from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import handle_of, struct_at
from model_store.members import NODES_MAX, Ranker
from service.kernels.search.ranker_trees import BLOCK, RankerTrees, add_trees, trees_of
from service.workflows.ranker import margins_of

N_FEATURES = 5


@kernel
def _add(n, trees_at, matrix, margin):
    add_trees(n, struct_at(RankerTrees, trees_at), matrix, margin)


def random_tree(rng: np.random.Generator, n_leaves: int, is_chain: bool) -> np.ndarray:
    """Return the children of a tree's nodes, of a leaf the leaf itself; a chain has a leaf at each level."""
    child = np.arange(2 * n_leaves - 1)
    leaves, n = [0], 1
    while n < len(child):
        node = leaves.pop() if is_chain else leaves.pop(int(rng.integers(len(leaves))))
        child[node] = n
        leaves = [*leaves, n, n + 1] if rng.random() < 0.5 or not is_chain else [*leaves, n + 1, n]
        n += 2
    return np.where(child > np.arange(len(child)), child, np.arange(len(child)))


def random_ranker(seed: int) -> Ranker:
    rng = np.random.default_rng(seed)
    most = (NODES_MAX + 1) // 2
    sizes = [1, 2, 3, most, most, *rng.integers(1, most + 1, 20).tolist()]
    trees = [random_tree(rng, size, i == 3) for i, size in enumerate(sizes)]
    ptr = np.concatenate([[0], np.cumsum(list(map(len, trees)))])
    child = np.concatenate([tree + first for tree, first in zip(trees, ptr, strict=False)]).astype(np.int32)
    n = len(child)
    feature = rng.integers(0, N_FEATURES, n).astype(np.int32)
    threshold, value = rng.integers(-2, 3, n).astype(np.float32), rng.normal(size=n).astype(np.float32)
    linear = np.zeros(N_FEATURES + 1, np.float32)
    return Ranker(linear, ptr.astype(np.int32), feature, threshold, child, value)


@pytest.mark.parametrize("n", [1, 16, 17, 33, BLOCK])
def test_margins_are_those_of_walks(seed: int, n: int) -> None:
    ranker = random_ranker(seed)
    assert np.diff(ranker.tree_ptr).max() == NODES_MAX
    x = np.random.default_rng(seed + 1).integers(-2, 3, (n, N_FEATURES)).astype(np.float32)  # ties, too
    matrix, margin = np.full((N_FEATURES, BLOCK), np.nan, np.float32), np.zeros(BLOCK, np.float32)
    matrix[:, :n] = x.T
    trees = trees_of(ranker)
    _add(n, handle_of(trees), matrix, margin)
    np.testing.assert_allclose(margin[:n], margins_of(ranker, x), rtol=1e-5, atol=1e-5)
