"""Trainer `plt`: the chain rule as served, determinism, size, and data that is out of the ordinary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows
from service.inference.predictor import PredictOptions, Predictor
from service.inference.predictors import make_predictor
from service.trainers import TrainingSet, estimate, parse_parameters, train
from service.trainers.shape import huffman_shape, parents_of, random_shape
from service.trainers.source import Tools
from service.trainers.spec import Trained
from service.workflows.choose_features import trial_model
from tests.oracles.label_trees import depths, labels_below, least_weighted_depth
from tests.oracles.problems import dense_labels, dense_rows, learnable, random_rows, to_labels, to_rows

VARIANTS = {
    "kmeans": ["tree=kmeans", "leaf_size=5", "arity=4", "trees=2"],
    "random": ["tree=random", "arity=3"],
    "huffman": ["tree=huffman", "arity=5"],
    "sgd": ["solver=sgd", "tree=kmeans", "leaf_size=5", "arity=4", "trees=2"],
    "sgd-huffman": ["solver=sgd", "tree=huffman", "arity=2", "epochs=20"],
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def _train(items: list[str], data: tuple[SparseRows, LabelRows]) -> Trained:
    return train("plt", parse_parameters("plt", items), *data)


def _served(trained: Trained, data: tuple[SparseRows, LabelRows]) -> Predictor:
    predictor = make_predictor(trial_model(trained, data[1].n_labels, data[0].n_features))
    assert isinstance(predictor, Predictor)
    return predictor


@variants
def test_scores_follow_the_chain_rule(variant: str) -> None:
    data = learnable(0, 300, 40)
    rows, labels = data
    trained = _train(VARIANTS[variant], data)
    assert (trained.kind, trained.link) == ("label-tree", "logistic")
    predictor = _served(trained, data)
    found = predictor.predict(rows, PredictOptions(top_r=labels.n_labels, exact=True))
    assert (np.diff(found.ptr) == labels.n_labels - 1).all(), "all but the label without rows"
    assert 4 not in found.labels
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    for row in (0, 17, 100):
        of_row = slice(found.ptr[row], found.ptr[row + 1])
        for label, score in zip(found.labels[of_row].tolist(), found.scores[of_row].tolist(), strict=True):
            paths = predictor.explain(rows, row, label).trees
            for path in paths:
                above = 1.0
                for node in path:
                    assert 0 <= node.probability <= 1
                    assert 0 <= node.score <= above
                    assert node.score == pytest.approx(above * node.probability, rel=1e-5, abs=1e-30)
                    above = node.score
            assert score == pytest.approx(np.mean([path[-1].score for path in paths]), rel=1e-5, abs=1e-30)


@pytest.mark.parametrize("variant", ["random", "huffman", "sgd-huffman"])
def test_errors_add_up_at_most_along_a_path(variant: str) -> None:
    """Jasinska et al. 2016, bound (11): whatever the true probabilities of the nodes are."""
    data, rng = learnable(0, 300, 40), np.random.default_rng(5)
    predictor = _served(_train(VARIANTS[variant], data), data)
    for row in (0, 17, 100):
        for label in (0, 7, 31):
            (path,) = predictor.explain(data[0], row, label).trees
            estimated = np.array([node.probability for node in path], float)
            for nearness in (0.0, 0.01, 0.3, 1.0):
                true = (1 - nearness) * estimated + nearness * rng.random(len(path))
                assert abs(true.prod() - path[-1].score) <= np.abs(true - estimated).sum() + 1e-6


@variants
def test_it_learns_and_its_probabilities_add_up(variant: str) -> None:
    data = learnable(1, 300, 40)
    rows, labels = data
    found = _served(_train(VARIANTS[variant], data), data).predict(
        rows, PredictOptions(top_r=labels.n_labels, exact=True)
    )
    scores = np.zeros((rows.n_rows, labels.n_labels))
    scores[np.repeat(np.arange(rows.n_rows), np.diff(found.ptr)), found.labels] = found.scores
    carried = dense_labels(labels)
    some = carried.any(axis=1)
    assert carried[np.arange(rows.n_rows), scores.argmax(axis=1)][some].mean() > 0.6
    assert scores.sum() == pytest.approx(carried.sum(), rel=0.25), "calibrated: as many labels as there are"


@variants
def test_the_estimate_bounds_the_model(variant: str) -> None:
    data = learnable(3, 300, 40)
    trained = _train([*VARIANTS[variant], "prune=0"], data)
    bound = estimate("plt", parse_parameters("plt", VARIANTS[variant]), TrainingSet(*data), Tools())
    assert 0 < trained.n_nonzeros <= bound["nonzeros_bound"]
    assert bound["nonzeros_bound"] <= 2 * trained.n_nonzeros


@pytest.mark.parametrize("items", [["solver=batch"], ["solver=sgd", "epochs=100", "rate=0.05"]])
def test_rows_without_labels_lower_the_probabilities(items: list[str]) -> None:
    x = np.tile(np.eye(2), (100, 1))
    carried = np.zeros((200, 2), bool)
    carried[::2, 0] = carried[1::2, 1] = True
    carried[::4] = False  # half of the rows with feature 0
    data = to_rows(x), to_labels(carried)
    predictor = _served(_train([*items, "tree=random"], data), data)
    found = predictor.predict(to_rows(np.eye(2)), PredictOptions(top_r=1, exact=True))
    assert found.labels.tolist() == [0, 1]
    assert found.scores[0] == pytest.approx(0.5, abs=0.1)
    assert found.scores[1] > 0.85


@pytest.mark.parametrize("solver", ["solver=batch", "solver=sgd"])
@pytest.mark.parametrize("tree", ["tree=kmeans", "tree=random", "tree=huffman"])
def test_out_of_the_ordinary(solver: str, tree: str) -> None:
    rng = np.random.default_rng(1)
    x = dense_rows(random_rows(rng, 30, 8, 0.3))
    x[3] = 0  # a row without features
    for n_labels in (1, 2, 5):  # one label only; more children than labels
        carried = np.zeros((30, n_labels), bool)
        carried[np.arange(30), np.arange(30) % n_labels] = True
        carried[5] = False
        data = to_rows(x), to_labels(carried)
        trained = _train([solver, tree, "arity=64"], data)
        predictor = _served(trained, data)
        found = predictor.predict(data[0], PredictOptions(top_r=n_labels, exact=True))
        assert (np.diff(found.ptr) == n_labels).all()
        assert np.isfinite(found.scores).all()


def test_an_arity_that_clustering_cannot_have_is_refused() -> None:
    with pytest.raises(BadParameter, match="arity: expected a power of two with tree=kmeans, found 3"):
        parse_parameters("plt", ["arity=3"])
    assert parse_parameters("plt", ["arity=3", "tree=random"])


counts_of_labels = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def _check(shape, labels, arity):
    """Every rule of Shape, and that each label has one leaf."""
    n_children = np.diff(shape.child_ptr)
    assert shape.child_ptr[0] == 1
    assert shape.child_ptr[-1] == len(n_children) == len(shape.first)
    assert n_children.max() <= arity
    assert sorted(shape.labels.tolist()) == labels.tolist()
    below, parents = labels_below(shape), parents_of(shape.child_ptr)
    assert below[0] == set(labels.tolist())
    for node in range(1, len(n_children)):
        assert parents[node] < node
        assert below[node] <= below[parents[node]]
    for node in shape.inner.tolist():
        bounds = shape.child_bounds(node)
        assert (bounds[0], bounds[-1]) == (shape.first[node], shape.last[node])
        assert (np.diff(bounds) > 0).all()


@given(st.integers(1, 80), st.integers(2, 90), st.integers(0, 2**62))
def test_a_random_tree_is_complete(n_labels, arity, seed):
    labels = (3 * np.arange(n_labels)).astype(np.int32)
    shape = random_shape(labels, arity, seed)
    _check(shape, labels, arity)
    inner = np.diff(shape.child_ptr)[shape.inner]
    assert (inner[:-1] == arity).all()
    assert inner[-1] > 1 or n_labels == 1
    found = set(depths(shape).values())
    assert max(found) - min(found) <= 1


def test_random_trees_differ_by_seed():
    labels = np.arange(50, dtype=np.int32)
    one, same, other = (random_shape(labels, 4, seed).labels.tolist() for seed in (1, 1, 2))
    assert one == same
    assert one != other


@settings(max_examples=60)
@given(counts_of_labels, st.integers(2, 7))
def test_a_huffman_tree_has_the_least_weighted_depth(counts, arity):
    labels = (2 * np.arange(len(counts)) + 1).astype(np.int32)
    shape = huffman_shape(labels, np.array(counts), arity)
    _check(shape, labels, arity)
    depth = depths(shape)
    weighted = sum(count * depth[label] for count, label in zip(counts, labels.tolist(), strict=True))
    expected = least_weighted_depth(tuple(counts), arity) if len(counts) > 1 else counts[0]
    assert weighted == expected
