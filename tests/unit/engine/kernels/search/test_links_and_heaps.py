"""Small parts of the traversals: links with exponential and
logarithm, the two heaps, trees of a ranker.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.oracles.trees import LINKS

from xylem.base.rows import offsets
from xylem.engine.kernels.search.heaps import keep_best, pop_frontier, push_frontier, sort_best
from xylem.engine.kernels.search.ranker_trees import BLOCK, RankerTrees, add_trees, trees_of
from xylem.engine.kernels.search.scores import log_links
from xylem.vocabulary.ranker import margins_of
from xylem_store.compiled.decorators import nonallocating_kernel as kernel
from xylem_store.compiled.handles import handle_of, struct_at
from xylem_store.ensemble import LINK_CODES
from xylem_store.members import NODES_MAX, Ranker

links = st.sampled_from(list(LINKS))


@kernel
def call(link: str, n_children: int, margins: Any) -> None:
    log_links(link, n_children, margins)


def log_p(link: str, *margins: Any) -> float:
    padded = np.zeros(-(-len(margins) // 16) * 16, np.float32)
    padded[: len(margins)] = margins
    call(LINK_CODES[link], len(margins), padded)
    return padded[: len(margins)]


@given(links, st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40))
def test_they_are_the_logarithms_of_the_links(link: str, margins: Any) -> None:
    found = log_p(link, *margins)
    with np.errstate(all="ignore"):
        expected = np.log([LINKS[link](np.float64(margin)) for margin in margins])
    assert (found <= 0).all()
    finite = expected > np.log(np.finfo(float).tiny)  # below, the oracle has lost its digits
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-6)


@given(
    st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40), st.floats(-1e3, 1e3, width=32)
)
def test_softmax_is_of_all_margins_of_a_node(margins: Any, shift: Any) -> None:
    found = log_p("softmax", *margins)
    exact = np.array(margins, np.float64)
    expected = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    assert (found <= 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
    assert abs(np.exp(found.astype(np.float64)).sum() - 1) < 1e-5
    moved = log_p("softmax", *(np.float32(m) + np.float32(shift) for m in margins))
    np.testing.assert_allclose(moved, found, atol=1e-3)


def test_softmax_of_margins_beyond_numbers() -> None:
    first, *others = log_p("softmax", np.inf, 0, -np.inf)
    assert first == 0 and max(others) <= -1e4
    np.testing.assert_allclose(log_p("softmax", np.inf, np.inf), np.log(0.5), rtol=1e-6)
    assert np.isnan(log_p("softmax", 1, np.nan, 2)).all(), "it must not become a probability"
    assert log_p("softmax", 5)[0] == 0


@given(links, st.lists(st.floats(-90, 90, width=32), min_size=2, max_size=40))
def test_a_larger_margin_is_never_less_probable(link: str, margins: Any) -> None:
    assert (np.diff(log_p(link, *sorted(margins))) >= -1e-6).all()


@pytest.mark.parametrize("link", list(LINKS))
def test_the_ends(link: str) -> None:
    least, most, none = log_p(link, -np.inf, np.inf, np.nan)
    assert (least, most) == (-np.inf, 0)
    assert np.isnan(none), "a margin that is no number must not become a probability"


@given(links, st.floats(-90, 90, width=32), st.integers(0, 20))
def test_the_place_among_the_children_does_not_change_the_bits(
    link: str, margin: Any, place: Any
) -> None:
    assert log_p(link, *np.linspace(-3, 3, place), margin)[-1] == log_p(link, margin)[0]


entries = st.lists(
    st.tuples(st.sampled_from([-np.inf, -2.5, -1.0, -0.5, 0.0]), st.integers(0, 50)),
    unique=True,
    max_size=40,
)


def best_first(item: Any) -> Any:
    return -item[0], item[1]


@given(entries, st.integers(1, 12))
def test_keep_best_keeps_the_best_whatever_their_order(items: Any, capacity: Any) -> None:
    scores, ids, size = np.empty(capacity, np.float32), np.empty(capacity, np.int32), 0
    for score, id_ in items:
        size = keep_best(scores, ids, size, capacity, np.float32(score), id_)
    sort_best(scores, ids, size)
    found = list(zip(scores[:size].tolist(), ids[:size].tolist(), strict=True))
    assert found == sorted(items, key=best_first)[:capacity]


@given(entries, st.randoms())
def test_the_frontier_gives_the_best_first(items: Any, random: Any) -> None:
    scores, ids = np.empty(len(items) + 1, np.float32), np.empty(len(items) + 1, np.int32)
    size, model, left = 0, [], list(items)
    while model or left:
        if left and (not model or random.random() < 0.7):
            model.append(left.pop(0))
            score, id_ = model[-1]
            size = push_frontier(scores, ids, size, np.float32(score), id_)
        else:
            best = min(model, key=best_first)
            assert (scores[0], ids[0]) == best
            model.remove(best)
            size = pop_frontier(scores, ids, size)
    assert size == 0


N_FEATURES = 5


@kernel
def _add(n: int, trees_at: Any, matrix: Any, margin: Any) -> None:
    add_trees(n, struct_at(RankerTrees, trees_at), matrix, margin)


def random_tree(rng: np.random.Generator, n_leaves: int, is_chain: bool) -> np.ndarray:
    """Return the children of a tree's nodes, of a leaf the leaf
    itself; a chain has a leaf at each level.
    """
    child = np.arange(2 * n_leaves - 1)
    leaves, n = [0], 1
    while n < len(child):
        node = leaves.pop() if is_chain else leaves.pop(int(rng.integers(len(leaves))))
        child[node] = n
        leaves = [*leaves, n, n + 1] if rng.random() < 0.5 or not is_chain else [*leaves, n + 1, n]
        n += 2
    return child


def random_ranker(seed: int) -> Ranker:
    rng = np.random.default_rng(seed)
    most = (NODES_MAX + 1) // 2
    sizes = [1, 2, 3, most, most, *rng.integers(1, most + 1, 20).tolist()]
    trees = [random_tree(rng, size, i == 3) for i, size in enumerate(sizes)]
    ptr = offsets(map(len, trees)).astype(np.int32)
    child = np.concatenate([tree + first for tree, first in zip(trees, ptr, strict=False)]).astype(
        np.int32
    )
    n, linear = len(child), np.zeros(N_FEATURES + 1, np.float32)
    feature = rng.integers(0, N_FEATURES, n).astype(np.int32)
    threshold, value = (
        rng.integers(-2, 3, n).astype(np.float32),
        rng.normal(size=n).astype(np.float32),
    )
    return Ranker(linear, ptr, feature, threshold, child, value)


@pytest.mark.parametrize("n", [1, 16, 17, 33, BLOCK])
def test_margins_are_those_of_walks(seed: int, n: int) -> None:
    ranker = random_ranker(seed)
    assert np.diff(ranker.tree_ptr).max() == NODES_MAX
    x = (
        np.random.default_rng(seed + 1).integers(-2, 3, (n, N_FEATURES)).astype(np.float32)
    )  # ties, too
    matrix, margin = np.full((N_FEATURES, BLOCK), np.nan, np.float32), np.zeros(BLOCK, np.float32)
    matrix[:, :n] = x.T
    trees = trees_of(ranker)
    _add(n, handle_of(trees), matrix, margin)
    np.testing.assert_allclose(margin[:n], margins_of(ranker, x), rtol=1e-5, atol=1e-5)
