"""Routing equals the oracle that sends every row down every tree, and itself in any block."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.ensemble import LINK_CODES, TreeEnsemble
from model_store.extras import NO_RERANK, Rerank
from service.kernels.search.call import Search
from service.kernels.search.routing import route_rows
from service.kernels.search.workspace import make_routing, make_workspace
from tests.calls import dicts_of, make_call, no_answers
from tests.oracles.routing import random_decision_forest, reranked_scores, routed_scores, whole_rows
from tests.oracles.trees import row_dicts
from tests.small_models import random_rerank

N_ROWS = 7
ALL_PASS = np.empty(0, np.float32)
ALL = np.empty(0, np.uint8)
EQUAL = np.empty(0, np.float32)

forests = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "n_trees": st.integers(1, 4),
        "n_labels": st.integers(1, 40),
        "n_features": st.sampled_from([1, 5, 33, 70, 1100]),
        "arity": st.sampled_from([2, 4, 20]),
    }
)
links = st.sampled_from(["multiway", "argmax"])


def run(
    ensemble: TreeEnsemble,
    link: str,
    rows: Any,
    n_labels: int,
    *,
    block_rows: int = 1,
    room: int | None = None,
    top_r: int | None = None,
    rerank: Rerank = NO_RERANK,
    log_threshold: Any = ALL_PASS,
    allowed: Any = ALL,
    weight: Any = EQUAL,
    is_sure: bool = False,
    costs: Any = None,
    stop: str | None = None,
) -> list[dict[int, float]]:
    """Return one {label: score} a row, in the order answered.

    room  of entries and leaves, instead of what the workspace would have
    stop  the array of the routing workspace whose first byte is looked at as the flag
    """
    indptr, indices, _ = rows
    n_rows, top_r = len(indptr) - 1, top_r or n_labels
    n_features = ensemble.directory.shape[1] << 10
    work = make_workspace(ensemble, n_features=max(1, len(indices)), maps_features=block_rows > 1)
    routing = make_routing(ensemble, n_labels, n_features, block_rows=block_rows, top_r=top_r)
    if room is not None:
        entries = [name for name in routing._fields if name.startswith(("entry_", "next_", "leaf_"))]
        routing = routing._replace(**{name: getattr(routing, name)[:room] for name in entries})
    flag = None
    if stop is not None:
        flag = getattr(routing, stop)
        flag[:] = 0
    search = Search(LINK_CODES[link], 1, top_r, is_sure, allowed, weight, log_threshold)
    answers = no_answers(n_rows, top_r, costs)
    call = make_call(ensemble, rows, search, work, routing, answers, rerank=rerank, stop=flag)
    route_rows(call.handle)
    assert not routing.label_sum.any()
    assert not routing.dense_row.any()
    return dicts_of(answers)


def check_answer(answer: dict[int, float], expected: np.ndarray, rtol: float) -> None:
    """The labels of positive score, the best first, of equal scores the smaller first."""
    assert sorted(answer) == np.flatnonzero(expected).tolist()
    np.testing.assert_allclose(list(answer.values()), expected[list(answer)], rtol=rtol)
    assert all(0 <= score <= 1 for score in answer.values())
    order = [(-score, label) for label, score in answer.items()]
    assert order == sorted(order)


@settings(max_examples=80)
@given(forests, links, st.sampled_from(["float32", "bfloat16"]))
def test_rows_reach_the_oracles_leaves(forest, link, weights):
    trees, ensemble = random_decision_forest(**forest, weights=weights)
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    answers = run(ensemble, link, rows, forest["n_labels"])
    for answer, row in zip(answers, row_dicts(rows), strict=True):
        check_answer(answer, routed_scores(trees, link, row, forest["n_labels"]), 1e-6)


@settings(max_examples=60)
@given(forests, links, st.integers(1, 9), st.booleans(), st.sampled_from(["float32", "bfloat16"]))
def test_blocks_and_their_room_change_no_bit(forest, link, block_rows, is_tight, weights):
    _, ensemble = random_decision_forest(**forest, weights=weights)
    n_labels, n_rows = forest["n_labels"], 9
    indptr, indices, values = whole_rows(forest["seed"], n_rows, forest["n_features"])
    rows = indptr, indices, values * np.float32(0.1 if forest["seed"] % 2 else 1.0)  # tenths are rounded
    expected = run(ensemble, link, rows, n_labels)
    n_leaves = int(np.count_nonzero(np.diff(ensemble.leaf_ptr)))
    least = max(len(ensemble.directory), n_leaves, block_rows * forest["n_trees"])
    room = least + int(np.diff(ensemble.child_ptr).max()) if is_tight else None
    costs = np.full((n_rows, 2), -1, np.int64)
    found = run(ensemble, link, rows, n_labels, block_rows=block_rows, room=room, costs=costs)
    assert [list(answer.items()) for answer in found] == [list(answer.items()) for answer in expected]
    alone = np.full((n_rows, 2), -1, np.int64)
    run(ensemble, link, rows, n_labels, costs=alone)
    np.testing.assert_array_equal(costs, alone)
    assert (costs[:, 0] <= len(ensemble.directory)).all()


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.integers(1, 5), st.booleans())
def test_weights_rank_labels_by_score_times_weight(forest, link, seed, top_r, is_reranked):
    _, ensemble = random_decision_forest(**forest)
    n_labels = forest["n_labels"]
    arrays = random_rerank(seed, n_labels, forest["n_features"], 1.0)
    rerank = Rerank(*(arrays[f"tail/{name}"] for name in Rerank._fields)) if is_reranked else NO_RERANK
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    weight = np.random.default_rng(seed).uniform(0.5, 20, n_labels).astype(np.float32)
    plain = run(ensemble, link, rows, n_labels, rerank=rerank)
    found = run(ensemble, link, rows, n_labels, rerank=rerank, weight=weight, top_r=top_r)
    for one, other in zip(plain, found, strict=True):
        keys = {label: float(np.float32(score) * weight[label]) for label, score in one.items()}
        best = sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:top_r]
        assert list(other.items()) == best


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.sampled_from([0.0, 1.0, 30.0]))
def test_reranking_equals_the_oracle(forest, link, seed, gamma):
    trees, ensemble = random_decision_forest(**forest)
    arrays = random_rerank(seed, forest["n_labels"], forest["n_features"], gamma)
    rerank = Rerank(*(arrays[f"tail/{name}"] for name in Rerank._fields))
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    answers = run(ensemble, link, rows, forest["n_labels"], rerank=rerank)
    best = run(ensemble, link, rows, forest["n_labels"], rerank=rerank, top_r=2)
    for answer, first_two, row in zip(answers, best, row_dicts(rows), strict=True):
        scores = routed_scores(trees, link, row, forest["n_labels"])
        check_answer(answer, reranked_scores(scores, arrays, row), 2e-4)
        assert list(first_two.items()) == list(answer.items())[:2]


@settings(max_examples=60)
@given(forests, links, st.integers(0, 2**31), st.integers(1, 5), st.booleans())
def test_thresholds_masks_and_top_r_choose_from_the_full_answer(forest, link, seed, top_r, is_one):
    _, ensemble = random_decision_forest(**forest)
    n_labels = forest["n_labels"]
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    rng = np.random.default_rng(seed)
    thresholds = (rng.integers(0, 5, 1 if is_one else n_labels) / 8).astype(np.float32)
    allowed = rng.integers(0, 2, n_labels).astype(np.uint8)
    with np.errstate(divide="ignore"):
        log_threshold = np.log(thresholds.astype(np.float64)).astype(np.float32)
    everything = run(ensemble, link, rows, n_labels)
    found = run(
        ensemble,
        link,
        rows,
        n_labels,
        top_r=top_r,
        log_threshold=log_threshold,
        allowed=allowed,
        block_rows=3,
    )
    for answer, full in zip(found, everything, strict=True):
        kept = [
            (label, score)
            for label, score in full.items()
            if allowed[label] and score >= thresholds[0 if is_one else label]
        ]
        assert list(answer.items()) == kept[:top_r]


@settings(max_examples=40)
@given(forests, links, st.integers(1, 5), st.booleans())
def test_a_row_stopped_on_its_way_has_what_it_reached_or_nothing(forest, link, block_rows, is_sure):
    """The flag is the first leaf reached, or its tree: set at some point of most searches, and it stays."""
    _, ensemble = random_decision_forest(**forest)
    n_labels = forest["n_labels"]
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    expected = run(ensemble, link, rows, n_labels)
    for stop in ("leaf_node", "leaf_tree"):
        found = run(ensemble, link, rows, n_labels, block_rows=block_rows, is_sure=is_sure, stop=stop)
        for answer, full in zip(found, expected, strict=True):
            assert answer.keys() <= full.keys()
            assert all(0 < score <= 1 for score in answer.values())
            if is_sure:
                assert answer in ({}, full)


@pytest.mark.parametrize("link", ["multiway", "argmax"])
def test_margins_that_overflow_lead_to_a_leaf(link):
    _, ensemble = random_decision_forest(5, n_trees=4, n_labels=9, n_features=33, arity=4)
    everything = np.arange(33, dtype=np.int32), np.full(33, 3e38, np.float32)
    answer = run(ensemble, link, (np.array([0, 33]), *everything), 9)
    assert answer[0]
    assert all(0 < score <= 1 for score in answer[0].values())
