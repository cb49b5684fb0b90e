"""Trees of softmax nodes that get new labels: what they learn, what stays to the bit, and who has none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_store.build import store_weights
from model_store.decoding import chunk_of, trees_of
from model_store.ensemble import TreeEnsemble, Weights
from model_store.version import Model
from service.base.errors import BadParameter
from service.base.rows import NO_ROWS, LabelRows, SparseRows, offsets
from service.executors.local import Crew
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import TRAINERS, Trained, TrainingSet, parse_parameters, train
from service.trainers.shape import shape_of
from service.trainers.source import Tools
from service.workflows.choose_features import trial_model
from tests.oracles.label_trees import labels_below

N_LABELS, N_NEW, N_ROWS, N_WORDS, OF_A_LABEL = 30, 4, 900, 60, 4
VARIANTS = {
    "huffman": ("huffman-tree", ["arity=4", "dim=12", "epochs=40"]),
    "binary": ("huffman-tree", ["arity=2", "dim=12", "epochs=40"]),
    "flat": ("huffman-tree", ["tree=flat", "dim=12", "epochs=40"]),
    "adagrad": ("huffman-tree", ["optimiser=adagrad", "arity=4", "pooling=sum", "dim=12", "epochs=40"]),
    "learned": ("learned-tree", ["arity=4", "dim=12", "epochs=40", "alone=0.5"]),
}


def _data(seed: int = 0) -> TrainingSet:
    """Rows of one label each, with most of its words; each word is one of several labels."""
    random = np.random.default_rng(seed)
    words = np.array([random.choice(N_WORDS, OF_A_LABEL + 1, replace=False) for _ in range(N_LABELS)])
    labels = random.integers(0, N_LABELS, N_ROWS).astype(np.int32)
    own = [random.choice(words[label], OF_A_LABEL, replace=False) for label in labels]
    indices = np.sort(own, axis=1).astype(np.int32).reshape(-1)
    ptr = np.arange(N_ROWS + 1)
    rows = SparseRows(ptr * OF_A_LABEL, indices, np.full(len(indices), 0.5, np.float32), N_WORDS)
    return TrainingSet(rows, LabelRows(ptr, labels, N_LABELS))


def _without_new(data: TrainingSet) -> TrainingSet:
    stays = data.labels.indices < N_LABELS - N_NEW
    return TrainingSet(data.rows, LabelRows(offsets(stays), data.labels.indices[stays], N_LABELS - N_NEW))


def _model(variant: str, seed: int = 0) -> tuple[TrainingSet, Trained, Model, Any]:
    """All rows, a training without the last labels, its model, and how that grows."""
    (name, items), data = VARIANTS[variant], _data(seed)
    parameters, old = parse_parameters(name, items), _without_new(data)
    trained = train(name, parameters, *old)
    grows: Any = TRAINERS[name].growth
    model = trial_model(trained, N_LABELS - N_NEW, data.rows.n_features)
    return data, trained, model, grows(parameters, data.rows)


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_new_labels_are_found_and_nodes_that_are_not_above_them_stay_to_the_bit(variant: str) -> None:
    data, trained, model, growth = _model(variant)
    grown = growth.extend(model, data, Tools(0))
    extended = trial_model(replace(trained, ensemble=grown.ensemble), N_LABELS, data.rows.n_features)
    found = make_predictor(extended).predict(data.rows, PredictOptions(top_r=N_LABELS, beam_width=N_LABELS))
    best = found.labels[found.ptr[:-1]] == data.labels.indices
    is_new = data.labels.indices >= N_LABELS - N_NEW
    assert best[is_new].mean() > 0.5 and best[~is_new].mean() > 0.85
    sums = np.add.reduceat(found.scores.astype(np.float64), found.ptr[:-1])
    assert np.diff(found.ptr).tolist() == [N_LABELS] * N_ROWS
    np.testing.assert_allclose(sums, 1.0, atol=1e-5)
    new = frozenset(range(N_LABELS - N_NEW, N_LABELS))
    before, after = _nodes(model.ensemble), _nodes(grown.ensemble)
    stayed = {labels: node for labels, node in after.items() if not labels & new}
    assert stayed == {labels: before[labels] for labels in stayed}
    assert len(stayed) or variant == "flat"
    assert growth.extend(model, data, Tools(0, Crew(2))).ensemble.dense.tobytes() == (
        grown.ensemble.dense.tobytes()
    )


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_weights_of_fewer_bits_stay_to_the_bit(weights: Weights) -> None:
    data, _, model, growth = _model("huffman", 1)
    stored = store_weights(model.ensemble, weights)
    model = replace(model, ensemble=stored, manifest=replace(model.manifest, weights=weights))
    grown = growth.extend(model, data, Tools(0)).ensemble
    assert grown.dense.dtype == stored.dense.dtype
    new = frozenset(range(N_LABELS - N_NEW, N_LABELS))
    before, after = _nodes(stored), _nodes(grown)
    stayed = {labels: node for labels, node in after.items() if not labels & new}
    assert stayed and stayed == {labels: before[labels] for labels in stayed}


def test_many_labels_beside_one_get_nodes_of_their_own() -> None:
    data, _, model, growth = _model("binary", 2)
    many = np.where(data.labels.indices == 0, N_LABELS + np.arange(N_ROWS) % 20, data.labels.indices)
    divided = data.labels._replace(indices=many.astype(np.int32), n_labels=N_LABELS + 20)
    old = data._replace(labels=data.labels._replace(n_labels=N_LABELS + 20))
    both = TrainingSet.join([old, data._replace(labels=divided)])
    grown = growth.extend(model, both, Tools(0))
    carried = np.unique(both.labels.indices)
    assert (grown.ensemble.label_leaf[0, carried] >= 0).all()
    (tree,) = trees_of(grown.ensemble)
    assert np.diff(tree.child_ptr).max() == 2 and grown.divided > 0


def test_trees_of_words_get_no_labels() -> None:
    grows: Any = TRAINERS["huffman-tree"].growth
    with pytest.raises(BadParameter, match="task: expected labels, found text"):
        grows(parse_parameters("huffman-tree", ["task=text"]), NO_ROWS)
