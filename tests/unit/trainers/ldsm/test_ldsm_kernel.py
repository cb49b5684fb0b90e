"""LdSM's kernels against the paper's algorithms word by word."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.servers import ServerProcess
from tests.helpers.trainings import dense_weights
from tests.oracles.ldsm_oracle import Means, best_set, quality, sigmoid, train
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_labels

from xylem.trainers.kernels.problem import NO_ROOM, localise, localise_labels
from xylem.trainers.kernels.random import shuffle
from xylem.trainers.ldsm.objective import (
    Tally,
    best_directions,
    count_labels,
    empty_tally,
    split_quality,
)
from xylem.trainers.ldsm.regressors import NAG, SGD, Learning, begin_regressors, train_regressors
from xylem.trainers.ldsm.split import Examples, route_rows, split_node
from xylem.trainers.ldsm.trainer import LdsmParameters, _Growth

LEARNING = Learning(4, 2.0, 1.5, 2, SGD, 1.0, 0.0)
GO_ON = np.zeros(1, np.uint8)


def _labelled(seed: int, n_rows: int, n_labels: int) -> Any:
    """Labels of which each row has one at least."""
    carried = dense_labels(random_labels(np.random.default_rng(seed), n_rows, n_labels, 0.4))
    carried[np.arange(n_rows), np.arange(n_rows) % n_labels] = True
    return to_labels(carried)


def _lists(labels: Any) -> Any:
    """The labels of each row."""
    return [np.flatnonzero(row).tolist() for row in dense_labels(labels)]


def _of_node(labels: Any) -> Any:
    """The labels of a node with all rows."""
    rank = np.zeros(labels.n_labels, np.int32)
    found = localise_labels(
        labels.indptr, labels.indices, np.arange(labels.n_rows, dtype=np.int32), rank
    )
    assert not rank.any()
    return found


def _problem(rows: Any) -> Any:
    """The problem of a node with all rows."""
    rank = np.zeros(rows.n_features, np.int32)
    problem = localise(rows, np.arange(rows.n_rows, dtype=np.int32), rank, *NO_ROOM)
    assert not rank.any()
    return problem


def _examples(rows: Any, labels: Any) -> Any:
    ranks = np.zeros(rows.n_features, np.int32), np.zeros(labels.n_labels, np.int32)
    return Examples(rows, labels, *ranks, np.empty(0, np.int32), np.empty(0, np.float32))


def _split(rows: Any, labels: Any, here: ServerProcess | None = None, **learning: Any) -> Any:
    """The split of a node with these rows, or all."""
    here = np.arange(rows.n_rows, dtype=np.int32) if here is None else here
    learning, state = LEARNING._replace(**learning), np.array([3], np.uint64)
    return split_node(_examples(rows, labels), here, learning, state, GO_ON)


def _sent(directions: Any, n_children: int) -> Any:
    """Who is sent where: bool[n, children]."""
    return (directions[:, None] >> np.arange(n_children)) & 1 == 1


def _tally_of(means: Means) -> Tally:
    of_labels = (means.p_of * means.l_v[:, None]).ravel()
    rest = empty_tally(0, means.n_children)[3:]
    return Tally(np.array([float(means.c_v)]), means.p * means.c_v, of_labels, *rest)


@settings(max_examples=150)
@given(
    st.integers(0, 2**31),
    st.integers(2, 5),
    st.floats(0, 5, allow_subnormal=False),
    st.floats(0, 5, allow_subnormal=False),
)
def test_the_chosen_directions_have_the_least_objective(
    seed: int, n_children: int, lambda1: float, lambda2: float
) -> None:
    rng = np.random.default_rng(seed)
    labels = _labelled(seed, 12, 6)
    of_node = _of_node(labels)
    means = Means(6, n_children)
    for i, carried in enumerate(_lists(labels)):
        tally = _tally_of(means)
        chosen = best_directions(tally, n_children, of_node, i, (lambda1, lambda2))
        means.see(carried)
        assert tally.n_seen[0] == means.c_v
        objectives = means.objectives(carried, lambda1, lambda2)
        assert objectives[chosen - 1] <= objectives.min() + 1e-9
        means.p, means.p_of = means.with_row(carried, rng.random(n_children))


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(2, 5), st.integers(0, 20), st.integers(0, 20))
def test_of_equal_objectives_the_smallest_set_is_chosen(
    seed: int, n_children: int, quarters1: Any, quarters2: Any
) -> None:
    """With weights that are quarters and nothing seen before, no sum is rounded."""
    labels, lambdas = _labelled(seed, 12, 6), (quarters1 / 4, quarters2 / 4)
    means, carried = Means(6, n_children), _lists(labels)[0]
    chosen = best_directions(_tally_of(means), n_children, _of_node(labels), 0, lambdas)
    means.see(carried)
    # The oracle divides by the number of labels, and so rounds.
    objectives = np.round(means.objectives(carried, *lambdas), 9)
    assert chosen == best_set(objectives)


@settings(max_examples=100)
@given(st.integers(0, 2**31), st.integers(2, 6), st.floats(1, 4), st.floats(0, 4))
def test_quality_follows_the_definitions_and_the_lemmas(
    seed: int, n_children: int, lambda1: float, more: Any
) -> None:
    rng = np.random.default_rng(seed)
    lambda2 = lambda1 * max(0, n_children - 3) + 0.001 + more
    labels = _labelled(seed, 15, 7)
    directions = rng.integers(1, 1 << n_children, 15).astype(np.uint16)
    of_node = _of_node(labels)
    counts = count_labels(of_node, directions, n_children)
    sent, carried = _sent(directions, n_children), dense_labels(labels)[:, of_node.used]
    assert np.array_equal(counts, carried.T.astype(int) @ sent)
    found = split_quality(of_node, counts, lambda1, lambda2)
    assert found == pytest.approx(quality(sent, dense_labels(labels), lambda1, lambda2), abs=1e-9)
    j_value, beta, alpha = found
    # lemma 2, for lambda1 >= 1
    assert -lambda1 * (n_children - 1) - 1e-9 <= j_value <= lambda2 * (n_children - 1) + 1e-9
    assert -1e-9 <= beta <= 1 - 1 / n_children + 1e-9
    assert -1e-9 <= alpha <= 1


def test_lemmas_1_and_2_as_printed_fail_for_a_small_lambda1() -> None:
    """All rows to two of three children: J is 2 - 2 lambda1 + lambda2; to one of two:
    1 - lambda1.
    """
    of_node = _of_node(to_labels(np.eye(3, dtype=bool)))
    j_value, _, _ = split_quality(
        of_node, count_labels(of_node, np.full(3, 3, np.uint16), 3), 0.5, 0.5
    )
    assert j_value == pytest.approx(1.5)
    assert j_value > 0.5 * (3 - 1), "lemma 2"
    j_value, _, _ = split_quality(
        of_node, count_labels(of_node, np.full(3, 1, np.uint16), 2), 0.25, 0.25
    )
    assert j_value == pytest.approx(0.75)
    assert j_value > 0.25, "lemma 1"


def test_a_pure_and_balanced_split_reaches_the_least_objective() -> None:
    of_node = _of_node(to_labels(np.repeat(np.eye(4, dtype=bool), 3, axis=0)))
    counts = count_labels(of_node, np.repeat([1, 2, 4, 8], 3).astype(np.uint16), 4)
    assert split_quality(of_node, counts, 2.0, 4.0) == pytest.approx((-6.0, 0.0, 0.0))
    everywhere = count_labels(of_node, np.full(12, 15, np.uint16), 4)
    assert split_quality(of_node, everywhere, 2.0, 4.0) == pytest.approx((12.0, 0.0, 1.0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("optimiser", "name"), [(SGD, "sgd"), (NAG, "nag")])
def test_training_takes_the_papers_steps(seed: int, optimiser: Any, name: str) -> None:
    rows = random_rows(np.random.default_rng(seed), 30, 20, 0.3)
    labels, n_children = _labelled(seed, 30, 5), 3 + seed % 2
    problem, of_node = _problem(rows), _of_node(labels)
    learning = LEARNING._replace(n_children=n_children, optimiser=optimiser, step=0.7)
    state, draws = np.array([seed], np.uint64), np.array([seed], np.uint64)
    start = begin_regressors(problem, learning, draws).weights[:, :n_children].astype(np.float64)
    order, orders = np.arange(30, dtype=np.int32), []
    for _ in range(learning.epochs):
        shuffle(order, 30, draws)
        orders.append(order.copy())
    trained = train_regressors(problem, of_node, learning, 2.0, state, GO_ON)
    assert state == draws, "training draws the weights, and an order each epoch, and nothing else"

    x = np.column_stack([dense_rows(rows)[:, problem.used], np.ones(30)])
    expected = train(x, _lists(labels), orders, start, learning.step, 2.0, learning.lambda2, name)
    weights = trained.weights[:, :n_children]
    np.testing.assert_allclose(weights, expected, rtol=2e-3, atol=2e-4)
    assert abs(expected - start).max() > 0.1
    assert not trained.weights[:, n_children:].any()

    margins = x @ weights.astype(np.float64)
    sent = margins > 0
    sent[np.arange(30), margins.argmax(axis=1)] |= ~sent.any(axis=1)
    assert np.array_equal(_sent(route_rows(problem, trained, n_children), 16)[:, :n_children], sent)
    assert ((sigmoid(margins) > 0.5) == (margins > 0)).all()


def test_the_first_weights_are_small_and_differ_between_children() -> None:
    problem = _problem(random_rows(np.random.default_rng(0), 50, 30, 0.3))
    first = begin_regressors(problem, LEARNING, np.array([5], np.uint64)).weights
    most = 0.1 / np.sqrt(len(problem.features) / 50)
    assert 0.9 * most < abs(first[:-1, :4]).max() <= most
    assert len(np.unique(first[:-1, :4])) == 4 * 30
    assert not first[-1].any()


def test_a_set_flag_ends_a_training_after_an_epoch() -> None:
    problem = _problem(random_rows(np.random.default_rng(1), 30, 20, 0.3))
    learning, state = LEARNING._replace(epochs=10**9), np.array([1], np.uint64)
    train_regressors(
        problem, _of_node(_labelled(1, 30, 5)), learning, 2.0, state, np.ones(1, np.uint8)
    )


@pytest.mark.parametrize("arity", [2, 4, 8])
def test_a_split_keeps_the_children_that_get_rows(arity: int) -> None:
    rows, labels = random_rows(np.random.default_rng(arity), 5, 20, 0.4), _labelled(1, 5, 4)
    split = _split(rows, labels, n_children=arity, epochs=10, prune=0.05)
    n = split.n_children
    assert 2 <= n <= arity
    sent = _sent(split.directions, 16)
    assert not sent[:, n:].any()
    assert sent.any(axis=1).all()
    sent, sizes, weights = sent[:, :n], split.sizes[:n], split.weights[:-1, :n]
    assert sizes.tolist() == sent.sum(axis=0).tolist()
    assert 0 < sizes.min() <= sizes.max() < 5
    carried = dense_labels(labels)[:, split.labels]
    assert np.array_equal(split.counts[:, :n], carried.T.astype(int) @ sent)
    assert (abs(weights[weights != 0]) >= 0.05).all()
    margins = (
        dense_rows(rows)[:, split.features] @ weights.astype(np.float64) + split.weights[-1, :n]
    )
    assert ((margins > 0) <= sent).all()
    assert sent[np.arange(5), margins.argmax(axis=1)].all()


@pytest.mark.parametrize("arity", [2, 4])
def test_children_get_their_rows_labels_and_weights(arity: int) -> None:
    rng = np.random.default_rng(arity)
    rows, labels = random_rows(rng, 40, 60, 0.2), _labelled(1, 40, 9)
    here = np.flatnonzero(rng.random(40) < 0.7).astype(np.int32)
    split = _split(rows, labels, here, n_children=arity, epochs=10, prune=0.2)
    growth = _Growth(_examples(rows, labels), here, LdsmParameters(min_rows=2), 3)
    growth.waiting.clear()
    growth._add_children(growth.nodes[0], here, split)
    sent, carried = _sent(split.directions, split.n_children), dense_labels(labels)
    waiting = {node: (priority, own.tolist()) for priority, node, own in growth.waiting}
    expected_waiting = {}
    assert list(growth.nodes[0].children) == list(range(1, split.n_children + 1))
    for m, child in enumerate(growth.nodes[1:]):
        counts = carried[here[sent[:, m]]].sum(axis=0)
        assert child.n_rows == sent[:, m].sum()
        assert child.histogram[0].tolist() == np.flatnonzero(counts).tolist()
        assert child.histogram[1].tolist() == counts[counts > 0].tolist()
        priority = counts.sum() - counts.max()
        if priority > 0 and child.n_rows > 1:
            expected_waiting[m + 1] = (-priority, here[sent[:, m]].tolist())
    assert waiting == expected_waiting
    assert waiting
    chunk = growth.nodes[0].chunk
    expected = np.zeros((60, split.n_children), np.float32)
    expected[split.features] = split.weights[:-1, : split.n_children]
    assert np.array_equal(dense_weights(chunk, 60), expected)
    assert chunk.bias.tolist() == split.weights[-1, : split.n_children].tolist()
    assert (np.diff(chunk.features) > 0).all()
    assert chunk.weight.all()
    assert len(chunk.features) < len(split.features), "some weights are left out"


def test_a_lopsided_split_is_trained_anew_and_then_kept() -> None:
    """Of twenty rows nineteen are alike, so that a child gets more than
    nine tenths however it is trained.
    """
    one, other = (random_rows(np.random.default_rng(seed), 1, 20, 0.4) for seed in (2, 3))
    rows = one.join([one, other]).take(np.array([0] * 19 + [1]))
    labels = to_labels(np.arange(2) == (np.arange(20) == 19)[:, None])
    learning = LEARNING._replace(n_children=2, lambda1=1.0, epochs=10)
    problem, state = _problem(rows), np.array([3], np.uint64)
    first = train_regressors(problem, _of_node(labels), learning, learning.lambda1, state, GO_ON)
    assert sorted(_sent(route_rows(problem, first, 2), 2).sum(axis=0)) == [1, 19], "it would serve"
    split = _split(rows, labels, n_children=2, lambda1=1.0, epochs=10)
    assert split.n_retries == 2
    assert sorted(split.sizes.tolist()) == [1, 19]
