"""Every traversal equals the oracle that walks every path."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model_store.build import build_ensemble
from model_store.ensemble import LANES, LINK_CODES, LINKS, Chunk, Tree
from service.kernels.search.beam import beam_rows
from service.kernels.search.best_first import best_first_rows, threshold_rows
from service.kernels.search.call import Search
from service.kernels.search.scores import make_queue
from service.kernels.search.subtrees import greatest_below
from service.kernels.search.workspace import BeamShape, make_workspace
from tests.calls import dicts_of, make_call, no_answers
from tests.oracles.trees import (
    beam_passing,
    beam_probabilities,
    label_probabilities,
    random_forest,
    random_rows,
    row_dicts,
)

N_ROWS = 4
ALL = np.empty(0, np.uint8)
EQUAL = np.empty(0, np.float32)
NONE = np.empty(0, np.float32)
EVERYTHING = np.full(1, -np.inf, np.float32)

forests = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "n_trees": st.integers(1, 3),
        "n_labels": st.integers(1, 60),
        "n_features": st.sampled_from([1, 5, 31, 32, 33, 70, 1500]),
        "arity": st.sampled_from([2, 5, 17, 40]),
    }
)
beams = forests, st.sampled_from(LINKS["label-tree"]), st.integers(1, 12), st.integers(1, 12), st.booleans()
"""A forest, its link, top_r, the width, and whether labels have weights."""


def run(
    kernel,
    ensemble,
    link,
    rows,
    top_r,
    *,
    beam_width=10,
    log_threshold=NONE,
    mask=ALL,
    log_weight=EQUAL,
    block_rows=1,
    costs=None,
    exact=None,
    stop=None,
):
    """Return one {label: score} a row, in the order answered.

    costs  int64[n, 2], filled in
    exact  uint8[n], filled in
    stop   chooses from the workspaces the array whose first byte is looked at as the flag: one that the
           traversal itself writes to stops it at a known point.
    """
    indptr, indices, _ = rows
    work = make_workspace(ensemble, n_features=max(1, len(indices)), maps_features=block_rows > 1)
    if kernel is beam_rows:
        shape = BeamShape(ensemble)
        kept = beam_width if len(log_threshold) == 0 else beam_width * shape.n_levels
        own = shape.make(n_rows=block_rows, beam_width=kept, top_r=top_r)
    else:
        own = make_queue(ensemble, top_r=top_r)
    search = Search(LINK_CODES[link], beam_width, top_r, True, mask, log_weight, log_threshold)
    answers = no_answers(len(indptr) - 1, top_r, costs, exact)
    flag = None if stop is None else stop(work, own)
    call = make_call(ensemble, rows, search, work, own, answers, stop=flag)
    kernel(call.handle)
    return dicts_of(answers)


def made(forest):
    """The trees, their ensemble, and rows."""
    trees, ensemble = random_forest(**forest)
    return trees, ensemble, random_rows(forest["seed"], N_ROWS, forest["n_features"])


def check_top(answer: dict[int, float], expected: np.ndarray, top_r: int, reachable: np.ndarray) -> None:
    """The answer has the right scores, in order, and no label left out is clearly better than one kept."""
    labels = list(answer)
    scores = np.array(list(answer.values()))
    assert len(labels) == min(top_r, len(reachable))
    np.testing.assert_allclose(scores, expected[labels], rtol=2e-3, atol=1e-6)
    assert np.all(np.diff(scores) <= 0)
    left_out = [label for label in reachable.tolist() if label not in answer]
    if left_out and labels:
        assert expected[left_out].max() <= expected[labels].min() * 1.002 + 1e-6


def all_labels(trees) -> np.ndarray:
    return np.unique(np.concatenate([t.node_label[t.node_label >= 0] for t in trees]))


def weighted(forest, ensemble):
    """Weights between 1 and 50 a label, and their logarithms a node."""
    weights = np.exp(np.random.default_rng(forest["seed"] + 1).uniform(0, 4, forest["n_labels"]))
    return weights, greatest_below(ensemble, np.log(weights).astype(np.float32), -np.inf)


@settings(max_examples=180)
@given(
    forests,
    st.sampled_from(LINKS["label-tree"]),
    st.integers(1, 12),
    st.sampled_from([beam_rows, best_first_rows]),
    st.booleans(),
)
def test_the_best_labels_by_probability_times_weight(forest, link, top_r, kernel, are_weighted):
    """Of a beam too, where it is wider than the tree."""
    trees, ensemble, rows = made(forest)
    weights, log_weight = weighted(forest, ensemble) if are_weighted else (1, EQUAL)
    answers = run(kernel, ensemble, link, rows, top_r, beam_width=500, log_weight=log_weight)
    for answer, row in zip(answers, row_dicts(rows), strict=True):
        expected = label_probabilities(trees, link, row, forest["n_labels"]) * weights
        check_top(answer, expected, top_r, all_labels(trees))


@settings(max_examples=60)
@given(forests, st.sampled_from(LINKS["label-tree"]), st.integers(1, 4))
@example({"seed": 2487740, "n_trees": 1, "n_labels": 9, "n_features": 1500, "arity": 40}, "logistic", 1)
def test_beam_search_equals_the_oracle(forest, link, beam_width):
    trees, ensemble, rows = made(forest)
    top_r = forest["n_labels"]
    answers = run(beam_rows, ensemble, link, rows, top_r, beam_width=beam_width)
    for answer, row in zip(answers, row_dicts(rows), strict=True):
        expected, is_clear = beam_probabilities(trees, link, row, forest["n_labels"], beam_width)
        if not is_clear:
            continue
        found = np.zeros(forest["n_labels"])
        found[list(answer)] = list(answer.values())
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)


def thresholds_for(forest, ensemble, threshold, per_label):
    """Thresholds of labels, around `threshold` or all equal to it, and their logarithms for kernels."""
    if not per_label:
        return np.full(forest["n_labels"], threshold), np.log(np.full(1, threshold, np.float32))
    spread = np.random.default_rng(forest["seed"]).uniform(0.1, 2, forest["n_labels"])
    thresholds = np.minimum(threshold * spread, 1)
    n_nodes = len(ensemble.parent)
    log_threshold = np.full(n_nodes + LANES, np.inf, np.float32)
    for node in range(n_nodes - 1, -1, -1):
        if ensemble.node_label[node] >= 0:
            log_threshold[node] = np.log(thresholds[ensemble.node_label[node]])
        if ensemble.parent[node] >= 0:
            above = ensemble.parent[node]
            log_threshold[above] = min(log_threshold[above], log_threshold[node])
    return thresholds, log_threshold


@settings(max_examples=60)
@given(
    forests,
    st.sampled_from(LINKS["label-tree"]),
    st.floats(0.01, 0.9),
    st.booleans(),
    st.sampled_from([beam_rows, threshold_rows]),
)
def test_threshold_gives_every_label_that_reaches_it(forest, link, threshold, per_label, kernel):
    trees, ensemble, rows = made(forest)
    n_labels = forest["n_labels"]
    thresholds, log_threshold = thresholds_for(forest, ensemble, threshold, per_label)
    exact = np.full(N_ROWS, 7, np.uint8)
    options = {"beam_width": 500, "log_threshold": log_threshold, "exact": exact}
    answers = run(kernel, ensemble, link, rows, n_labels, **options)
    assert exact.tolist() == [1] * N_ROWS
    for answer, row in zip(answers, row_dicts(rows), strict=True):
        expected = label_probabilities(trees, link, row, n_labels)
        clear = np.abs(expected - thresholds) > 2e-3 * thresholds
        passed = np.isin(np.arange(n_labels), list(answer))
        np.testing.assert_array_equal(passed[clear], (expected >= thresholds)[clear])
        np.testing.assert_allclose(list(answer.values()), expected[list(answer)], rtol=2e-3, atol=1e-6)


def check_same(found, expected, are_weighted):
    """Two searches gave the same answer.

    With weights a beam's scores are rounded otherwise. Scores that underflow are equal: which labels have
    them first is open in an ensemble.
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
    st.sampled_from(LINKS["label-tree"]),
    st.floats(0.001, 0.5),
    st.booleans(),
    st.integers(1, 60),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_beam_with_thresholds_keeps_to_nodes_that_lead_to_labels_that_pass(
    forest, link, threshold, per_label, top_r, beam_width, are_weighted
):
    """In one tree it finds what the oracle finds; in an ensemble the means that pass of what beams reach.

    Where it says so, its answer is that of the exact search.
    """
    trees, ensemble, rows = made(forest)
    n_labels = forest["n_labels"]
    thresholds, log_threshold = thresholds_for(forest, ensemble, threshold, per_label)
    weights, log_weight = weighted(forest, ensemble) if are_weighted else (np.ones(n_labels), EQUAL)
    passing = {"log_weight": log_weight, "log_threshold": log_threshold}
    exact = np.full(N_ROWS, 7, np.uint8)
    beam = {"beam_width": beam_width}
    found = run(beam_rows, ensemble, link, rows, top_r, **passing, **beam, exact=exact)
    every = run(beam_rows, ensemble, link, rows, n_labels, **passing, **beam)
    whole = run(threshold_rows, ensemble, link, rows, n_labels, **passing)
    for row, features in enumerate(row_dicts(rows)):
        assert list(found[row].items()) == list(every[row].items())[:top_r]
        if forest["n_trees"] == 1:
            expected, is_clear = beam_passing(trees[0], link, features, beam_width, thresholds)
        else:
            expected, is_clear = beam_probabilities(trees, link, features, n_labels, beam_width)
            is_clear &= bool((np.abs(expected - thresholds) > 1e-3 * thresholds).all())
            expected[expected < thresholds] = 0
        if is_clear and not are_weighted:
            reached = np.zeros(n_labels)
            reached[list(every[row])] = list(every[row].values())
            np.testing.assert_allclose(reached, expected, rtol=2e-3, atol=1e-6)
        for label, key in every[row].items():
            assert key / weights[label] >= (1 - 1e-3) * thresholds[label]
        if exact[row]:
            check_same(found[row], dict(list(whole[row].items())[:top_r]), are_weighted)


