"""Models with an embedding: exact probabilities, searched, scored and explained."""

from typing import Any

import numpy as np
import pytest

from model_store.build import build_ensemble
from model_store.extras import assemble_embedding
from model_store.version import Model, model_of
from service.base.rows import SparseRows
from service.inference.predictor import EmbeddedPredictor, PredictOptions
from service.inference.predictors import make_predictor
from tests.small_models import random_tree, small_draft, softmax_draft

KINDS: dict[str, dict[str, Any]] = {
    "bag": {},
    "int8": {"weights": "int8"},
    "bfloat16": {"weights": "bfloat16", "n_labels": 40, "arity": 17},
    "window": {"n_places": 2, "n_turned": 1},
    "matrices": {"n_places": 2, "n_turned": 6, "dim": 6},
    "half": {"weights": "int8", "is_half": True},
    "half matrices": {"n_places": 2, "n_turned": 6, "dim": 6, "is_half": True},
    "one label": {"n_labels": 1},
    "wide": {"dim": 40, "arity": 20, "n_labels": 19},
}


def softmax_model(**changes: Any) -> Model:
    draft = softmax_draft(5, **changes)
    return model_of(draft)


def rows_of(n_features: int, n_rows: int = 40) -> SparseRows:
    rng = np.random.default_rng(2)
    rows = [np.sort(rng.choice(n_features, rng.integers(0, 6), replace=False)) for _ in range(n_rows)]
    indices = np.concatenate(rows).astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    return SparseRows(np.cumsum([0, *map(len, rows)]), indices, values, n_features)


def slow_dense(model: Model, rows: SparseRows) -> np.ndarray:
    u, r, mean = assemble_embedding(model.manifest.n_features, model.arrays)
    if u.dtype == np.uint16:
        u = (u.astype(np.uint32) << np.uint32(16)).view(np.float32)
    found = np.zeros((rows.n_rows, u.shape[1]))
    for row in range(rows.n_rows):
        cut = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
        for feature, value in zip(rows.indices[cut].tolist(), rows.values[cut].tolist(), strict=True):
            word, place = feature % len(u), feature // len(u)
            turned = u[word] if r.shape[1] == 0 else r[place, 0] * u[word]
            found[row] += value * (r[place] @ u[word] if r.shape[1] > 1 else turned)
        total = np.abs(rows.values[cut]).sum()
        if mean[0] and total:
            found[row] /= total
    return found


