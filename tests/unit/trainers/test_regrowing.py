"""Trees that get new labels: what they learn, what stays to the bit,
groups divided, weights of all types.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.trainings import scores_of, trained_by
from tests.oracles import problems
from tests.oracles.label_trees import labels_below
from tests.oracles.problems import dense_labels, dense_rows, learnable, to_labels

from xylem.base.errors import BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import NO_ROWS, LabelRows, SparseRows, offsets
from xylem.trainers import TRAINERS, Trained, TrainingSet, parse_parameters
from xylem.trainers.classifiers import aligned
from xylem.trainers.kernels.newton import no_old_rows, refine
from xylem.trainers.kernels.problem import NO_ROOM, localise
from xylem.trainers.kernels.solver import Tile, solve_logistic, solve_squared_hinge
from xylem.trainers.regrowing import NEW_LABEL_SHARE_MAX, Regrown
from xylem.trainers.shape import shape_of
from xylem.trainers.source import Tools
from xylem.workflows.choose_features import trial_model
from xylem_store.build import store_weights
from xylem_store.decoding import chunk_of, trees_of
from xylem_store.ensemble import TreeEnsemble, Weights
from xylem_store.version import Model

LINEAR = {
    "balanced": ("label-tree", ["leaf_size=8", "arity=4", "trees=2"]),
    "kmeans": ("label-tree", ["leaf_size=8", "arity=4", "clustering=kmeans"]),
    "logistic": ("label-tree", ["leaf_size=20", "loss=logistic", "idf=yes"]),
    "ovr": ("ovr", []),
    "plt": ("plt", ["leaf_size=8", "arity=4"]),
    "random": ("plt", ["tree=random", "arity=4"]),
    "huffman": ("plt", ["tree=huffman", "arity=4"]),
}
SHORT = ["dim=12", "epochs=40"]
SOFTMAX = {
    "softmax-huffman": ("huffman-tree", ["arity=4", *SHORT]),
    "softmax-binary": ("huffman-tree", ["arity=2", *SHORT]),
    "softmax-flat": ("huffman-tree", ["tree=flat", *SHORT]),
    "softmax-adagrad": ("huffman-tree", ["optimiser=adagrad", "arity=4", "pooling=sum", *SHORT]),
    "softmax-learned": ("learned-tree", ["arity=4", "alone=0.5", *SHORT]),
}
VARIANTS = {**LINEAR, **SOFTMAX}
MANY, FEW = 25, 3
"""Rows with each new label: more than NEW_LABEL_SHARE_MAX of all rows, which are trained from
nothing, and fewer.
"""


def _trained(variant: str, data: TrainingSet) -> Trained:
    name, items = VARIANTS[variant]
    return trained_by(name, data, *items)


def _growth(variant: str, data: TrainingSet) -> Any:
    name, items = VARIANTS[variant]
    return TRAINERS[name].growth(parse_parameters(name, items), data.rows)


def _extended(variant: str, old: Model, data: TrainingSet, threads: int = 1) -> Regrown:
    return _growth(variant, data).extend(old, data, Tools(0, Crew(threads)))


def _model(trained: Trained, data: TrainingSet) -> Model:
    return trial_model(trained, trained.ensemble.label_leaf.shape[1], data.rows.n_features)


def _scores(old: Trained, ensemble: TreeEnsemble, data: TrainingSet) -> np.ndarray:
    """What a training that has another ensemble now says of the rows."""
    return scores_of(replace(old, ensemble=ensemble), data)


def _in_fewer_bits(model: Model, weights: Weights) -> Model:
    stored = store_weights(model.ensemble, weights)
    return replace(model, ensemble=stored, manifest=replace(model.manifest, weights=weights))


# Linear trees, of which a classifier stays where no new label is below it.

N_LABELS, N_NEW = 60, 6


def _data(seed: int = 0, most: int = MANY) -> tuple[TrainingSet, TrainingSet]:
    """All rows with all labels, the last ones on `most` rows, and the same rows without these."""
    rows, labels = learnable(seed, 500, N_LABELS, rarity=0.95)
    carried, n_old = dense_labels(labels), N_LABELS - N_NEW
    is_more = carried[:, n_old:] & (np.cumsum(carried[:, n_old:], axis=0) > most)
    stays = np.flatnonzero(~is_more.any(axis=1))
    rows, carried = rows.take(stays), carried[stays]
    share = carried[:, n_old:].any(axis=1).mean()
    assert share > NEW_LABEL_SHARE_MAX if most == MANY else 0 < share <= NEW_LABEL_SHARE_MAX
    return TrainingSet(rows, to_labels(carried)), TrainingSet(rows, to_labels(carried[:, :n_old]))


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
                weights = dict(
                    zip(chunk.feature[mine].tolist(), chunk.weight[mine].tolist(), strict=True)
                )
                scorers[i, below[child]] = (float(chunk.bias[place]), weights)
        found.append({key[1]: value for key, value in scorers.items()})
    return found


@pytest.mark.parametrize("most", [MANY, FEW])
@pytest.mark.parametrize("variant", LINEAR)
def test_new_labels_are_learnt_and_others_stay_to_the_bit(variant: str, most: int) -> None:
    data, without = _data(most=most)
    old = _trained(variant, without)
    grown = _extended(variant, _model(old, data), data)
    best = np.argsort(-_scores(old, grown.ensemble, data), axis=1, kind="stable")[:, :5]
    found = np.zeros((data.n_rows, N_LABELS), bool)
    np.put_along_axis(found, best, True, axis=1)
    new = dense_labels(data.labels)[:, -N_NEW:]
    hits = (found[:, -N_NEW:] | ~new)[new.any(axis=1)].all(axis=1)
    assert hits.mean() > (0.8 if most == MANY else 0.4)
    assert grown.classifiers < sum(map(len, _scorers(grown.ensemble)))
    for before, after in zip(_scorers(old.ensemble), _scorers(grown.ensemble), strict=True):
        stayed = {labels for labels in before if after.get(labels) == before[labels]}
        assert set(before) & set(after) == stayed, "no new label is below these"
        if not grown.divided:
            assert {labels for labels in before if len(labels) == 1} <= stayed


@pytest.mark.parametrize(("most", "from_nothing"), [(MANY, True), (FEW, False)])
def test_paths_to_new_labels_on_many_rows_start_from_nothing(most: int, from_nothing: bool) -> None:
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
    model = _in_fewer_bits(_model(_trained("balanced", without), data), weights)
    old, grown = model.ensemble, _extended("balanced", model, data).ensemble
    assert (grown.sparse.dtype, grown.dense.dtype) == (old.sparse.dtype, old.dense.dtype)
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
    bounds = zip(grown.ensemble.child_ptr[:-1], grown.ensemble.child_ptr[1:], strict=True)
    assert max(np.count_nonzero(grown.ensemble.node_label[a:b] >= 0) for a, b in bounds) <= 16
    for scorers in _scorers(grown.ensemble):
        assert all(bias or weights for bias, weights in scorers.values()), "each is trained"


def test_trees_go_on_from_their_weights() -> None:
    data, _ = _data(4)
    old = _trained("balanced", data.take(np.arange(0, 500, 2)))
    grown = _growth("balanced", data).refit(_model(old, data), data, Tools(0))
    assert np.array_equal(grown.ensemble.node_label, old.ensemble.node_label)
    again, carried = _trained("balanced", data), dense_labels(data.labels)
    hits = []
    for ensemble in (old.ensemble, grown.ensemble, again.ensemble):
        best = np.argsort(-_scores(old, ensemble, data), axis=1)[:, :3]
        hits.append(np.take_along_axis(carried, best, axis=1).sum() / carried.sum())
    assert hits[1] > hits[0] and hits[1] > hits[2] - 0.02


@pytest.mark.parametrize("is_optimal", [True, False])
@pytest.mark.parametrize(
    ("solve", "objective"),
    [
        (solve_squared_hinge, problems.hinge_objective),
        (solve_logistic, problems.logistic_objective),
    ],
)
def test_a_newton_step_from_other_weights_nears_the_optimum(
    solve: Any, objective: Any, is_optimal: bool
) -> None:
    rows, labels = learnable(5, 300, 8, rarity=0.5)
    positive = (dense_labels(labels) @ (1 << np.arange(8))).astype(np.uint16)
    costs = np.full(16, 2.0, np.float32)

    def tile(n: int) -> tuple[Any, Tile]:
        rank = np.zeros(rows.n_features, np.int32)
        problem = localise(rows, np.arange(n, dtype=np.int32), rank, *NO_ROOM)
        spaces = np.empty(n, np.int32), np.empty(n, np.uint16)
        return problem, Tile(
            positive[:n].copy(), aligned(len(problem.used) + 1), aligned(n), *spaces
        )

    stop = np.zeros(1, np.uint8)
    part, started = tile(290)
    solve(part, started, 8, costs[None], 1e-3, 1000, 1, stop)
    problem, best = tile(300)
    solve(problem, best, 8, costs[None], 1e-3, 1000, 1, stop)
    _, refined = tile(300)
    of_old = np.searchsorted(np.sort(problem.used), part.used)
    refined.weights[np.argsort(problem.used)[of_old]] = started.weights[:-1]
    refined.weights[-1] = started.weights[-1]
    before = refined.weights.copy()
    known = no_old_rows(300)
    if is_optimal:  # of the first 290 rows
        known.is_old[:290] = 1
        known.positive[:] = positive
    refine(problem, refined, costs, solve is solve_logistic, known, is_optimal, stop)
    x = dense_rows(rows)[:, problem.used]
    for c in range(8):
        y = np.where(positive >> c & 1, 1.0, -1.0)
        least, at_first, found = (
            objective(x, y, weights[:-1, c].astype(float), float(weights[-1, c]), 2.0)
            for weights in (best.weights, before, refined.weights)
        )
        assert found - least < 0.3 * (at_first - least) + 0.01


# Trees of softmax nodes, of which a node stays where no new label is below it.

N_NAMES, NEW_NAMES, N_ROWS, N_WORDS, OF_A_LABEL = 30, frozenset(range(26, 30)), 900, 60, 4


def _words(seed: int = 0) -> TrainingSet:
    """Rows of one label each, with most of its words; each word is one of several labels."""
    random = np.random.default_rng(seed)
    words = np.array(
        [random.choice(N_WORDS, OF_A_LABEL + 1, replace=False) for _ in range(N_NAMES)]
    )
    labels = random.integers(0, N_NAMES, N_ROWS).astype(np.int32)
    own = [random.choice(words[label], OF_A_LABEL, replace=False) for label in labels]
    indices = np.sort(own, axis=1).astype(np.int32).reshape(-1)
    ptr = np.arange(N_ROWS + 1)
    rows = SparseRows(ptr * OF_A_LABEL, indices, np.full(len(indices), 0.5, np.float32), N_WORDS)
    return TrainingSet(rows, LabelRows(ptr, labels, N_NAMES))


def _without_new(variant: str, seed: int) -> tuple[TrainingSet, Trained, Model]:
    """All rows, a training without the last labels, and its model."""
    data = _words(seed)
    n_old = N_NAMES - len(NEW_NAMES)
    stays = data.labels.indices < n_old
    old = LabelRows(offsets(stays), data.labels.indices[stays], n_old)
    trained = _trained(variant, TrainingSet(data.rows, old))
    return data, trained, _model(trained, data)


def _nodes(ensemble: TreeEnsemble) -> dict[frozenset[int], Any]:
    """By the labels below each inner node: those below each child, its weights and its bias."""
    (tree,) = trees_of(ensemble)
    shape = shape_of(tree.child_ptr, tree.node_label)
    below = list(map(frozenset, labels_below(shape)))
    found = {}
    for node in shape.inner.tolist():
        arrays = [array.tobytes() for array in chunk_of(ensemble, int(tree.nodes[node]))]
        found[below[node]] = below[tree.child_ptr[node] : tree.child_ptr[node + 1]], arrays
    return found


def _stayed(old: TreeEnsemble, grown: TreeEnsemble) -> int:
    """How many nodes have no new label below them; each of them is as it was."""
    before = _nodes(old)
    without_new = {labels: node for labels, node in _nodes(grown).items() if not labels & NEW_NAMES}
    assert without_new == {labels: before[labels] for labels in without_new}
    return len(without_new)


@pytest.mark.parametrize("variant", SOFTMAX)
def test_new_labels_are_learnt_and_other_nodes_stay_to_the_bit(
    variant: str,
) -> None:
    data, trained, model = _without_new(variant, 0)
    grown = _extended(variant, model, data).ensemble
    scores = _scores(trained, grown, data)
    best = scores.argmax(axis=1) == data.labels.indices
    is_new = np.isin(data.labels.indices, list(NEW_NAMES))
    assert best[is_new].mean() > 0.5 and best[~is_new].mean() > 0.85
    assert scores.all()
    np.testing.assert_allclose(scores.sum(axis=1), 1.0, atol=1e-5)
    assert _stayed(model.ensemble, grown) or variant == "softmax-flat"
    assert (
        _extended(variant, model, data, threads=2).ensemble.dense.tobytes() == grown.dense.tobytes()
    )


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_weights_of_softmax_nodes_of_fewer_bits_stay_to_the_bit(weights: Any) -> None:
    data, _, model = _without_new("softmax-huffman", 1)
    model = _in_fewer_bits(model, weights)
    grown = _extended("softmax-huffman", model, data).ensemble
    assert grown.dense.dtype == model.ensemble.dense.dtype
    assert _stayed(model.ensemble, grown)


def test_many_labels_beside_one_get_nodes_of_their_own() -> None:
    data, _, model = _without_new("softmax-binary", 2)
    many = np.where(data.labels.indices == 0, N_NAMES + np.arange(N_ROWS) % 20, data.labels.indices)
    old, divided = (
        data._replace(
            labels=data.labels._replace(indices=indices.astype(np.int32), n_labels=N_NAMES + 20)
        )
        for indices in (data.labels.indices, many)
    )
    both = TrainingSet.join([old, divided])
    grown = _extended("softmax-binary", model, both)
    assert (grown.ensemble.label_leaf[0, np.unique(both.labels.indices)] >= 0).all()
    (tree,) = trees_of(grown.ensemble)
    assert np.diff(tree.child_ptr).max() == 2 and grown.divided > 0


@pytest.mark.parametrize(
    ("name", "item", "message"),
    [
        ("plt", "solver=sgd", "expected batch, found sgd"),
        ("huffman-tree", "task=text", "task: expected labels, found text"),
    ],
)
def test_trees_of_gradient_descent_and_of_words_get_no_labels(
    name: str, item: Any, message: Any
) -> None:
    with pytest.raises(BadParameter, match=message):
        TRAINERS[name].growth(parse_parameters(name, [item]), NO_ROWS)
