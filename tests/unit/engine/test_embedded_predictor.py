"""Models with an embedding: exact probabilities, searched, scored and explained."""

from typing import Any

import numpy as np
import pytest
from tests.helpers.answers import dense_scores, each_row, empty_rows, row_with
from tests.helpers.small_models import random_tree, small_draft, softmax_draft
from tests.oracles.trees import row_dicts

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import CombinedPredictor, make_predictor
from xylem.engine.embedded_predictor import EmbeddedPredictor
from xylem.engine.predictor import PredictOptions
from xylem_store.build import build_ensemble
from xylem_store.extras import assemble_embedding
from xylem_store.version import Model, model_of

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


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> Model:
    return model_of(softmax_draft(5, **KINDS[request.param]))


@pytest.fixture
def predictor(model: Model) -> EmbeddedPredictor:
    return make_predictor(model)


def rows_of(n_features: int, n_rows: int = 40) -> SparseRows:
    rng = np.random.default_rng(2)
    rows = [
        np.sort(rng.choice(n_features, rng.integers(0, 6), replace=False)) for _ in range(n_rows)
    ]
    indices = np.concatenate(rows).astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    return SparseRows(np.cumsum([0, *map(len, rows)]), indices, values, n_features)


@pytest.fixture
def rows(model: Model) -> SparseRows:
    return rows_of(model.manifest.n_features)


def as_float(array: np.ndarray) -> np.ndarray:
    """Return bfloat16, which numpy does not have, as float32."""
    is_half = array.dtype == np.uint16
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32) if is_half else array


def slow_dense(model: Model, rows: SparseRows) -> np.ndarray:
    u, r, mean = assemble_embedding(model.manifest.n_features, model.arrays)
    u = as_float(u)
    found = np.zeros((rows.n_rows, u.shape[1]))
    for row, values in zip(found, row_dicts(rows[:3]), strict=True):
        for feature, value in values.items():
            word, place = u[feature % len(u)], feature // len(u)
            turned = word if r.shape[1] == 0 else r[place, 0] * word
            row += value * (r[place] @ word if r.shape[1] > 1 else turned)
        total = sum(map(abs, values.values()))
        if mean[0] and total:
            row /= total
    return found


def slow_scores(model: Model, r: np.ndarray) -> np.ndarray:
    """The probability of every label for one dense row, from the stored arrays."""
    e = model.ensemble
    p = np.ones(len(e.parent))
    for node in range(len(e.parent)):
        chunk = e.node_chunk[node]
        if chunk < 0:
            continue
        first, last = e.child_ptr[node], e.child_ptr[node + 1]
        weights = as_float(e.dense)[e.dense_ptr[chunk] : e.dense_ptr[chunk + 1]].reshape(len(r), -1)
        margins = r @ weights[:, : last - first].astype(float)
        if len(e.node_scale):
            margins *= e.node_scale[first:last]
        margins += e.node_bias[first:last]
        exp = np.exp(margins - margins.max())
        p[first:last] = p[node] * exp / exp.sum()
    return p[e.label_leaf[0]]


def test_searches_and_scores_are_the_probabilities_of_the_arrays(
    model: Any, predictor: CombinedPredictor, rows: Any
) -> None:
    predictor.warm_up()
    n_labels = model.manifest.n_labels
    found = predictor.predict(rows, PredictOptions(top_r=n_labels, exact=True))
    every = np.tile(np.arange(n_labels, dtype=np.int32), rows.n_rows)
    scored = predictor.score_labels(rows, np.arange(rows.n_rows + 1) * n_labels, every)
    by_row = scored.scores.reshape(rows.n_rows, n_labels)
    np.testing.assert_allclose(by_row.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(scored.logs), scored.scores, rtol=1e-5)
    assert dense_scores(found, n_labels).tobytes() == by_row.tobytes()
    assert all(sorted(labels) == [*range(n_labels)] for labels, _ in each_row(found))
    for scores, dense in zip(by_row, slow_dense(model, rows), strict=True):
        np.testing.assert_allclose(scores, slow_scores(model, dense), rtol=2e-3, atol=1e-6)


def test_a_row_has_the_same_answer_in_any_batch_or_wide_beam(
    predictor: CombinedPredictor, rows: Any
) -> None:
    exact = predictor.predict(rows, PredictOptions(top_r=3, exact=True))
    for threads in (1, 2):
        beam = predictor.predict(rows, PredictOptions(top_r=3, beam_width=1000), threads)
        assert beam.labels.tolist() == exact.labels.tolist()
        assert beam.scores.tobytes() == exact.scores.tobytes()
    for row, (_, scores) in enumerate(each_row(exact)):
        if row % 7 == 0:
            alone = predictor.predict(rows.cut(row, row + 1), PredictOptions(top_r=3, exact=True))
            assert alone.scores.tobytes() == scores.tobytes()


def test_an_explanation_ends_with_the_score_and_names_features(
    model: Any, predictor: CombinedPredictor, rows: Any
) -> None:
    row = int(np.argmax(np.diff(rows.indptr)))
    alone = rows.cut(row, row + 1)
    best = predictor.predict(alone, PredictOptions(top_r=1, exact=True))
    (path,) = predictor.explain(rows, row, int(best.labels[0])).trees
    assert path[-1].score == best.scores[0]
    for node in path:
        assert {share.feature for share in node.features} <= set(alone.indices.tolist())
    assert any(node.features for node in path) or model.manifest.n_labels == 1


def test_rows_to_search_are_dense_where_they_are_chosen(
    model: Any, predictor: CombinedPredictor, rows: Any
) -> None:
    chosen = np.array([3, 4, 9])
    found = predictor.rows_to_search(rows, chosen)
    assert found.n_rows == rows.n_rows
    for row, slow in enumerate(slow_dense(model, rows)):
        values = found.cut(row, row + 1).values
        np.testing.assert_allclose(values, slow if row in chosen else [], rtol=1e-5, atol=1e-5)


def test_chunks_of_the_first_features_are_read_for_these_only() -> None:
    """A model of 40 features of which no node uses more than the first 20, of rows
    with 20 others.
    """
    tree = random_tree(np.random.default_rng(1), 9, 20, 3, 1.0, is_label_tree=True)
    ensemble = build_ensemble([tree], 9, 40)
    draft = small_draft(1, n_labels=9, n_features=40, link="logistic", ensemble=ensemble)
    predictor = make_predictor(model_of(draft))
    nothing, others, firsts = (
        predictor.predict(rows, PredictOptions(top_r=9, exact=True)).scores.tolist()
        for rows in (
            empty_rows(1, 40),
            row_with(np.arange(20, 40), 40),
            row_with(np.arange(20), 40),
        )
    )
    assert nothing == others != firsts


@pytest.mark.parametrize(
    "changes",
    [{}, {"n_trees": 1}, {"kind": "decision-tree"}, {"link": "logistic", "weights": "int8"}],
)
def test_scores_of_other_models_are_those_of_their_searches(changes: dict[str, Any]) -> None:
    model = model_of(small_draft(3, **changes))
    predictor, rows, n_labels = make_predictor(model), rows_of(70, 10), model.manifest.n_labels
    found = predictor.predict(rows, PredictOptions(top_r=n_labels, exact=True))
    named = np.tile(np.arange(n_labels, dtype=np.int32)[::-1], rows.n_rows)
    scored = predictor.score_labels(rows, np.arange(rows.n_rows + 1) * n_labels, named)
    np.testing.assert_array_equal(
        scored.scores.reshape(rows.n_rows, n_labels)[:, ::-1], dense_scores(found, n_labels)
    )
