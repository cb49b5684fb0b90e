"""The two heaps against sorted lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kernels.search.heaps import keep_best, pop_frontier, push_frontier, sort_best

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