@settings(max_examples=60)
@given(*beams)
def test_a_beam_that_says_so_is_exact(forest, link, top_r, beam_width, are_weighted):
    _, ensemble, rows = made(forest)
    options = {"log_weight": weighted(forest, ensemble)[1] if are_weighted else EQUAL}
    exact, exact_of_block = np.full((2, N_ROWS), 7, np.uint8)
    beam = {"beam_width": beam_width}
    found = run(beam_rows, ensemble, link, rows, top_r, **options, **beam, exact=exact)
    run(beam_rows, ensemble, link, rows, top_r, **options, **beam, block_rows=3, exact=exact_of_block)
    assert exact.tolist() == exact_of_block.tolist()
    whole = run(best_first_rows, ensemble, link, rows, top_r, **options)
    for row in np.flatnonzero(exact):
        check_same(found[row], whole[row], are_weighted)


def test_a_beam_is_not_always_exact_and_knows_it():
    """Of 60 labels each beam of one node finds some: whether these are the best is known of some rows."""
    said = []
    for seed in range(20):
        _, ensemble = random_forest(seed=seed, n_trees=1, n_labels=60, n_features=30, arity=6)
        exact = np.full(20, 7, np.uint8)
        rows = random_rows(seed, 20, 30)
        found = run(beam_rows, ensemble, "hinge3", rows, 2, beam_width=1, exact=exact)
        whole = run(best_first_rows, ensemble, "hinge3", rows, 2)
        said.extend((bool(exact[row]), found[row] == whole[row]) for row in range(20))
    assert (True, False) not in said
    assert {(True, True), (False, False)} <= set(said)


