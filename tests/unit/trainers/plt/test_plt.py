"""Trainer `plt`: its trees, FOBOS descent as the dense update, the
scores served, size, and odd data.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers import trainings
from tests.helpers.trainings import estimate_by, scores_of, share_right, trained_by
from tests.oracles.label_trees import depths, fobos, labels_below, least_weighted_depth
from tests.oracles.problems import dense_labels, dense_rows, learnable, random_labels, random_rows

from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers.plt import descent as sgd
from xylem.trainers.plt.descent import train_trees
from xylem.trainers.plt.fobos import Descent
from xylem.trainers.shape import huffman_shape, random_shape
from xylem.trainers.source import MemorySource, Tools, TrainingSet, derived_seed

VARIANTS = {
    "kmeans": ["tree=kmeans", "leaf_size=5", "arity=4", "trees=2"],
    "random": ["tree=random", "arity=3"],
    "huffman": ["tree=huffman", "arity=5"],
    "sgd": ["solver=sgd", "tree=kmeans", "leaf_size=5", "arity=4", "trees=2"],
    "sgd-huffman": ["solver=sgd", "tree=huffman", "arity=2", "epochs=20"],
}
variants = pytest.mark.parametrize("variant", VARIANTS)
SEED = 5


@pytest.mark.parametrize("variant", ["random", "huffman", "sgd-huffman"])
def test_errors_add_up_at_most_along_a_path(variant: str) -> None:
    """Jasinska et al. 2016, bound (11): whatever the true probabilities of the nodes are."""
    data, rng = learnable(0, 300, 40), np.random.default_rng(5)
    predictor = trainings.predictor_of(trained_by("plt", data, *VARIANTS[variant]), data)
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
    trained = trained_by("plt", data, *VARIANTS[variant])
    assert (trained.kind, trained.link) == ("label-tree", "logistic")
    scores = scores_of(trained, data, exact=True)
    assert ((scores > 0) == (np.arange(40) != 4)).all(), "all but the label without rows"
    assert scores.max() <= 1
    assert share_right(scores, data[1]) > 0.6
    n_carried = len(data[1].indices)
    assert scores.sum() == pytest.approx(n_carried, rel=0.25), (
        "calibrated: as many labels as there are"
    )


@variants
def test_the_estimate_bounds_the_model(variant: str) -> None:
    data = learnable(3, 300, 40)
    n_nonzeros = trained_by("plt", data, *VARIANTS[variant], "prune=0").n_nonzeros
    assert (
        0
        < n_nonzeros
        <= estimate_by("plt", data, *VARIANTS[variant])["nonzeros_bound"]
        <= 2 * n_nonzeros
    )


@pytest.mark.parametrize("items", [["solver=batch"], ["solver=sgd", "epochs=100", "rate=0.05"]])
def test_rows_without_labels_lower_the_probabilities(items: list[str]) -> None:
    carried = np.tile(np.eye(2, dtype=bool), (100, 1))
    carried[::4] = False  # half of the rows with feature 0
    data = trainings.data_of(np.tile(np.eye(2), (100, 1)), carried)
    scores = scores_of(trained_by("plt", data, *items, "tree=random"), data, exact=True)[:2]
    assert scores.argmax(axis=1).tolist() == [0, 1]
    assert scores[0, 0] == pytest.approx(0.5, abs=0.1)
    assert scores[1, 1] > 0.85


def _check(shape: Any, labels: Any, arity: int) -> None:
    """Every rule of Shape, and that each label has one leaf."""
    n_children = np.diff(shape.child_ptr)
    assert shape.child_ptr[0] == 1
    assert shape.child_ptr[-1] == len(n_children) == len(shape.first)
    assert n_children.max() <= arity
    assert sorted(shape.labels.tolist()) == labels.tolist()
    below = labels_below(shape)
    assert below[0] == set(labels.tolist())
    for node in shape.inner.tolist():
        for child in range(shape.child_ptr[node], shape.child_ptr[node + 1]):
            assert child > node
            assert below[child] <= below[node]
        bounds = shape.child_bounds(node)
        assert (bounds[0], bounds[-1]) == (shape.first[node], shape.last[node])
        assert (np.diff(bounds) > 0).all()


@given(st.integers(1, 80), st.integers(2, 90), st.integers(0, 2**62))
def test_a_random_tree_is_complete(n_labels: int, arity: int, seed: int) -> None:
    labels = (3 * np.arange(n_labels)).astype(np.int32)
    shape = random_shape(labels, arity, seed)
    _check(shape, labels, arity)
    inner = np.diff(shape.child_ptr)[shape.inner]
    assert (inner[:-1] == arity).all()
    assert inner[-1] > 1 or n_labels == 1
    found = set(depths(shape).values())
    assert max(found) - min(found) <= 1


def test_random_trees_differ_by_seed() -> None:
    labels = np.arange(50, dtype=np.int32)
    one, same, other = (random_shape(labels, 4, seed).labels.tolist() for seed in (1, 1, 2))
    assert one == same != other


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(2, 7))
def test_a_huffman_tree_has_the_least_weighted_depth(counts: Any, arity: int) -> None:
    labels = (2 * np.arange(len(counts)) + 1).astype(np.int32)
    shape = huffman_shape(labels, np.array(counts), arity)
    _check(shape, labels, arity)
    depth = depths(shape)
    weighted = sum(
        count * depth[label] for count, label in zip(counts, labels.tolist(), strict=True)
    )
    assert weighted == (
        least_weighted_depth(tuple(counts), arity) if len(counts) > 1 else counts[0]
    )


def _descend(
    data: Any, shape: Any, descent: Any, bytes_max: Any = 1 << 30, threads: Any = 1
) -> Any:
    """The tree that descent trains, and what it reports."""
    tools = Tools(SEED, Crew(threads))
    trees, report, _ = train_trees(MemorySource(data), [(tools, shape)], descent, bytes_max, tools)
    return trees[0], report


def _data(
    seed: int, n_rows: int = 30, n_features: int = 12, n_labels: int = 9, density: float = 0.3
) -> tuple[SparseRows, LabelRows]:
    rng = np.random.default_rng(seed)
    return TrainingSet(
        random_rows(rng, n_rows, n_features, density), random_labels(rng, n_rows, n_labels, 0.3)
    )


def _shape(data: Any, arity: int, huffman: Any = False) -> Any:
    counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
    labels = np.flatnonzero(counts).astype(np.int32)
    return (
        huffman_shape(labels, counts[labels], arity) if huffman else random_shape(labels, arity, 3)
    )


@settings(max_examples=25)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.05, 1.0, 4.0]),
    st.sampled_from([0.0, 1e-3, 0.5, 20.0]),
    st.integers(1, 2),
    st.sampled_from([2, 4, 20]),
    st.booleans(),
)
def test_sparse_steps_equal_the_dense_update(
    seed: int, rate: Any, penalty: Any, epochs: Any, arity: int, huffman: Any
) -> None:
    data = _data(seed, n_rows=16)
    shape = _shape(data, arity, huffman)
    tree, report = _descend(data, shape, Descent(rate, penalty, epochs, prune=0.0))
    # rows that are one window have this order in each epoch
    draws = [
        np.random.Generator(np.random.PCG64(derived_seed(SEED, 1, e, 0))) for e in range(epochs)
    ]
    order = np.concatenate([draw.permutation(16) for draw in draws])
    expected = fobos(
        dense_rows(data.rows)[order], dense_labels(data.labels)[order], shape, rate, penalty, 1
    )
    for first, chunk in zip(tree.child_ptr, tree.chunks, strict=False):
        if chunk is not None:
            of_child = expected[first : first + len(chunk.bias)]
            weights, bias = np.transpose([w for w, _ in of_child]), [b for _, b in of_child]
            np.testing.assert_allclose(
                trainings.dense_weights(chunk, 12), weights, rtol=2e-4, atol=2e-5
            )
            np.testing.assert_allclose(chunk.bias, bias, rtol=2e-4, atol=2e-5)
    assert report["passed_over"] == 0


@pytest.mark.parametrize("shards", [1, 3, 50])
def test_shards_and_threads_do_not_change_a_bit(
    shards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _data(2, n_rows=200, n_labels=40)
    shape = _shape(data, 3)
    descent = Descent(1.0, 1e-3, 3, 0.0)
    expected, _ = _descend(data, shape, descent)
    monkeypatch.setattr(sgd, "SHARDS", shards)
    found, _ = _descend(data, shape, descent, threads=3)
    np.testing.assert_equal(found.chunks, expected.chunks)


def test_without_room_late_features_are_left_out_and_said() -> None:
    data = _data(5, n_rows=100, n_features=200, density=0.1)
    shape, descent = _shape(data, 3), Descent(1.0, 0.0, 2, 0.0)
    whole, plenty = _descend(data, shape, descent)
    tree, report = _descend(data, shape, descent, bytes_max=8192)
    assert plenty["passed_over"] == 0 < report["passed_over"]
    assert 0 < 4 * report["weights"] <= 8192
    for one, every in zip(tree.chunks, whole.chunks, strict=True):
        assert one is None or set(one.features) <= set(every.features), (
            "what a node met first is there"
        )
    assert any(one is not None and len(one.features) for one in tree.chunks)
