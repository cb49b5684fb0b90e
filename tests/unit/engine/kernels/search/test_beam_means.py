"""Ensembles leave out nodes that cannot change an answer, and answer with the same bits."""

import numpy as np
import pytest
from tests.helpers.answers import assert_same
from tests.helpers.small_models import small_draft

from xylem.base.rows import SparseRows
from xylem.engine.options import PredictOptions
from xylem.engine.predictor import Predictor
from xylem_store.version import model_of

N_FEATURES = 400
N_LABELS = 300
N_ROWS = 60


def rows_of_many_features() -> SparseRows:
    rng = np.random.default_rng(5)
    sizes = rng.integers(150, 250, N_ROWS)
    indices = [np.sort(rng.choice(N_FEATURES, size, replace=False)) for size in sizes]
    values = rng.standard_normal(sizes.sum()).astype(np.float32) / 8
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return SparseRows(indptr, np.concatenate(indices).astype(np.int32), values, N_FEATURES)


@pytest.mark.parametrize("n_trees", [2, 3, 4])
@pytest.mark.parametrize("top_r", [1, 4, 10])
def test_nodes_that_are_left_out_change_no_bit(n_trees: int, top_r: int) -> None:
    shape = {"n_labels": N_LABELS, "n_features": N_FEATURES, "arity": 6, "share": 0.1}
    predictor = Predictor(model_of(small_draft(3, n_trees=n_trees, **shape)))
    rows = rows_of_many_features()
    options = PredictOptions(top_r=top_r, beam_width=12, costs=True)
    answers = predictor.predict(rows, options)
    # with weights every node is scored, and weights of 1 change no score
    weights = predictor.node_weights(np.ones(N_LABELS, np.float32))
    expected = predictor.predict(rows, options._replace(weights=weights))
    assert_same(answers._replace(costs=expected.costs), expected)
    assert (answers.costs[:, 0] <= expected.costs[:, 0]).all()
    assert answers.costs[:, 0].sum() < expected.costs[:, 0].sum()
    for row in range(0, N_ROWS, 7):
        alone = predictor.predict(rows.cut(row, row + 1), options)
        np.testing.assert_array_equal(
            alone.scores, answers.scores[slice(*answers.ptr[row : row + 2])]
        )
        np.testing.assert_array_equal(
            alone.labels, answers.labels[slice(*answers.ptr[row : row + 2])]
        )
