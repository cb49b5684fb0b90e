"""The tail of vectors is summed without look-ups, with the bits of features that are looked up."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.real_texts import TEXTS as REAL_TEXTS
from tests.helpers.vectors import vectors_of

from xylem.base.rows import Dataset, LabelRows, SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import fit_featurizer
from xylem.engine.features.vectors import VectorParameters
from xylem.engine.kernels.search import workspace
from xylem.engine.options import PredictOptions
from xylem.engine.predictor import Predictor
from xylem.trainers.registry import parse_parameters, train
from xylem.workflows.choose_features import trial_model
from xylem_store.build import store_weights
from xylem_store.extras import dense_tail
from xylem_store.version import Model

TEXTS = REAL_TEXTS[:300]
N_LABELS = 120
DIMS = 37
TRAINERS = [
    ("label-tree", ("leaf_size=20", "arity=4")),
    ("label-tree", ("trees=2", "leaf_size=9")),
    ("label-tree", ("leaf_size=60",)),
    ("label-tree", ("loss=logistic", "leaf_size=20")),
    ("ovr", ()),
    ("plt", ()),
]


def labels_of(texts: list[str]) -> LabelRows:
    """Return two labels for each text, which its words tell."""
    pairs = [sorted({len(t) % N_LABELS, sum(map(ord, t[:4])) % N_LABELS}) for t in texts]
    ptr = np.cumsum([0, *map(len, pairs)])
    return LabelRows(ptr, np.array([i for pair in pairs for i in pair], np.int32), N_LABELS)


@pytest.fixture(scope="module")
def rows() -> SparseRows:
    labels = labels_of(TEXTS)
    unknown = np.zeros(len(TEXTS), np.int32)
    vectors = vectors_of(TEXTS, 50)
    data = Dataset("texts", "", len(TEXTS), labels, unknown, texts=TEXTS, vectors=vectors)
    chosen = VectorParameters(dims=DIMS)
    return fit_featurizer(data, parameters_of({"kind": "tfidf"}), vectors=chosen)[1]


def model_of(
    rows: SparseRows, trainer: str, parameters: tuple[str, ...], threads: int = 1
) -> Model:
    chosen = parse_parameters(trainer, parameters)
    trained = train(trainer, chosen, rows, labels_of(TEXTS), 0, threads)
    return trial_model(trained, N_LABELS, rows.n_features, trainer)


@pytest.fixture(
    scope="module", params=TRAINERS, ids=lambda chosen: "-".join([chosen[0], *chosen[1]])
)
def model(request: pytest.FixtureRequest, rows: SparseRows) -> Model:
    return model_of(rows, *request.param)


OPTIONS = [
    PredictOptions(top_r=5),
    PredictOptions(top_r=5, beam_width=2, costs=True),
    PredictOptions(top_r=5, exact=True),
    PredictOptions(top_r=N_LABELS, threshold=0.2),
]


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
def test_the_bits_are_those_of_looked_up_features(
    model: Model, rows: SparseRows, weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = store_weights(model.ensemble, weights)
    stored = replace(model, ensemble=ensemble)
    end, size = dense_tail(ensemble)  # of plt, which prunes nothing, some words may be in it too
    assert end == rows.n_features and size >= DIMS
    fast = make_predictor(stored)
    monkeypatch.setattr(workspace, "dense_tail", lambda _: (0, 0))
    slow = make_predictor(stored)
    assert isinstance(fast, Predictor) and isinstance(slow, Predictor)
    words = rows.cut(0, 3).without_tail()._replace(n_features=rows.n_features)
    part = rows.cut(3, 4)
    short = SparseRows(np.array([0, 7]), part.indices[-7:], part.values[-7:], rows.n_features)
    mixed = SparseRows.join([rows, words, short, rows])  # rows are added in pairs if of one length
    for some in (rows, rows.cut(5, 6), rows.cut(0, 9), words, short, mixed):
        for options in OPTIONS:
            ours, theirs = fast.predict(some, options, 2), slow.predict(some, options, 2)
            for array, expected in zip(ours, theirs, strict=True):
                assert array.tobytes() == expected.tobytes()
    label = int(ours.labels[0]) if len(ours.labels) else 0
    assert fast.explain(rows, 7, label) == slow.explain(rows, 7, label)


def test_words_alone_have_no_tail(rows: SparseRows) -> None:
    words = rows.without_tail()
    assert words.n_features == rows.n_features - DIMS and words.tail == 0
    assert dense_tail(model_of(words, "label-tree", ("leaf_size=9",)).ensemble) == (0, 0)


def test_a_flat_model_scores_as_one_of_looked_up_features(rows: SparseRows) -> None:
    exact = "eps=0.0001", "prune=0", "idf=no"
    scores = []
    for tail in (rows.tail, 0):
        predictor = make_predictor(model_of(rows._replace(tail=tail), "ovr", exact))
        options = PredictOptions(top_r=N_LABELS, exact=True)
        predictions = predictor.predict(rows, options)
        order = np.lexsort(
            (predictions.labels, np.repeat(np.arange(len(TEXTS)), np.diff(predictions.ptr)))
        )
        scores.append(predictions.scores[order])
    np.testing.assert_allclose(*scores, atol=2e-3)


@pytest.mark.parametrize(("trainer", "parameters"), TRAINERS)
def test_threads_change_no_bit(rows: SparseRows, trainer: str, parameters: tuple[str, ...]) -> None:
    ensembles = [model_of(rows, trainer, parameters, threads).ensemble for threads in (1, 3)]
    for array, other in zip(*ensembles, strict=True):
        assert array.tobytes() == other.tobytes()
