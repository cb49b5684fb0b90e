"""Sparse FOBOS descent against the dense update that it stands for, and its bounded tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.executors.local import Crew
from service.trainers.plt import descent as sgd
from service.trainers.plt.descent import train_trees
from service.trainers.plt.fobos import Descent
from service.trainers.shape import huffman_shape, random_shape
from service.trainers.source import MemorySource, Tools, TrainingSet, derived_seed
from tests.oracles.label_trees import fobos
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows

GIB = 1 << 30
SEED = 5


def _train(data, shape, descent, bytes_max=GIB, threads=1):
    tools = Tools(SEED, Crew(threads))
    trees, report, _ = train_trees(MemorySource(data), [(tools, shape)], descent, bytes_max, tools)
    return trees[0], report


def _order(epoch, n_rows):
    """The order of the rows in an epoch, where they are one window."""
    return np.random.Generator(np.random.PCG64(derived_seed(SEED, 1, epoch, 0))).permutation(n_rows)


def _data(seed, n_rows=30, n_features=12, n_labels=9, density=0.3, share=0.3):
    rng = np.random.default_rng(seed)
    return TrainingSet(
        random_rows(rng, n_rows, n_features, density), random_labels(rng, n_rows, n_labels, share)
    )


def _shape(data, arity, huffman=False):
    counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
    labels = np.flatnonzero(counts).astype(np.int32)
    return huffman_shape(labels, counts[labels], arity) if huffman else random_shape(labels, arity, 3)


def _dense(tree, n_features):
    """The weights float64[D] and bias of each node but the root."""
    found = {}
    for node, chunk in enumerate(tree.chunks):
        if chunk is not None:
            weights = np.zeros((n_features, len(chunk.bias)))
            weights[np.repeat(chunk.features, np.diff(chunk.row_ptr)), chunk.child] = chunk.weight
            for c in range(len(chunk.bias)):
                found[int(tree.child_ptr[node]) + c] = (weights[:, c], chunk.bias[c])
    return found


@settings(max_examples=25)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.05, 1.0, 4.0]),
    st.sampled_from([0.0, 1e-3, 0.5, 20.0]),
    st.integers(1, 2),
    st.sampled_from([2, 4, 20]),
    st.booleans(),
)
def test_sparse_steps_equal_the_dense_update(seed, rate, penalty, epochs, arity, huffman):
    data = _data(seed, n_rows=16)
    shape = _shape(data, arity, huffman)
    tree, report = _train(data, shape, Descent(rate, penalty, epochs, prune=0.0))
    order = np.concatenate([_order(epoch, 16) for epoch in range(epochs)])
    expected = fobos(dense_rows(data.rows)[order], dense_labels(data.labels)[order], shape, rate, penalty, 1)
    for node, (w, b) in _dense(tree, data.rows.n_features).items():
        np.testing.assert_allclose(w, expected[node][0], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(b, expected[node][1], rtol=2e-4, atol=2e-5)
    assert report["passed_over"] == 0


def test_a_large_penalty_makes_small_weights():
    data = _data(1)
    norms = []
    for penalty in (0.0, 0.1, 10.0):
        tree, _ = _train(data, _shape(data, 4), Descent(1.0, penalty, 5, 0.0))
        norms.append(sum(np.abs(chunk.weight).sum() for chunk in tree.chunks if chunk is not None))
    assert norms[0] > 2 * norms[1] > 10 * norms[2]


@pytest.mark.parametrize("shards", [1, 3, 50])
def test_shards_and_threads_do_not_change_a_bit(shards, monkeypatch):
    data = _data(2, n_rows=200, n_labels=40)
    shape = _shape(data, 3)
    descent = Descent(1.0, 1e-3, 3, 0.0)
    expected, _ = _train(data, shape, descent)
    monkeypatch.setattr(sgd, "SHARDS", shards)
    found, _ = _train(data, shape, descent, threads=3)
    for one, other in zip(expected.chunks, found.chunks, strict=True):
        assert (one is None) == (other is None)
        for a, b in zip(one or (), other or (), strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_are_shuffled_anew_in_each_epoch(monkeypatch):
    orders = []
    real = sgd.train_shard
    monkeypatch.setattr(sgd, "train_shard", lambda *given: orders.append(given[2].tolist()) or real(*given))
    data = _data(3, n_rows=50)
    shape = _shape(data, 20)  # one inner node: one shard
    _train(data, shape, Descent(1.0, 0.0, 2, 0.0))
    assert [len(order) for order in orders] == [50, 50]
    assert all(sorted(order) == list(range(len(order))) for order in orders)
    assert len({tuple(order) for order in orders}) == 2
    # all rows are one window, which a window of the first 30 could not give
    assert max(orders[0][:20]) >= 30 > min(orders[0][30:])


def test_without_room_late_features_are_left_out_and_said():
    data = _data(5, n_rows=100, n_features=200, density=0.1)
    shape = _shape(data, 3)
    descent = Descent(1.0, 0.0, 2, 0.0)
    whole, plenty = _train(data, shape, descent)
    tree, report = _train(data, shape, descent, bytes_max=8192)
    assert plenty["passed_over"] == 0
    assert 0 < 4 * report["weights"] <= 8192
    assert report["passed_over"] > 0
    # the features that a node met first are there
    for one, all_of_them in zip(tree.chunks, whole.chunks, strict=True):
        if one is not None:
            assert set(one.features) <= set(all_of_them.features)
    assert any(one is not None and len(one.features) for one in tree.chunks)