@settings(max_examples=40)
@given(forests, st.integers(1, 5), st.sampled_from(["beam", "exact", "threshold"]))
def test_a_mask_hides_labels_and_nothing_else(forest, top_r, mode):
    trees, ensemble, rows = made(forest)
    n_labels = forest["n_labels"]
    allowed = np.random.default_rng(forest["seed"]).random(n_labels) < 0.5
    mask = np.zeros(len(ensemble.parent), np.uint8)
    for node in range(len(mask) - 1, -1, -1):
        label = ensemble.node_label[node]
        mask[node] |= label >= 0 and allowed[label]
        if mask[node] and ensemble.parent[node] >= 0:
            mask[ensemble.parent[node]] = 1
    kernel, log_threshold = {
        "beam": (beam_rows, NONE),
        "exact": (best_first_rows, NONE),
        "threshold": (threshold_rows, EVERYTHING),
    }[mode]
    options = {"beam_width": 500, "log_threshold": log_threshold, "mask": mask}
    answers = run(kernel, ensemble, "hinge2", rows, top_r, **options)
    reachable = np.array([label for label in all_labels(trees) if allowed[label]], np.int64)
    for answer, row in zip(answers, row_dicts(rows), strict=True):
        expected = label_probabilities(trees, "hinge2", row, n_labels)
        check_top(answer, expected, top_r, reachable)


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


