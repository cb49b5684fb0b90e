"""Flat and clustering trees of softmax nodes."""

from __future__ import annotations

import numpy as np
import pytest

from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import parse_parameters, train
from service.trainers.shape import Shape
from service.trainers.softmax import training as softmax_training
from service.trainers.softmax.shapes import FLAT_MAX, _fill, clustered_shape, label_vectors
from service.trainers.source import MemorySource, TrainingSet
from service.trainers.work import Crew, Tools
from service.workflows.choose_features import trial_model
from tests.oracles.problems import to_labels, to_rows


def unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-9)).astype(np.float32)


def clustered(vectors: np.ndarray, arity: int, threads: int = 1) -> Shape:
    n = len(vectors)
    labels = np.arange(n, dtype=np.int32) * 2  # not all labels have a leaf
    counts = np.arange(n, dtype=np.int64)[::-1] + 1
    return clustered_shape(vectors, labels, counts, arity, Tools(3, Crew(threads)))


@pytest.mark.parametrize(("n", "arity"), [(1, 2), (2, 2), (3, 20), (64, 4), (65, 4), (100, 7), (40, 2)])
def test_every_label_has_a_leaf_and_no_node_is_over_full(n: int, arity: int) -> None:
    rng = np.random.default_rng(n)
    for vectors in (unit(rng.standard_normal((n, 5))), np.zeros((n, 5), np.float32)):
        shape = clustered(vectors, arity)
        assert sorted(shape.labels.tolist()) == list(range(0, 2 * n, 2))
        assert np.diff(shape.child_ptr).max() <= arity
        n_levels = next(h for h in range(1, 20) if arity**h >= n)
        depth = np.zeros(len(shape.first), int)
        for node in shape.inner.tolist():
            for child in range(shape.child_ptr[node], shape.child_ptr[node + 1]):
                depth[child] = depth[node] + 1
                assert shape.last[child] - shape.first[child] <= arity ** (n_levels - depth[child])
        again = clustered(vectors, arity, 2)
        assert again.labels.tobytes() == shape.labels.tobytes()


def test_labels_of_like_vectors_share_nodes() -> None:
    rng = np.random.default_rng(1)
    group = rng.permutation(np.repeat(np.arange(4), 4))
    vectors = unit(np.eye(4)[group] + 0.05 * rng.standard_normal((16, 4)))
    shape = clustered(vectors, 4)
    for part in shape.labels.reshape(4, 4) // 2:
        assert len(set(group[part].tolist())) == 1


def test_frequent_labels_choose_first_among_clusters_with_room() -> None:
    vectors = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    chosen = _fill(vectors, np.eye(2, dtype=np.float32), np.array([1, 5, 5, 2]), 2)
    assert chosen.tolist() == [1, 0, 0, 1]


def test_a_label_lies_where_its_rows_are_and_a_word_at_its_own_embedding() -> None:
    embedding = np.array([[3, 4], [0, 2], [0, 0]], np.float32)
    rows, labels = to_rows(np.array([[1, 0, 0], [0, 2, 0], [0, 0, 1]])), to_labels(np.eye(3) > 0)
    every = np.arange(3, dtype=np.int32)
    for are_words in (True, False):
        found = label_vectors(MemorySource(TrainingSet(rows, labels)), every, embedding, are_words)
        np.testing.assert_allclose(found, [[0.6, 0.8], [0, 1], [0, 0]], atol=1e-6)


def many_labels(n_labels: int) -> TrainingSet:
    """16 rows that carry all labels between them."""
    indptr = np.linspace(0, n_labels, 17).astype(np.int64)
    labels = LabelRows(indptr, np.arange(n_labels, dtype=np.int32), n_labels)
    return TrainingSet(to_rows(np.eye(16)), labels)


def test_a_flat_tree_takes_65536_labels_and_not_one_more() -> None:
    parameters = parse_parameters("huffman-tree", ["tree=flat", "dim=2", "epochs=1"])
    with pytest.raises(BadParameter, match="tree: expected flat for at most 65536 labels, found 65537"):
        train("huffman-tree", parameters, *many_labels(FLAT_MAX + 1))
    data = many_labels(FLAT_MAX)
    trained = train("huffman-tree", parameters, *data)
    assert len(trained.ensemble.directory) == 1
    predictor = make_predictor(trial_model(trained, FLAT_MAX, 16))
    row = SparseRows(data.rows.indptr[:2], data.rows.indices[:1], data.rows.values[:1], 16)
    every = np.arange(FLAT_MAX, dtype=np.int32)
    scores = predictor.score_labels(row, np.array([0, FLAT_MAX]), every).scores.astype(np.float64)
    assert abs(scores.sum() - 1) < 1e-5
    found = predictor.predict(row, PredictOptions(top_r=3, exact=True))
    assert found.scores.tolist() == np.sort(scores)[::-1][:3].tolist()


def test_parameters_that_memory_cannot_hold_are_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_training, "memory_bytes", lambda: 1 << 20)
    rows = SparseRows(np.arange(4), np.arange(3, dtype=np.int32), np.ones(3, np.float32), 1 << 20)
    labels = to_labels(np.eye(3) > 0)
    for name in ("huffman-tree", "learned-tree"):
        with pytest.raises(BadParameter, match=r"dim: expected embeddings of 1048576 words .*1 MiB.*found"):
            train(name, parse_parameters(name, []), rows, labels)