def slow_scores(model: Model, r: np.ndarray) -> np.ndarray:
    """The probability of every label for one dense row, from the stored arrays."""
    e = model.ensemble
    dense = e.dense
    if dense.dtype == np.uint16:
        dense = (dense.astype(np.uint32) << np.uint32(16)).view(np.float32)
    p = np.ones(len(e.parent))
    for node in range(len(e.parent)):
        chunk = e.node_chunk[node]
        if chunk < 0:
            continue
        first, last = e.child_ptr[node], e.child_ptr[node + 1]
        weights = dense[e.dense_ptr[chunk] : e.dense_ptr[chunk + 1]].reshape(len(r), -1)[:, : last - first]
        margins = r @ weights.astype(float)
        if len(e.node_scale):
            margins *= e.node_scale[first:last]
        margins += e.node_bias[first:last]
        exp = np.exp(margins - margins.max())
        p[first:last] = p[node] * exp / exp.sum()
    return p[e.label_leaf[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_searches_and_scores_are_the_probabilities_of_the_arrays(kind: str) -> None:
    model = softmax_model(**KINDS[kind])
    predictor = make_predictor(model)
    assert isinstance(predictor, EmbeddedPredictor)
    predictor.warm_up()
    rows, n_labels = rows_of(model.manifest.n_features), model.manifest.n_labels
    found = predictor.predict(rows, PredictOptions(top_r=n_labels, exact=True))
    every = np.tile(np.arange(n_labels, dtype=np.int32), rows.n_rows)
    scored = predictor.score_labels(rows, np.arange(rows.n_rows + 1) * n_labels, every)
    by_row = scored.scores.reshape(rows.n_rows, n_labels)
    np.testing.assert_allclose(by_row.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(scored.logs), scored.scores, rtol=1e-5)
    for row, dense in enumerate(slow_dense(model, rows)):
        cut = slice(int(found.ptr[row]), int(found.ptr[row + 1]))
        assert found.scores[cut].tobytes() == by_row[row, found.labels[cut]].tobytes()
        np.testing.assert_allclose(by_row[row], slow_scores(model, dense), rtol=2e-3, atol=1e-6)
        np.testing.assert_array_equal(np.sort(found.labels[cut]), np.arange(n_labels))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_answer_in_any_batch_and_under_a_wide_beam(kind: str) -> None:
    model = softmax_model(**KINDS[kind])
    predictor = make_predictor(model)
    rows = rows_of(model.manifest.n_features)
    exact = predictor.predict(rows, PredictOptions(top_r=3, exact=True))
    for threads in (1, 2):
        beam = predictor.predict(rows, PredictOptions(top_r=3, beam_width=1000), threads)
        assert beam.labels.tolist() == exact.labels.tolist()
        assert beam.scores.tobytes() == exact.scores.tobytes()
    for row in range(0, rows.n_rows, 7):
        cut = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
        one = SparseRows(
            np.array([0, cut.stop - cut.start]), rows.indices[cut], rows.values[cut], rows.n_features
        )
        alone = predictor.predict(one, PredictOptions(top_r=3, exact=True))
        assert alone.scores.tobytes() == exact.scores[exact.ptr[row] : exact.ptr[row + 1]].tobytes()


def test_features_of_an_explanation_add_up_to_the_margin_over_its_siblings() -> None:
    for kind in ("bag", "int8", "bfloat16", "window", "matrices", "half"):
        model = softmax_model(**KINDS[kind])
        predictor = make_predictor(model)
        rows = rows_of(model.manifest.n_features)
        row = int(np.argmax(np.diff(rows.indptr)))
        best = predictor.predict(rows, PredictOptions(top_r=1, exact=True))
        label = int(best.labels[best.ptr[row]])
        (path,) = predictor.explain(rows, row, label).trees
        assert path[-1].score == best.scores[best.ptr[row]]
        features = rows.indices[rows.indptr[row] : rows.indptr[row + 1]].tolist()
        for node in path:
            assert {share.feature for share in node.features} <= set(features)
        assert any(node.features for node in path)


def test_chunks_that_are_full_of_the_first_features_only_are_not_read_for_others() -> None:
    """A model of 40 features of which no node uses more than the first 20, of rows with 20 others."""
    tree = random_tree(np.random.default_rng(1), 9, 20, 3, 1.0, is_label_tree=True)
    ensemble = build_ensemble([tree], 9, 40)
    draft = small_draft(1, n_labels=9, n_features=40, link="logistic", ensemble=ensemble)
    predictor = make_predictor(model_of(draft))
    nothing = SparseRows(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 40)
    others = SparseRows(np.array([0, 20]), np.arange(20, 40, dtype=np.int32), np.ones(20, np.float32), 40)
    firsts = others._replace(indices=np.arange(20, dtype=np.int32))
    found = [
        predictor.predict(rows, PredictOptions(top_r=9, exact=True)).scores.tolist()
        for rows in (nothing, others, firsts)
    ]
    assert found[0] == found[1] != found[2]


def test_rows_to_search_are_dense_where_they_are_chosen() -> None:
    model = softmax_model()
    predictor = make_predictor(model)
    rows = rows_of(model.manifest.n_features)
    chosen = np.array([3, 4, 9])
    found = predictor.rows_to_search(rows, chosen)
    slow = slow_dense(model, rows)
    assert found.n_rows == rows.n_rows
    for row in range(rows.n_rows):
        values = found.values[found.indptr[row] : found.indptr[row + 1]]
        expected = slow[row] if row in chosen else []
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_scores_of_other_models_are_those_of_their_searches() -> None:
    for changes in ({}, {"n_trees": 1}, {"kind": "decision-tree"}, {"link": "logistic", "weights": "int8"}):
        draft = small_draft(3, **changes)
        model = model_of(draft)
        predictor = make_predictor(model)
        rows, n_labels = rows_of(70, 10), draft.labels.n_names
        found = predictor.predict(rows, PredictOptions(top_r=n_labels, exact=True))
        named = np.tile(np.arange(n_labels, dtype=np.int32)[::-1], rows.n_rows)
        scored = predictor.score_labels(rows, np.arange(rows.n_rows + 1) * n_labels, named)
        slow = np.zeros((rows.n_rows, n_labels), np.float32)
        for row in range(rows.n_rows):
            cut = slice(int(found.ptr[row]), int(found.ptr[row + 1]))
            slow[row, found.labels[cut]] = found.scores[cut]
        np.testing.assert_array_equal(scored.scores.reshape(rows.n_rows, n_labels)[:, ::-1], slow)
