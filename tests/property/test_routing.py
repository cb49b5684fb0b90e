"""Routing equals the oracle that sends every row down every tree, and itself in any block."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.calls import dicts_of, make_call, no_answers
from tests.helpers.forests import draw_forests, forest_of, search_of
from tests.helpers.small_models import random_rerank
from tests.oracles.routing import reranked_scores
from tests.oracles.trees import row_dicts

from xylem.engine.kernels.search.routing import route_rows
from xylem.engine.kernels.search.workspace import make_routing, make_workspace
from xylem_store.ensemble import LINKS
from xylem_store.extras import NO_RERANK, Rerank

SHAPES = ["decision-tree"], 4, 40, [1, 5, 33, 70, 1100], [2, 4, 7, 20]
forests = draw_forests(*SHAPES, n_rows=7)
links = st.sampled_from(LINKS["decision-tree"])


def run(
    forest: Any,
    link: str,
    *,
    top_r: int | None = None,
    block_rows: int = 1,
    room: int | None = None,
    rerank: Rerank | None = None,
    costs: Any = None,
    stop: str | None = None,
    **fields: Any,
) -> str:
    """Return one {label: score} a row, in the order answered.

    room    of entries and leaves, instead of what the workspace would have
    rerank  the re-ranking arrays of a version
    stop    the array of the routing workspace whose first byte is looked at as the flag
    fields  of the search
    """
    ensemble, top_r = forest.ensemble, top_r or forest.n_labels
    indptr, indices, _ = forest.rows
    work = make_workspace(ensemble, n_features=max(1, len(indices)), maps_features=block_rows > 1)
    n_mapped = ensemble.directory.shape[1] << 10
    routing = make_routing(ensemble, forest.n_labels, n_mapped, block_rows=block_rows, top_r=top_r)
    if room is not None:
        entries = [
            name for name in routing._fields if name.startswith(("entry_", "next_", "leaf_"))
        ]
        routing = routing._replace(**{name: getattr(routing, name)[:room] for name in entries})
    flag = None
    if stop is not None:
        flag = getattr(routing, stop)
        flag[:] = 0
    tail = (
        NO_RERANK
        if rerank is None
        else Rerank(*(rerank[f"tail/{name}"] for name in Rerank._fields))
    )
    search, answers = search_of(link, top_r, **fields), no_answers(len(indptr) - 1, top_r, costs)
    call = make_call(ensemble, forest.rows, search, work, routing, answers, rerank=tail, stop=flag)
    route_rows(call.handle)
    assert not routing.label_sum.any()
    assert not routing.dense_row.any()
    assert not work.narrow_rows.any()
    assert not work.feature_row.any()
    return dicts_of(answers)


def check_answer(answer: dict[int, float], expected: np.ndarray, rtol: float) -> None:
    """The labels of positive score, the best first, of equal scores the smaller first."""
    assert sorted(answer) == np.flatnonzero(expected).tolist()
    np.testing.assert_allclose(list(answer.values()), expected[list(answer)], rtol=rtol)
    assert all(0 <= score <= 1 for score in answer.values())
    order = [(-score, label) for label, score in answer.items()]
    assert order == sorted(order)


@settings(max_examples=80)
@given(draw_forests(*SHAPES, ("float32", "bfloat16"), n_rows=7), links)
def test_rows_reach_the_oracles_leaves(forest: Any, link: str) -> None:
    for answer, expected in zip(run(forest, link), forest.expected(link), strict=True):
        check_answer(answer, expected, 1e-6)


@settings(max_examples=60)
@given(
    draw_forests(*SHAPES, ("float32", "bfloat16", "int8"), n_rows=9),
    links,
    st.integers(1, 9),
    st.booleans(),
)
def test_blocks_and_their_room_change_no_bit(
    forest: Any, link: str, block_rows: Any, is_tight: Any
) -> None:
    indptr, indices, values = forest.rows
    scaled = values * np.float32(0.1 if forest.seed % 2 else 1.0)  # tenths are rounded
    forest, ensemble = forest._replace(rows=(indptr, indices, scaled)), forest.ensemble
    expected = run(forest, link)
    n_leaves = int(np.count_nonzero(np.diff(ensemble.leaf_ptr)))
    least = max(len(ensemble.directory), n_leaves, block_rows * len(forest.trees))
    room = least + int(np.diff(ensemble.child_ptr).max()) if is_tight else None
    costs, alone = np.full((2, 9, 2), -1, np.int64)
    for requested in (costs, None):  # narrow chunks are spread only where no costs are requested
        answers = run(forest, link, block_rows=block_rows, room=room, costs=requested)
        assert [list(answer.items()) for answer in answers] == [
            list(answer.items()) for answer in expected
        ]
    run(forest, link, costs=alone)
    np.testing.assert_array_equal(costs, alone)
    assert (costs[:, 0] <= len(ensemble.directory)).all()


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.integers(1, 5), st.booleans())
def test_weights_rank_labels_by_score_times_weight(
    forest: Any, link: str, seed: int, top_r: int, is_reranked: Any
) -> None:
    rerank = random_rerank(seed, forest.n_labels, forest.n_features, 1.0) if is_reranked else None
    weight = np.random.default_rng(seed).uniform(0.5, 20, forest.n_labels).astype(np.float32)
    plain = run(forest, link, rerank=rerank)
    found = run(forest, link, rerank=rerank, weight=weight, top_r=top_r)
    for one, other in zip(plain, found, strict=True):
        keys = {label: float(np.float32(score) * weight[label]) for label, score in one.items()}
        best = sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:top_r]
        assert list(other.items()) == best


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.sampled_from([0.0, 1.0, 30.0]))
def test_reranking_equals_the_oracle(forest: Any, link: str, seed: int, gamma: Any) -> None:
    arrays = random_rerank(seed, forest.n_labels, forest.n_features, gamma)
    answers, best = run(forest, link, rerank=arrays), run(forest, link, rerank=arrays, top_r=2)
    rows = zip(answers, best, forest.expected(link), row_dicts(forest.rows), strict=True)
    for answer, first_two, scores, row in rows:
        check_answer(answer, reranked_scores(scores, arrays, row), 2e-4)
        assert list(first_two.items()) == list(answer.items())[:2]


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.integers(1, 5), st.booleans())
def test_thresholds_masks_and_top_r_choose_from_the_full_answer(
    forest: Any, link: str, seed: int, top_r: int, is_one: Any
) -> None:
    rng = np.random.default_rng(seed)
    thresholds = (rng.integers(0, 5, 1 if is_one else forest.n_labels) / 8).astype(np.float32)
    allowed = rng.integers(0, 2, forest.n_labels).astype(np.uint8)
    with np.errstate(divide="ignore"):
        log_threshold = np.log(thresholds.astype(np.float64)).astype(np.float32)
    fields = {"log_threshold": log_threshold, "allowed": allowed}
    found = run(forest, link, top_r=top_r, block_rows=3, **fields)
    least = np.broadcast_to(thresholds, forest.n_labels)
    for answer, full in zip(found, run(forest, link), strict=True):
        kept = [item for item in full.items() if allowed[item[0]] and item[1] >= least[item[0]]]
        assert list(answer.items()) == kept[:top_r]


@settings(max_examples=40)
@given(forests, links, st.integers(1, 5), st.booleans())
def test_a_row_stopped_on_its_way_has_what_it_reached_or_nothing(
    forest: Any, link: str, block_rows: Any, is_sure: Any
) -> None:
    """The flag is the first leaf reached, or its tree: set at some
    point of most searches, and it stays.
    """
    expected = run(forest, link)
    for stop in ("leaf_node", "leaf_tree"):
        found = run(forest, link, block_rows=block_rows, is_sure=is_sure, stop=stop)
        for answer, full in zip(found, expected, strict=True):
            assert answer.keys() <= full.keys()
            assert all(0 < score <= 1 for score in answer.values())
            if is_sure:
                assert answer in ({}, full)


@pytest.mark.parametrize("link", LINKS["decision-tree"])
def test_margins_that_overflow_lead_to_a_leaf(link: str) -> None:
    everything = np.array([0, 33]), np.arange(33, dtype=np.int32), np.full(33, 3e38, np.float32)
    forest = forest_of("decision-tree", 5, n_trees=4, n_labels=9, n_features=33, arity=4)
    (answer,) = run(forest._replace(rows=everything), link)
    assert answer
    assert all(0 < score <= 1 for score in answer.values())
