"""Every traversal equals the oracle that walks every path."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.helpers.forests import NO_NUMBERS, forest_of
from tests.helpers.traversals import (
    N_ROWS,
    WAYS,
    forests,
    forests_of_any_weights,
    links,
    low_thresholds,
    run,
)
from tests.oracles.trees import beam_passing, beam_probabilities, random_rows, row_dicts

from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.best_first import best_first_rows, threshold_rows
from xylem.engine.kernels.search.subtrees import greatest_below
from xylem_store.build import build_ensemble
from xylem_store.ensemble import LANES, Chunk, Tree

searches = forests, links, st.integers(1, 12), st.integers(1, 12), st.booleans()
"""A forest, its link, top_r, the width, and whether labels have weights."""


def check_top(
    answer: dict[int, float], expected: np.ndarray, top_r: int, reachable: np.ndarray
) -> None:
    """The answer has the right scores, in order, and no label left
    out is clearly better than one kept.
    """
    labels = list(answer)
    scores = np.array(list(answer.values()))
    assert len(labels) == min(top_r, len(reachable))
    np.testing.assert_allclose(scores, expected[labels], rtol=2e-3, atol=1e-6)
    assert np.all(np.diff(scores) <= 0)
    left_out = [label for label in reachable.tolist() if label not in answer]
    if left_out and labels:
        assert expected[left_out].max() <= expected[labels].min() * 1.002 + 1e-6


def check_scores(answer: Any, expected: Any) -> None:
    """The answer is what the oracle expects of every label, 0 of those that are not answered."""
    found = np.zeros(len(expected))
    found[list(answer)] = list(answer.values())
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)


def all_labels(trees: Any) -> np.ndarray:
    return np.unique(np.concatenate([t.node_label[t.node_label >= 0] for t in trees]))


def weights_of(forest: Any, are_weighted: Any = True) -> np.ndarray:
    """Weights between 1 and 50 a label, and their logarithms a node; or weights of 1, and none."""
    if not are_weighted:
        return np.ones(forest.n_labels), NO_NUMBERS
    weights = np.exp(np.random.default_rng(forest.seed + 1).uniform(0, 4, forest.n_labels))
    return weights, greatest_below(forest.ensemble, np.log(weights).astype(np.float32), -np.inf)


@settings(max_examples=180)
@given(
    forests, links, st.integers(1, 12), st.sampled_from([beam_rows, best_first_rows]), st.booleans()
)
def test_the_best_labels_by_probability_times_weight(
    forest: Any, link: str, top_r: int, kernel: Any, are_weighted: Any
) -> None:
    """Of a beam too, where it is wider than the tree."""
    weights, log_weight = weights_of(forest, are_weighted)
    answers = run(kernel, forest, link, top_r, beam_width=500, weight=log_weight)
    for answer, expected in zip(answers, forest.expected(link), strict=True):
        check_top(answer, expected * weights, top_r, all_labels(forest.trees))


@settings(max_examples=60)
@given(forests, links, st.integers(1, 4))
@example(forest_of("label-tree", 2487740, 1, 9, 1500, 40), "logistic", 1)
def test_beam_search_equals_the_oracle(forest: Any, link: str, beam_width: int) -> None:
    answers = run(beam_rows, forest, link, forest.n_labels, beam_width=beam_width)
    for answer, row in zip(answers, row_dicts(forest.rows), strict=True):
        expected, is_clear = beam_probabilities(
            forest.trees, link, row, forest.n_labels, beam_width
        )
        if is_clear:
            check_scores(answer, expected)


def thresholds_for(forest: Any, threshold: Any, per_label: Any) -> Any:
    """Thresholds of labels, around `threshold` or all equal to
    it, and their logarithms for kernels.
    """
    if not per_label:
        return np.full(forest.n_labels, threshold), np.log(np.full(1, threshold, np.float32))
    spread = np.random.default_rng(forest.seed).uniform(0.1, 2, forest.n_labels)
    thresholds = np.minimum(threshold * spread, 1)
    node_label, parent = forest.ensemble.node_label, forest.ensemble.parent
    log_threshold = np.full(len(parent) + LANES, np.inf, np.float32)
    for node in range(len(parent) - 1, -1, -1):
        if node_label[node] >= 0:
            log_threshold[node] = np.log(thresholds[node_label[node]])
        if parent[node] >= 0:
            log_threshold[parent[node]] = min(log_threshold[parent[node]], log_threshold[node])
    return thresholds, log_threshold


@settings(max_examples=60)
@given(
    forests,
    links,
    st.floats(0.01, 0.9),
    st.booleans(),
    st.sampled_from([beam_rows, threshold_rows]),
)
def test_threshold_gives_every_label_that_reaches_it(
    forest: Any, link: str, threshold: Any, per_label: Any, kernel: Any
) -> None:
    n_labels = forest.n_labels
    thresholds, log_threshold = thresholds_for(forest, threshold, per_label)
    exact = np.full(N_ROWS, 7, np.uint8)
    answers = run(
        kernel, forest, link, n_labels, beam_width=500, log_threshold=log_threshold, exact=exact
    )
    assert exact.tolist() == [1] * N_ROWS
    for answer, expected in zip(answers, forest.expected(link), strict=True):
        clear = np.abs(expected - thresholds) > 2e-3 * thresholds
        passed = np.isin(np.arange(n_labels), list(answer))
        np.testing.assert_array_equal(passed[clear], (expected >= thresholds)[clear])
        np.testing.assert_allclose(
            list(answer.values()), expected[list(answer)], rtol=2e-3, atol=1e-6
        )


def check_same(found: Any, expected: Any, are_weighted: Any) -> None:
    """Two searches gave the same answer.

    With weights a beam's scores are rounded otherwise. Scores that underflow are equal: which
    labels have them first is open in an ensemble.
    """
    if are_weighted:
        assert list(found.values()) == pytest.approx(list(expected.values()), rel=1e-4)
        return
    assert list(found.values()) == list(expected.values())
    tiny = np.finfo(np.float32).tiny
    apart = [[item for item in answer.items() if item[1] >= tiny] for answer in (found, expected)]
    assert apart[0] == apart[1]


@settings(max_examples=60)
@given(
    forests,
    links,
    low_thresholds,
    st.booleans(),
    st.integers(1, 60),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_beam_with_thresholds_enters_only_nodes_that_can_pass(
    forest: Any,
    link: str,
    threshold: Any,
    per_label: Any,
    top_r: int,
    beam_width: int,
    are_weighted: Any,
) -> None:
    """In one tree it finds what the oracle finds; in an ensemble the
    means that pass of what beams reach.

    Where it says so, its answer is that of the exact search.
    """
    n_labels = forest.n_labels
    thresholds, log_threshold = thresholds_for(forest, threshold, per_label)
    weights, log_weight = weights_of(forest, are_weighted)
    passing = {"weight": log_weight, "log_threshold": log_threshold}
    exact = np.full(N_ROWS, 7, np.uint8)
    beam = {**passing, "beam_width": beam_width}
    found = run(beam_rows, forest, link, top_r, **beam, exact=exact)
    every = run(beam_rows, forest, link, n_labels, **beam)
    whole = run(threshold_rows, forest, link, n_labels, **passing)
    for row, features in enumerate(row_dicts(forest.rows)):
        assert list(found[row].items()) == list(every[row].items())[:top_r]
        if len(forest.trees) == 1:
            expected, is_clear = beam_passing(
                forest.trees[0], link, features, beam_width, thresholds
            )
        else:
            expected, is_clear = beam_probabilities(
                forest.trees, link, features, n_labels, beam_width
            )
            is_clear &= bool((np.abs(expected - thresholds) > 1e-3 * thresholds).all())
            expected[expected < thresholds] = 0
        if is_clear and not are_weighted:
            check_scores(every[row], expected)
        for label, key in every[row].items():
            assert key / weights[label] >= (1 - 1e-3) * thresholds[label]
        if exact[row]:
            check_same(found[row], dict(list(whole[row].items())[:top_r]), are_weighted)


@settings(max_examples=60)
@given(*searches)
def test_a_beam_that_says_so_is_exact(
    forest: Any, link: str, top_r: int, beam_width: int, are_weighted: Any
) -> None:
    weight = weights_of(forest, are_weighted)[1]
    exact, exact_of_block = np.full((2, N_ROWS), 7, np.uint8)
    beam = {"beam_width": beam_width, "weight": weight}
    found = run(beam_rows, forest, link, top_r, **beam, exact=exact)
    run(beam_rows, forest, link, top_r, **beam, block_rows=3, exact=exact_of_block)
    assert exact.tolist() == exact_of_block.tolist()
    whole = run(best_first_rows, forest, link, top_r, weight=weight)
    for row in np.flatnonzero(exact):
        check_same(found[row], whole[row], are_weighted)


def test_a_beam_is_not_always_exact_and_knows_it() -> None:
    """Of 60 labels each beam of one node finds some: whether these
    are the best is known of some rows.
    """
    said = []
    for seed in range(20):
        forest = forest_of(
            "label-tree", seed, n_trees=1, n_labels=60, n_features=30, arity=6, n_rows=20
        )
        exact = np.full(20, 7, np.uint8)
        found = run(beam_rows, forest, "hinge3", 2, beam_width=1, exact=exact)
        whole = run(best_first_rows, forest, "hinge3", 2)
        said.extend((bool(exact[row]), found[row] == whole[row]) for row in range(20))
    assert (True, False) not in said
    assert {(True, True), (False, False)} <= set(said)


@settings(max_examples=40)
@given(forests, st.integers(1, 5), st.sampled_from(["beam", "exact", "threshold"]))
def test_a_mask_hides_labels_and_nothing_else(forest: Any, top_r: int, way: str) -> None:
    allowed = np.random.default_rng(forest.seed).random(forest.n_labels) < 0.5
    parent, mask = forest.ensemble.parent, np.zeros(len(forest.ensemble.parent), np.uint8)
    for node in range(len(mask) - 1, -1, -1):
        label = forest.ensemble.node_label[node]
        mask[node] |= label >= 0 and allowed[label]
        if mask[node] and parent[node] >= 0:
            mask[parent[node]] = 1
    kernel, options = WAYS[way]
    answers = run(kernel, forest, "hinge2", top_r, **options, beam_width=500, allowed=mask)
    labels = all_labels(forest.trees)
    for answer, expected in zip(answers, forest.expected("hinge2"), strict=True):
        check_top(answer, expected, top_r, labels[allowed[labels]])


def as_bfloat16(chunk: Chunk) -> Chunk:
    """The chunk with its weights rounded to bfloat16, by arithmetic on float64."""
    power = np.exp2(np.floor(np.log2(np.abs(chunk.weight.astype(np.float64)))) - 7)
    return chunk._replace(weight=(np.rint(chunk.weight / power) * power).astype(np.float32))


def as_int8(chunk: Chunk) -> Chunk:
    """The chunk with each child's weights rounded to 127ths of its largest one."""
    weight = chunk.weight.copy()
    for child in np.unique(chunk.child):
        of_child = chunk.child == child
        step = np.abs(weight[of_child]).max() / 127
        weight[of_child] = np.rint(weight[of_child] / step) * step
    return chunk._replace(weight=weight)


