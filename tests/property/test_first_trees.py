"""The first trees of an ensemble are what building just them gives, bit
for bit, and answer as oracles do.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.forests import Forest, draw_forests, forest_of
from tests.helpers.small_models import random_rerank, small_draft
from tests.oracles.routing import reranked_scores
from tests.oracles.trees import row_dicts

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem_store.build import build_ensemble
from xylem_store.checks import check_version
from xylem_store.leading_trees import first_trees, take_first_trees
from xylem_store.version import Model, manifest_of

SHAPES = 4, 40, [1, 33, 70, 1100], [2, 5, 20]


def in_memory(forest: Forest, **changes: Any) -> Model:
    """A model of this forest, its manifest and arrays checked."""
    shape = {"n_labels": forest.n_labels, "n_features": forest.n_features}
    draft = small_draft(kind=forest.kind, **shape, ensemble=forest.ensemble, **changes)
    return Model(manifest_of(draft), forest.ensemble, draft.labels, draft.arrays())


def scores_of(model: Model, rows: tuple[Any, ...]) -> list[dict[int, float]]:
    """{label: score} of each row, of all labels that are answered."""
    options = PredictOptions(top_r=model.manifest.n_labels, exact=True)
    found = make_predictor(model).predict(SparseRows(*rows, model.manifest.n_features), options)
    return [
        dict(zip(found.labels[a:b].tolist(), found.scores[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(found.ptr.tolist())
    ]


@settings(max_examples=80)
@given(
    draw_forests(["decision-tree", "label-tree"], *SHAPES, ("float32", "bfloat16", "int8")),
    st.data(),
)
def test_they_have_the_bits_of_what_is_built_of_them_alone(forest: Any, data: Any) -> None:
    n_trees, weights = data.draw(st.integers(1, len(forest.trees))), forest.weights
    expected = build_ensemble(forest.trees[:n_trees], forest.n_labels, forest.n_features, weights)
    found = take_first_trees(forest.ensemble, n_trees)
    for name, array in expected._asdict().items():
        taken = getattr(found, name)
        assert (taken.dtype, taken.shape) == (array.dtype, array.shape), name
        assert taken.tobytes() == array.tobytes(), name
        assert taken.flags.c_contiguous, name


@settings(max_examples=30)
@given(draw_forests(["label-tree"], *SHAPES))
def test_one_label_tree_answers_as_the_oracle_over_it(forest: Any) -> None:
    model = first_trees(in_memory(forest), 1)
    check_version(model.manifest, model.arrays)
    answers = scores_of(model, forest.rows)
    for answer, expected in zip(answers, forest.expected("hinge2", 1), strict=True):
        np.testing.assert_allclose(
            list(answer.values()), expected[list(answer)], rtol=2e-3, atol=1e-6
        )
        assert set(np.flatnonzero(expected > 1e-6)) <= set(answer)


@settings(max_examples=30)
@given(draw_forests(["decision-tree"], *SHAPES), st.booleans(), st.data())
def test_the_first_decision_trees_answer_as_the_oracle_over_them(
    forest: Any, is_reranked: Any, data: Any
) -> None:
    extra = (
        random_rerank(forest.seed, forest.n_labels, forest.n_features, 1.0) if is_reranked else {}
    )
    n_trees = data.draw(st.integers(1, len(forest.trees)))
    model = first_trees(in_memory(forest, extra=extra), n_trees)
    check_version(model.manifest, model.arrays)
    answers, scores = scores_of(model, forest.rows), forest.expected("multiway", n_trees)
    for answer, expected, row in zip(answers, scores, row_dicts(forest.rows), strict=True):
        if is_reranked:
            expected = reranked_scores(expected, extra, row)
        assert sorted(answer) == np.flatnonzero(expected).tolist()
        np.testing.assert_allclose(
            list(answer.values()), expected[list(answer)], rtol=1e-3, atol=1e-6
        )


@pytest.mark.parametrize("n_trees", [-1, 0, 3])
def test_trees_that_are_not_there_are_refused(n_trees: int) -> None:
    model = in_memory(forest_of("label-tree", 1, n_trees=2, n_labels=5, n_features=33, arity=2))
    with pytest.raises(ValueError, match=f"expected 1 to 2 trees, found {n_trees}"):
        first_trees(model, n_trees)
    assert first_trees(model, 2) is model