@pytest.mark.parametrize("n_trees", [1, 3])
@pytest.mark.parametrize(("weights", "rounded"), [("bfloat16", as_bfloat16), ("int8", as_int8)])
def test_small_weights_are_float32_rounded(weights, rounded, n_trees):
    forest = {"seed": 5, "n_trees": n_trees, "n_labels": 50, "n_features": 70, "arity": 20}
    trees, ensemble = random_forest(**forest, weights=weights)
    trees = [t._replace(chunks=[c and rounded(c) for c in t.chunks]) for t in trees]
    rows = random_rows(3, 20, 70)
    for kernel in (beam_rows, best_first_rows):
        answers = run(kernel, ensemble, "hinge2", rows, 5, beam_width=500)
        for answer, row in zip(answers, row_dicts(rows), strict=True):
            check_top(answer, label_probabilities(trees, "hinge2", row, 50), 5, all_labels(trees))


@settings(max_examples=40)
@given(
    forests,
    st.sampled_from(LINKS["label-tree"]),
    st.sampled_from(["float32", "bfloat16", "int8"]),
    st.integers(1, 8),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_a_block_gives_the_bits_of_single_rows(forest, link, weights, top_r, beam_width, masked, passing):
    _, ensemble = random_forest(**forest, weights=weights)
    rows = random_rows(forest["seed"], 40, forest["n_features"])
    mask = ALL
    if masked:
        allowed = np.random.default_rng(forest["seed"]).random(forest["n_labels"]) < 0.5
        mask = greatest_below(ensemble, allowed.astype(np.uint8), 0)
    costs, costs_together = np.full((2, 40, 2), -1, np.int64)
    log_threshold = thresholds_for(forest, ensemble, 0.1, per_label=True)[1] if passing else NONE
    options = {"beam_width": beam_width, "mask": mask, "log_threshold": log_threshold}
    alone = run(beam_rows, ensemble, link, rows, top_r, **options, costs=costs)
    together = run(beam_rows, ensemble, link, rows, top_r, **options, block_rows=33, costs=costs_together)
    assert [list(answer.items()) for answer in alone] == [list(answer.items()) for answer in together]
    np.testing.assert_array_equal(costs, costs_together)


@settings(max_examples=40)
@given(
    forests,
    st.sampled_from(LINKS["label-tree"]),
    st.floats(0.01, 0.9),
    st.sampled_from([beam_rows, threshold_rows]),
)
def test_weights_do_not_change_what_passes_a_threshold(forest, link, threshold, kernel):
    _, ensemble, rows = made(forest)
    n_labels = forest["n_labels"]
    weights, log_weight = weighted(forest, ensemble)
    options = {"log_threshold": np.log(np.full(1, threshold, np.float32)), "beam_width": 500}
    plain = run(kernel, ensemble, link, rows, n_labels, **options)
    ranked = run(kernel, ensemble, link, rows, n_labels, **options, log_weight=log_weight)
    for one, other in zip(plain, ranked, strict=True):
        assert one.keys() == other.keys()
        assert list(other.values()) == sorted(other.values(), reverse=True)
        for label, key in other.items():
            assert key == pytest.approx(one[label] * weights[label], rel=1e-4, abs=1e-30)


@settings(max_examples=40)
@given(forests, st.integers(1, 12), st.integers(1, 6))
def test_a_beam_costs_no_more_than_its_width_a_level_and_tree(forest, top_r, beam_width):
    trees, ensemble, rows = made(forest)
    costs, costs_passing = np.full((2, N_ROWS, 2), -1, np.int64)
    options = {"beam_width": beam_width}
    run(beam_rows, ensemble, "hinge2", rows, top_r, **options, costs=costs)
    passing = {**options, "log_threshold": thresholds_for(forest, ensemble, 0.01, per_label=True)[1]}
    run(beam_rows, ensemble, "hinge2", rows, top_r, **passing, costs=costs_passing)
    bound, n_levels = 0, 0
    for tree in trees:
        ends = [0, 1]
        while ends[-1] > ends[-2]:
            inner = sum(chunk is not None for chunk in tree.chunks[ends[-2] : ends[-1]])
            bound += min(inner, beam_width)
            n_levels += inner > 0
            ends.append(int(tree.child_ptr[ends[-1]]))
    assert (costs_passing[:, 0] <= beam_width * n_levels).all()
    assert (costs[:, 0] >= forest["n_trees"]).all()
    assert (costs[:, 0] <= bound).all()
    assert (costs[:, 1] >= 4 * costs[:, 0]).all()
    assert (costs[:, 1] <= ensemble.sparse.nbytes + ensemble.dense.nbytes + ensemble.node_bias.nbytes).all()


@settings(max_examples=60)
@given(*beams)
@example({"seed": 0, "n_trees": 2, "n_labels": 5, "n_features": 1500, "arity": 2}, "hinge2", 3, 1, False)
def test_fewer_labels_are_the_first_of_all(forest, link, top_r, beam_width, are_weighted):
    """The nodes that a beam does not score for fewer labels would have changed nothing.

    Means over trees that underflow are equal, or rounded to be: which labels have them first is open.
    """
    _, ensemble, rows = made(forest)
    told_apart = 0.0 if forest["n_trees"] == 1 else np.finfo(np.float32).tiny
    options = {
        "beam_width": beam_width,
        "log_weight": weighted(forest, ensemble)[1] if are_weighted else EQUAL,
    }
    costs, costs_of_all = np.full((2, N_ROWS, 2), -1, np.int64)
    some = run(beam_rows, ensemble, link, rows, top_r, **options, costs=costs)
    every = run(beam_rows, ensemble, link, rows, forest["n_labels"], **options, costs=costs_of_all)
    for part, whole in zip(some, every, strict=True):
        found, expected = list(part.items()), list(whole.items())[:top_r]
        assert [score for _, score in found] == [score for _, score in expected]
        n_apart = sum(score >= told_apart for _, score in expected)
        assert found[:n_apart] == expected[:n_apart]
    assert (costs <= costs_of_all).all()


def test_nodes_that_cannot_lead_to_the_best_labels_are_not_scored():
    """Of ten nodes one is certain and has two certain labels; with three labels the others are needed."""
    certain, hopeless = np.float32(1), np.float32(-9)
    none = np.empty(0, np.int32)

    def chunk(bias: list[np.float32]) -> Chunk:
        return Chunk(none, np.zeros(1, np.int64), none, np.empty(0, np.float32), np.array(bias, np.float32))

    child_ptr = np.array([1, *(11 + 4 * i for i in range(11)), *[51] * 40], np.int32)
    node_label = np.concatenate([np.full(11, -1), np.arange(40)]).astype(np.int32)
    root = chunk([certain] + 9 * [hopeless])
    inner = [chunk([certain, certain, hopeless, hopeless])] + 9 * [chunk(4 * [certain])]
    ensemble = build_ensemble([Tree(child_ptr, node_label, [root, *inner, *[None] * 40])], 40, 3)
    rows = random_rows(0, 2, 3)
    for top_r, chunks in ((1, 2), (2, 2), (3, 11)):
        for block_rows in (1, 2):
            costs = np.full((2, 2), -1, np.int64)
            answers = run(beam_rows, ensemble, "hinge3", rows, top_r, block_rows=block_rows, costs=costs)
            assert [len(answer) for answer in answers] == [top_r, top_r]
            assert costs[:, 0].tolist() == [chunks, chunks]


def test_equal_scores_come_in_the_order_of_labels():
    trees, ensemble = random_forest(seed=1, n_trees=1, n_labels=40, n_features=5, arity=40)
    silent = [
        t._replace(
            chunks=[c and c._replace(weight=c.weight * 0, bias=np.ones_like(c.bias)) for c in t.chunks]
        )
        for t in trees
    ]
    ensemble = build_ensemble(silent, 40, 5)
    rows = random_rows(1, 1, 5)
    expected = all_labels(trees)[:7].tolist()
    n = len(expected)
    assert list(run(best_first_rows, ensemble, "hinge2", rows, n)[0]) == expected
    assert list(run(beam_rows, ensemble, "hinge2", rows, n, beam_width=99)[0]) == expected


def first_row(forest):
    return random_rows(forest["seed"], 1, forest["n_features"])


def stopped_at(node):
    """Stop an exact or thresholded traversal once the node has a score."""
    return lambda _, queue: queue.node_stamp[node:]


@settings(max_examples=60)
@given(forests, st.integers(1, 60), st.floats(0, 1), st.sampled_from(LINKS["label-tree"]))
def test_a_stopped_best_first_search_gives_the_first_labels_of_its_answer(forest, top_r, where, link):
    _, ensemble = random_forest(**forest)
    rows = first_row(forest)
    whole = list(run(best_first_rows, ensemble, link, rows, top_r)[0].items())
    node = forest["n_trees"] + int(where * (len(ensemble.parent) - forest["n_trees"] - 1))
    part = list(run(best_first_rows, ensemble, link, rows, top_r, stop=stopped_at(node))[0].items())
    assert part == whole[: len(part)]


@settings(max_examples=60)
@given(forests, st.floats(0.001, 0.5), st.floats(0, 1), st.sampled_from(LINKS["label-tree"]))
def test_a_stopped_threshold_search_gives_labels_of_its_answer(forest, threshold, where, link):
    _, ensemble = random_forest(**forest)
    rows, n_labels = first_row(forest), forest["n_labels"]
    options = {"log_threshold": np.log(np.full(1, threshold, np.float32))}
    whole = run(threshold_rows, ensemble, link, rows, n_labels, **options)[0]
    node = forest["n_trees"] + int(where * (len(ensemble.parent) - forest["n_trees"] - 1))
    part = run(threshold_rows, ensemble, link, rows, n_labels, **options, stop=stopped_at(node))[0]
    assert part.items() <= whole.items()


def test_searches_that_stop_half_way_have_part_of_their_answer():
    found = {"exact": [], "threshold": []}
    for seed in range(40):
        forest = {"seed": seed, "n_trees": 1, "n_labels": 60, "n_features": 70, "arity": 5}
        _, ensemble = random_forest(**forest)
        whole = len(run(best_first_rows, ensemble, "hinge2", first_row(forest), 60)[0])
        ways = {"exact": (best_first_rows, NONE), "threshold": (threshold_rows, EVERYTHING)}
        for way, (kernel, log_threshold) in ways.items():
            options = {"log_threshold": log_threshold, "stop": stopped_at(len(ensemble.parent) // 2)}
            part = run(kernel, ensemble, "hinge2", first_row(forest), 60, **options)[0]
            found[way].append(0 < len(part) < whole)
    assert any(found["exact"])
    assert any(found["threshold"])


@pytest.mark.parametrize("n_trees", [1, 3])
def test_a_stopped_beam_gives_what_it_has_found(n_trees):
    partial = 0
    for seed in range(30):
        forest = {"seed": seed, "n_trees": n_trees, "n_labels": 60, "n_features": 70, "arity": 9}
        _, ensemble = random_forest(**forest)
        options = {"beam_width": 50}
        whole = run(beam_rows, ensemble, "hinge2", first_row(forest), 60, **options)[0]
        # The list of nodes has its first entry behind it: the search ends after a chunk of the second level.
        part = run(
            beam_rows, ensemble, "hinge2", first_row(forest), 60, **options, stop=lambda work, _: work.turns
        )[0]
        assert part.keys() <= whole.keys()
        assert all(score <= whole[label] for label, score in part.items())
        partial += 0 < len(part) < len(whole)
    assert partial > 0


@pytest.mark.parametrize("way", ["beam", "block", "exact", "threshold"])
def test_a_search_stopped_before_it_begins_finds_nothing(way):
    forest = {"seed": 3, "n_trees": 1, "n_labels": 30, "n_features": 20, "arity": 4}
    _, ensemble = random_forest(**forest)
    rows = random_rows(1, N_ROWS, 20)
    kernel, log_threshold, block_rows = {
        "beam": (beam_rows, NONE, 1),
        "block": (beam_rows, NONE, N_ROWS),
        "exact": (best_first_rows, NONE, 1),
        "threshold": (threshold_rows, EVERYTHING, 1),
    }[way]
    flag = np.ones(1, np.uint8)
    options = {"log_threshold": log_threshold, "block_rows": block_rows, "stop": lambda *_: flag}
    assert run(kernel, ensemble, "hinge2", rows, 5, **options) == [{}] * N_ROWS
    flag[0] = 0
    assert all(run(kernel, ensemble, "hinge2", rows, 5, **options))