def with_chunks(trees: Any, change: Any) -> Any:
    """The trees with all of their chunks changed."""
    return [
        tree._replace(chunks=[chunk and change(chunk) for chunk in tree.chunks]) for tree in trees
    ]


@pytest.mark.parametrize("n_trees", [1, 3])
@pytest.mark.parametrize(("weights", "rounded"), [("bfloat16", as_bfloat16), ("int8", as_int8)])
def test_small_weights_are_float32_rounded(weights: Any, rounded: Any, n_trees: int) -> None:
    forest = forest_of("label-tree", 5, n_trees, 50, 70, 20, weights)
    forest = forest._replace(trees=with_chunks(forest.trees, rounded), rows=random_rows(3, 20, 70))
    for kernel in (beam_rows, best_first_rows):
        answers = run(kernel, forest, "hinge2", 5, beam_width=500)
        for answer, expected in zip(answers, forest.expected("hinge2"), strict=True):
            check_top(answer, expected, 5, all_labels(forest.trees))


@settings(max_examples=40)
@given(
    forests_of_any_weights,
    links,
    st.integers(1, 8),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_a_block_gives_the_bits_of_single_rows(
    forest: Any, link: str, top_r: int, beam_width: int, masked: Any, passing: Any
) -> None:
    options = {"beam_width": beam_width}
    if masked:
        allowed = np.random.default_rng(forest.seed).random(forest.n_labels) < 0.5
        options["allowed"] = greatest_below(forest.ensemble, allowed.astype(np.uint8), 0)
    if passing:
        options["log_threshold"] = thresholds_for(forest, 0.1, per_label=True)[1]
    costs, costs_together = np.full((2, 40, 2), -1, np.int64)
    alone = run(beam_rows, forest, link, top_r, **options, costs=costs)
    together = run(beam_rows, forest, link, top_r, **options, block_rows=33, costs=costs_together)
    assert [list(answer.items()) for answer in alone] == [
        list(answer.items()) for answer in together
    ]
    np.testing.assert_array_equal(costs, costs_together)


@settings(max_examples=40)
@given(forests, links, st.floats(0.01, 0.9), st.sampled_from([beam_rows, threshold_rows]))
def test_weights_do_not_change_what_passes_a_threshold(
    forest: Any, link: str, threshold: Any, kernel: Any
) -> None:
    weights, log_weight = weights_of(forest)
    options = {"log_threshold": np.log(np.full(1, threshold, np.float32)), "beam_width": 500}
    plain = run(kernel, forest, link, forest.n_labels, **options)
    ranked = run(kernel, forest, link, forest.n_labels, **options, weight=log_weight)
    for one, other in zip(plain, ranked, strict=True):
        assert one.keys() == other.keys()
        assert list(other.values()) == sorted(other.values(), reverse=True)
        for label, key in other.items():
            assert key == pytest.approx(one[label] * weights[label], rel=1e-4, abs=1e-30)


@settings(max_examples=40)
@given(forests, st.integers(1, 12), st.integers(1, 6))
def test_a_beam_costs_no_more_than_its_width_a_level_and_tree(
    forest: Any, top_r: int, beam_width: int
) -> None:
    costs, costs_passing = np.full((2, N_ROWS, 2), -1, np.int64)
    options = {"beam_width": beam_width}
    run(beam_rows, forest, "hinge2", top_r, **options, costs=costs)
    options["log_threshold"] = thresholds_for(forest, 0.01, per_label=True)[1]
    run(beam_rows, forest, "hinge2", top_r, **options, costs=costs_passing)
    bound, n_levels = 0, 0
    for tree in forest.trees:
        ends = [0, 1]
        while ends[-1] > ends[-2]:
            inner = sum(chunk is not None for chunk in tree.chunks[ends[-2] : ends[-1]])
            bound += min(inner, beam_width)
            n_levels += inner > 0
            ends.append(int(tree.child_ptr[ends[-1]]))
    assert (costs_passing[:, 0] <= beam_width * n_levels).all()
    assert (costs[:, 0] >= len(forest.trees)).all()
    assert (costs[:, 0] <= bound).all()
    assert (costs[:, 1] >= 4 * costs[:, 0]).all()
    ensemble = forest.ensemble
    assert (
        costs[:, 1] <= ensemble.sparse.nbytes + ensemble.dense.nbytes + ensemble.node_bias.nbytes
    ).all()


@settings(max_examples=60)
@given(*searches)
@example(forest_of("label-tree", 0, 2, 5, 1500, 2), "hinge2", 3, 1, False)
def test_fewer_labels_are_the_first_of_all(
    forest: Any, link: str, top_r: int, beam_width: int, are_weighted: Any
) -> None:
    """The nodes that a beam does not score for fewer labels would have changed nothing.

    Means over trees that underflow are equal, or rounded to be: which labels have them first is
    open.
    """
    told_apart = 0.0 if len(forest.trees) == 1 else np.finfo(np.float32).tiny
    options = {"beam_width": beam_width, "weight": weights_of(forest, are_weighted)[1]}
    costs, costs_of_all = np.full((2, N_ROWS, 2), -1, np.int64)
    some = run(beam_rows, forest, link, top_r, **options, costs=costs)
    every = run(beam_rows, forest, link, forest.n_labels, **options, costs=costs_of_all)
    for part, whole in zip(some, every, strict=True):
        found, expected = list(part.items()), list(whole.items())[:top_r]
        assert [score for _, score in found] == [score for _, score in expected]
        n_apart = sum(score >= told_apart for _, score in expected)
        assert found[:n_apart] == expected[:n_apart]
    assert (costs <= costs_of_all).all()


def test_nodes_that_cannot_lead_to_the_best_labels_are_skipped() -> Any:
    """Of ten nodes one is certain and has two certain labels; with
    three labels the others are needed.
    """
    certain, hopeless = np.float32(1), np.float32(-9)
    none = np.empty(0, np.int32)

    def chunk(bias: list[np.float32]) -> Chunk:
        return Chunk(none, np.zeros(1, np.int64), none, NO_NUMBERS, np.array(bias, np.float32))

    child_ptr = np.array([1, *(11 + 4 * i for i in range(11)), *[51] * 40], np.int32)
    node_label = np.concatenate([np.full(11, -1), np.arange(40)]).astype(np.int32)
    root = chunk([certain] + 9 * [hopeless])
    inner = [chunk([certain, certain, hopeless, hopeless])] + 9 * [chunk(4 * [certain])]
    ensemble = build_ensemble([Tree(child_ptr, node_label, [root, *inner, *[None] * 40])], 40, 3)
    forest = forest_of("label-tree", 0, 1, 40, 3, 4, n_rows=2)._replace(ensemble=ensemble)
    for top_r, chunks in ((1, 2), (2, 2), (3, 11)):
        for block_rows in (1, 2):
            costs = np.full((2, 2), -1, np.int64)
            answers = run(beam_rows, forest, "hinge3", top_r, block_rows=block_rows, costs=costs)
            assert [len(answer) for answer in answers] == [top_r, top_r]
            assert costs[:, 0].tolist() == [chunks, chunks]


def test_equal_scores_come_in_the_order_of_labels() -> None:
    forest = forest_of("label-tree", 1, 1, 40, 5, 40, n_rows=1)
    silent = with_chunks(
        forest.trees, lambda c: c._replace(weight=c.weight * 0, bias=np.ones_like(c.bias))
    )
    forest = forest._replace(ensemble=build_ensemble(silent, 40, 5))
    expected = all_labels(forest.trees)[:7].tolist()
    for kernel in (best_first_rows, beam_rows):
        assert list(run(kernel, forest, "hinge2", len(expected), beam_width=99)[0]) == expected
