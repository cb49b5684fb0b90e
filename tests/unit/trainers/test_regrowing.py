"""Trees that get new labels: what they learn, what stays to the bit, groups divided, weights of all types."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_store.build import store_weights
from model_store.decoding import chunk_of, trees_of
from model_store.ensemble import TreeEnsemble, Weights
from model_store.version import Model
from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.kernels.training.newton import nothing_known, refine
from service.kernels.training.problem import NO_ROOM, localise
from service.kernels.training.solver import Tile, solve_logistic, solve_squared_hinge
from service.trainers import TRAINERS, Trained, TrainingSet, parse_parameters, train
from service.trainers.classifiers import aligned
from service.trainers.regrowing import ANEW, Regrown
from service.trainers.shape import shape_of
from service.trainers.source import Tools
from service.workflows.choose_features import trial_model
from tests.oracles.label_trees import labels_below
from tests.oracles.problems import (
    dense_labels,
    dense_rows,
    hinge_objective,
    learnable,
    logistic_objective,
    to_labels,
)

VARIANTS = {
    "balanced": ("label-tree", ["leaf_size=8", "arity=4", "trees=2"]),
    "kmeans": ("label-tree", ["leaf_size=8", "arity=4", "clustering=kmeans"]),
    "logistic": ("label-tree", ["leaf_size=20", "loss=logistic", "idf=yes"]),
    "ovr": ("ovr", []),
    "plt": ("plt", ["leaf_size=8", "arity=4"]),
    "random": ("plt", ["tree=random", "arity=4"]),
    "huffman": ("plt", ["tree=huffman", "arity=4"]),
}
N_LABELS, N_NEW = 60, 6


MANY, FEW = 25, 3
"""Rows with each new label: more than ANEW of all rows, which are trained from nothing, and fewer."""


def _data(seed: int = 0, most: int = MANY) -> tuple[TrainingSet, TrainingSet]:
    """All rows with all labels, the last ones on `most` rows, and the same rows without these."""
    rows, labels = learnable(seed, 500, N_LABELS, rarity=0.95)
    carried, n_old = dense_labels(labels) > 0, N_LABELS - N_NEW
    is_more = carried[:, n_old:] & (np.cumsum(carried[:, n_old:], axis=0) > most)
    stays = np.flatnonzero(~is_more.any(axis=1))
    rows, carried = rows.take(stays), carried[stays]
    share = carried[:, n_old:].any(axis=1).mean()
    assert share > ANEW if most == MANY else 0 < share <= ANEW
    return TrainingSet(rows, to_labels(carried)), TrainingSet(rows, to_labels(carried[:, :n_old]))


def _trained(variant: str, data: TrainingSet) -> Trained:
    name, items = VARIANTS[variant]
    return train(name, parse_parameters(name, items), *data)


def _extended(variant: str, old: Model, data: TrainingSet) -> Regrown:
    name, items = VARIANTS[variant]
    grows: Any = TRAINERS[name].growth
    grown: Regrown = grows(parse_parameters(name, items), data.rows).extend(old, data, Tools(0))
    return grown


def _model(trained: Trained, data: TrainingSet) -> Model:
    return trial_model(trained, trained.ensemble.label_leaf.shape[1], data.rows.n_features)


def _scorers(ensemble: TreeEnsemble) -> list[dict[Any, Any]]:
    """By tree: of each node, by the labels below it, (bias, feature -> weight) of its scorer."""
    found = []
    for tree in trees_of(ensemble):
        shape = shape_of(tree.child_ptr, tree.node_label)
        below = list(map(frozenset, labels_below(shape)))
        scorers = {}
        for i in reversed(shape.inner.tolist()):
            chunk = chunk_of(ensemble, int(tree.nodes[i]))
            for place, child in enumerate(range(tree.child_ptr[i], tree.child_ptr[i + 1])):
                mine = chunk.child == place
                weights = dict(zip(chunk.feature[mine].tolist(), chunk.weight[mine].tolist(), strict=True))
                scorers[i, below[child]] = (float(chunk.bias[place]), weights)
        found.append({key[1]: value for key, value in scorers.items()})
    return found


@pytest.mark.parametrize("most", [MANY, FEW])
@pytest.mark.parametrize("variant", VARIANTS)
def test_new_labels_are_found_and_what_does_not_concern_them_stays_to_the_bit(
    variant: str, most: int
) -> None:
    data, without = _data(most=most)
    old = _trained(variant, without)
    grown = _extended(variant, _model(old, data), data)
    model = trial_model(replace(old, ensemble=grown.ensemble), N_LABELS, data.rows.n_features)
    found = make_predictor(model).predict(data.rows, PredictOptions(top_r=5))
    carried = dense_labels(data.labels)
    new = np.arange(N_LABELS - N_NEW, N_LABELS)
    with_new = np.flatnonzero(carried[:, new].any(axis=1))
    hits = [
        set(np.flatnonzero(carried[row])) & set(new) <= set(found.labels[found.ptr[row] :][:5])
        for row in with_new.tolist()
    ]
    assert np.mean(hits) > (0.8 if most == MANY else 0.4)
    assert grown.classifiers < sum(map(len, _scorers(grown.ensemble)))
    for before, after in zip(_scorers(old.ensemble), _scorers(grown.ensemble), strict=True):
        stayed = [labels for labels in before if after.get(labels) == before[labels]]
        singles = [labels for labels in before if len(labels) == 1]
        assert set(before) & set(after) == set(stayed), "no new label is below these"
        if not grown.divided:
            assert set(singles) <= set(stayed)


@pytest.mark.parametrize(("most", "from_nothing"), [(MANY, True), (FEW, False)])
def test_paths_to_new_labels_on_many_rows_are_trained_from_nothing(most: int, from_nothing: bool) -> None:
    data, without = _data(most=most)
    old = _model(_trained("balanced", without), data)
    bias = old.ensemble.node_bias + np.float32(1)  # of which the margins have the same order
    other = replace(old, ensemble=old.ensemble._replace(node_bias=bias))
    found = [_scorers(_extended("balanced", one, data).ensemble) for one in (old, other)]
    for mine, others in zip(*found, strict=True):
        new = set(range(N_LABELS - N_NEW, N_LABELS))
        path = [labels for labels in mine if len(labels) > 1 and labels & new]
        assert path
        assert all((mine[labels] == others[labels]) == from_nothing for labels in path)


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_weights_of_fewer_bits_stay_to_the_bit(weights: Weights) -> None:
    data, without = _data(3, FEW)
    model = _model(_trained("balanced", without), data)
    old = store_weights(model.ensemble, weights)
    model = replace(model, ensemble=old, manifest=replace(model.manifest, weights=weights))
    grown = _extended("balanced", model, data).ensemble
    assert grown.sparse.dtype == old.sparse.dtype and grown.dense.dtype == old.dense.dtype
    for before, after in zip(_scorers(old), _scorers(grown), strict=True):
        common = set(before) & set(after)
        assert len(common) >= N_LABELS - N_NEW
        assert all(before[labels] == after[labels] for labels in common)


@pytest.mark.parametrize("variant", ["balanced", "kmeans", "plt", "random"])
def test_a_group_that_grows_too_large_is_divided(variant: str) -> None:
    data, _ = _data(1)
    few = LabelRows(np.arange(501), (np.arange(500) % 2).astype(np.int32), 2)
    shifted = data.labels._replace(indices=data.labels.indices + np.int32(2), n_labels=N_LABELS + 2)
    first = TrainingSet(data.rows, few._replace(n_labels=N_LABELS + 2))
    both = TrainingSet.join([first, data._replace(labels=shifted)])
    grown = _extended(variant, _model(_trained(variant, TrainingSet(data.rows, few)), data), both)
    assert grown.divided
    assert (grown.ensemble.label_leaf[0] >= 0).sum() == 2 + len(np.unique(data.labels.indices))
    most = max(
        np.count_nonzero(grown.ensemble.node_label[a:b] >= 0)
        for a, b in zip(grown.ensemble.child_ptr[:-1], grown.ensemble.child_ptr[1:], strict=True)
    )
    assert most <= 16
    for scorers in _scorers(grown.ensemble):
        assert all(bias or weights for bias, weights in scorers.values()), "each is trained"


def test_trees_go_on_from_their_weights() -> None:
    data, _ = _data(4)
    name, items = VARIANTS["balanced"]
    parameters = parse_parameters(name, items)
    half = data.take(np.arange(0, 500, 2))
    old = train(name, parameters, *half)
    grows: Any = TRAINERS[name].growth
    grown = grows(parameters, data.rows).refit(_model(old, data), data, Tools(0))
    assert np.array_equal(grown.ensemble.node_label, old.ensemble.node_label)
    again = train(name, parameters, *data)
    true, n_true = dense_labels(data.labels), len(data.labels.indices)
    hits = []
    for ensemble in (old.ensemble, grown.ensemble, again.ensemble):
        model = trial_model(replace(old, ensemble=ensemble), N_LABELS, data.rows.n_features)
        found = make_predictor(model).predict(data.rows, PredictOptions(top_r=3))
        rows = np.repeat(np.arange(500), np.diff(found.ptr))
        hits.append(true[rows, found.labels].sum() / n_true)
    assert hits[1] > hits[0] and hits[1] > hits[2] - 0.02


@pytest.mark.parametrize("is_optimal", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_newton_step_from_weights_of_other_rows_comes_near_the_optimum(loss: str, is_optimal: bool) -> None:
    rows, labels = learnable(5, 300, 8, rarity=0.5)
    positive = (dense_labels(labels) @ (1 << np.arange(8))).astype(np.uint16)
    costs = np.full(16, 2.0, np.float32)
    solve, objective = solve_squared_hinge, hinge_objective
    if loss == "logistic":
        solve, objective = solve_logistic, logistic_objective

    def tile(n: int) -> tuple[Any, Tile]:
        rank = np.zeros(rows.n_features, np.int32)
        problem = localise(rows, np.arange(n, dtype=np.int32), rank, *NO_ROOM)
        spaces = np.empty(n, np.int32), np.empty(n, np.uint16)
        return problem, Tile(positive[:n].copy(), aligned(len(problem.used) + 1), aligned(n), *spaces)

    stop = np.zeros(1, np.uint8)
    part, started = tile(290)
    solve(part, started, 8, costs, 1e-3, 1000, 1, stop)
    problem, best = tile(300)
    solve(problem, best, 8, costs, 1e-3, 1000, 1, stop)
    _, refined = tile(300)
    of_old = np.searchsorted(np.sort(problem.used), part.used)
    refined.weights[np.argsort(problem.used)[of_old]] = started.weights[:-1]
    refined.weights[-1] = started.weights[-1]
    before = refined.weights.copy()
    known = nothing_known(300)
    if is_optimal:  # of the first 290 rows
        known.was[:290] = 1
        known.positive[:] = positive
    refine(problem, refined, costs, loss == "logistic", known, is_optimal, stop)
    x = dense_rows(rows)[:, problem.used]
    for c in range(8):
        y = np.where(positive >> c & 1, 1.0, -1.0)

        def value(weights: Any, c: int = c, y: Any = y) -> float:
            return objective(x, y, weights[:-1, c].astype(float), float(weights[-1, c]), 2.0)

        least = value(best.weights)
        assert value(refined.weights) - least < 0.3 * (value(before) - least) + 0.01


def test_trees_of_gradient_descent_do_not_grow_on() -> None:
    grows: Any = TRAINERS["plt"].growth
    rows = SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 1)
    with pytest.raises(BadParameter, match="expected batch, found sgd"):
        grows(parse_parameters("plt", ["solver=sgd"]), rows)
