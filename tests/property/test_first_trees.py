"""The first trees of an ensemble are what building just them gives, bit for bit, and answer as oracles do."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.build import build_ensemble
from model_store.checks import check_version
from model_store.ensemble import TreeEnsemble
from model_store.version import Model, first_trees, manifest_of, take_first_trees
from service.base.rows import SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from tests.oracles.routing import random_decision_forest, reranked_scores, routed_scores, whole_rows
from tests.oracles.trees import label_probabilities, random_forest, random_rows, row_dicts
from tests.small_models import random_rerank, small_draft

N_ROWS = 4
forests = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "n_trees": st.integers(1, 4),
        "n_labels": st.integers(1, 40),
        "n_features": st.sampled_from([1, 33, 70, 1100]),
        "arity": st.sampled_from([2, 5, 20]),
    }
)
MAKERS = {"label-tree": random_forest, "decision-tree": random_decision_forest}


def in_memory(ensemble: TreeEnsemble, forest: dict[str, int], kind: str, **changes: Any) -> Model:
    """A model of this ensemble, its manifest and arrays checked."""
    shape = {name: forest[name] for name in ("n_labels", "n_features")}
    draft = small_draft(kind=kind, **shape, **changes)
    draft = dataclasses.replace(draft, ensemble=ensemble)
    return Model(manifest_of(draft), ensemble, draft.labels, draft.arrays())


def scores_of(model: Model, rows: tuple[Any, ...]) -> list[dict[int, float]]:
    """{label: score} of each row, of all labels that are answered."""
    taken = SparseRows(*rows, model.manifest.n_features)
    options = PredictOptions(top_r=model.manifest.n_labels, exact=True)
    found = make_predictor(model).predict(taken, options)
    return [
        dict(zip(found.labels[a:b].tolist(), found.scores[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(found.ptr.tolist())
    ]


@settings(max_examples=80)
@given(forests, st.sampled_from(sorted(MAKERS)), st.sampled_from(["float32", "bfloat16", "int8"]), st.data())
def test_they_have_the_bits_of_what_is_built_of_them_alone(forest, kind, weights, data):
    trees, ensemble = MAKERS[kind](**forest, weights=weights)
    n_trees = data.draw(st.integers(1, forest["n_trees"]))
    expected = build_ensemble(trees[:n_trees], forest["n_labels"], forest["n_features"], weights)
    found = take_first_trees(ensemble, n_trees)
    for name, array in expected._asdict().items():
        taken = getattr(found, name)
        assert (taken.dtype, taken.shape) == (array.dtype, array.shape), name
        assert taken.tobytes() == array.tobytes(), name
        assert taken.flags.c_contiguous, name


@settings(max_examples=30)
@given(forests)
def test_one_label_tree_answers_as_the_oracle_over_it(forest):
    trees, ensemble = random_forest(**forest)
    model = first_trees(in_memory(ensemble, forest, "label-tree"), 1)
    check_version(model.manifest, model.arrays)
    rows = random_rows(forest["seed"], N_ROWS, forest["n_features"])
    for answer, row in zip(scores_of(model, rows), row_dicts(rows), strict=True):
        expected = label_probabilities(trees[:1], "hinge2", row, forest["n_labels"])
        np.testing.assert_allclose(list(answer.values()), expected[list(answer)], rtol=2e-3, atol=1e-6)
        assert set(np.flatnonzero(expected > 1e-6)) <= set(answer)


@settings(max_examples=30)
@given(forests, st.booleans(), st.data())
def test_the_first_decision_trees_answer_as_the_oracle_over_them(forest, is_reranked, data):
    trees, ensemble = random_decision_forest(**forest)
    extra = (
        random_rerank(forest["seed"], forest["n_labels"], forest["n_features"], 1.0) if is_reranked else {}
    )
    n_trees = data.draw(st.integers(1, forest["n_trees"]))
    model = first_trees(in_memory(ensemble, forest, "decision-tree", extra=extra), n_trees)
    check_version(model.manifest, model.arrays)
    rows = whole_rows(forest["seed"], N_ROWS, forest["n_features"])
    for answer, row in zip(scores_of(model, rows), row_dicts(rows), strict=True):
        expected = routed_scores(trees[:n_trees], "multiway", row, forest["n_labels"])
        if is_reranked:
            expected = reranked_scores(expected, extra, row)
        assert sorted(answer) == np.flatnonzero(expected).tolist()
        np.testing.assert_allclose(list(answer.values()), expected[list(answer)], rtol=1e-3, atol=1e-6)


@settings(max_examples=20)
@given(forests, st.sampled_from(sorted(MAKERS)))
def test_all_trees_answer_with_the_bits_of_the_whole(forest, kind):
    _, ensemble = MAKERS[kind](**forest)
    model = in_memory(ensemble, forest, kind)
    copy = dataclasses.replace(model, ensemble=take_first_trees(ensemble, forest["n_trees"]))
    rows = random_rows(forest["seed"], N_ROWS, forest["n_features"])
    assert scores_of(copy, rows) == scores_of(model, rows)
    assert first_trees(model, forest["n_trees"]) is model


@pytest.mark.parametrize("n_trees", [-1, 0, 3])
def test_trees_that_are_not_there_are_refused(n_trees):
    forest = {"seed": 1, "n_trees": 2, "n_labels": 5, "n_features": 33, "arity": 2}
    model = in_memory(random_forest(**forest)[1], forest, "label-tree")
    with pytest.raises(ValueError, match=f"expected 1 to 2 trees, found {n_trees}"):
        first_trees(model, n_trees)
