"""Small parts of the traversals: links with their exponential and logarithm, and the two heaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.compiled.decorators import nonallocating_kernel
from model_store.ensemble import LINK_CODES
from service.kernels.search.heaps import keep_best, pop_frontier, push_frontier, sort_best
from service.kernels.search.scores import log_links
from tests.oracles.trees import LINKS

links = st.sampled_from(list(LINKS))


@nonallocating_kernel
def call(link, n_children, margins):
    log_links(link, n_children, margins)


def log_p(link, *margins):
    padded = np.zeros(-(-len(margins) // 16) * 16, np.float32)
    padded[: len(margins)] = margins
    call(LINK_CODES[link], len(margins), padded)
    return padded[: len(margins)]


@settings(deadline=None)
@given(links, st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40))
def test_they_are_the_logarithms_of_the_links(link, margins):
    found = log_p(link, *margins)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        expected = np.log([LINKS[link](np.float64(margin)) for margin in margins])
    assert (found <= 0).all()
    finite = expected > np.log(np.finfo(float).tiny)  # below, the oracle has lost its digits
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40), st.floats(-1e3, 1e3, width=32))
def test_softmax_is_of_all_margins_of_a_node(margins, shift):
    found = log_p("softmax", *margins)
    exact = np.array(margins, np.float64)
    expected = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    assert (found <= 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
    assert abs(np.exp(found.astype(np.float64)).sum() - 1) < 1e-5
    moved = log_p("softmax", *(np.float32(m) + np.float32(shift) for m in margins))
    np.testing.assert_allclose(moved, found, atol=1e-3)


def test_softmax_of_margins_beyond_numbers():
    assert log_p("softmax", np.inf, 0, -np.inf)[0] == 0
    assert (log_p("softmax", np.inf, 0, -np.inf)[1:] <= -1e4).all()
    np.testing.assert_allclose(log_p("softmax", np.inf, np.inf), np.log(0.5), rtol=1e-6)
    assert np.isnan(log_p("softmax", 1, np.nan, 2)).all(), "it must not become a probability"
    assert log_p("softmax", 5)[0] == 0


@settings(deadline=None)
@given(links, st.lists(st.floats(-90, 90, width=32), min_size=2, max_size=40))
def test_a_larger_margin_is_never_less_probable(link, margins):
    found = log_p(link, *sorted(margins))
    assert (np.diff(found) >= -1e-6).all()


@pytest.mark.parametrize("link", list(LINKS))
def test_the_ends(link):
    least, most, none = log_p(link, -np.inf, np.inf, np.nan)
    assert least == -np.inf
    assert most == 0
    assert np.isnan(none), "a margin that is no number must not become a probability"


@settings(deadline=None)
@given(links, st.floats(-90, 90, width=32), st.integers(0, 20))
def test_the_place_among_the_children_does_not_change_the_bits(link, margin, place):
    alone = log_p(link, margin)
    among = log_p(link, *np.linspace(-3, 3, place), margin)
    assert among[-1] == alone[0]


entries = st.lists(
    st.tuples(st.sampled_from([-np.inf, -2.5, -1.0, -0.5, 0.0]), st.integers(0, 50)), unique=True, max_size=40
)


def arrays(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty(n, np.float32), np.empty(n, np.int32)


@settings(deadline=None)
@given(entries, st.integers(1, 12))
def test_keep_best_keeps_the_best_whatever_their_order(items, capacity):
    scores, ids = arrays(capacity)
    size = 0
    for score, id_ in items:
        size = keep_best(scores, ids, size, capacity, np.float32(score), id_)
    sort_best(scores, ids, size)
    best = sorted(items, key=lambda item: (-item[0], item[1]))[:capacity]
    assert list(zip(scores[:size].tolist(), ids[:size].tolist(), strict=True)) == best


@settings(deadline=None)
@given(entries, st.randoms())
def test_the_frontier_gives_the_best_first(items, random):
    scores, ids = arrays(len(items) + 1)
    size, model = 0, []
    for score, id_ in items:
        size = push_frontier(scores, ids, size, np.float32(score), id_)
        model.append((score, id_))
        if random.random() < 0.4:
            best = min(model, key=lambda item: (-item[0], item[1]))
            assert (scores[0], ids[0]) == best
            model.remove(best)
            size = pop_frontier(scores, ids, size)
    while model:
        best = min(model, key=lambda item: (-item[0], item[1]))
        assert (scores[0], ids[0]) == best
        model.remove(best)
        size = pop_frontier(scores, ids, size)
    assert size == 0
