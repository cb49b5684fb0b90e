"""The predictor of decision trees: options, threads, buffers, explanations, and what it refuses."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.store import Store
from model_store.version import Model
from service.base.errors import Unavailable, UnknownLabel
from service.base.rows import SparseRows
from service.inference.answering import Predictions
from service.inference.explain import FEATURES_MAX
from service.inference.forest_predictor import ForestPredictor
from service.inference.predictor import PredictOptions, Predictor
from service.inference.predictors import make_predictor
from service.kernels.search.explain import depth_of, explain_route
from service.kernels.search.routing import reach_leaves, route_rows
from service.kernels.search.subtrees import set_logs
from tests.oracles.routing import random_decision_forest, routed_scores, whole_rows
from tests.small_models import random_rerank, small_draft

N_FEATURES = 70
N_LABELS = 40


def published(root: Path, link: str, seed: int = 4, **changes: Any) -> tuple[list[Any], Model]:
    trees, ensemble = random_decision_forest(
        seed, n_trees=3, n_labels=N_LABELS, n_features=N_FEATURES, arity=4
    )
    store = Store(root)
    shape = {"n_labels": N_LABELS, "n_features": N_FEATURES, "kind": "decision-tree", "link": link}
    store.publish("small", small_draft(**{**shape, "ensemble": ensemble, **changes}))
    return trees, store.open("small")


@pytest.fixture(scope="module", params=["multiway", "argmax", "re-ranked"])
def model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Model:
    extra = random_rerank(3, N_LABELS, N_FEATURES, 1.0) if request.param == "re-ranked" else {}
    link = "multiway" if extra else request.param
    return published(tmp_path_factory.mktemp("store"), link, extra=extra)[1]


@pytest.fixture(scope="module")
def predictor(model: Model) -> ForestPredictor:
    return ForestPredictor(model)


def some_rows(n_rows: int, seed: int = 1) -> SparseRows:
    return SparseRows(*whole_rows(seed, n_rows, N_FEATURES), N_FEATURES)


def same(a: Predictions, b: Predictions) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


OPTIONS = [PredictOptions(), PredictOptions(top_r=7, exact=True), PredictOptions(threshold=0.25, top_r=30)]


@pytest.mark.parametrize("options", OPTIONS)
def test_threads_and_batches_do_not_change_an_answer(predictor, options):
    rows = some_rows(157)
    expected = predictor.predict(rows, options)
    assert expected.exact.tolist() == [1] * 157
    assert len(expected.labels) > 100
    for threads in (1, 2, 5, 100):
        same(predictor.predict_batch(rows, options, threads), expected)
    for row, (first, last) in enumerate(itertools.pairwise(rows.indptr)):
        alone = SparseRows(
            np.array([0, last - first]), rows.indices[first:last], rows.values[first:last], N_FEATURES
        )
        found = predictor.predict(alone, options)
        own = slice(*expected.ptr[row : row + 2])
        np.testing.assert_array_equal(found.labels, expected.labels[own])
        np.testing.assert_array_equal(found.scores, expected.scores[own])


def test_callers_at_the_same_time_do_not_mix_their_answers(predictor):
    rows = some_rows(200, seed=9)
    expected = predictor.predict(rows, PredictOptions())
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: predictor.predict(rows, PredictOptions()), range(16)):
            same(answer, expected)


def test_no_rows_and_empty_rows_have_answers(predictor):
    nothing = np.empty(0, np.int32), np.empty(0, np.float32), N_FEATURES
    for options in OPTIONS:
        assert predictor.predict(SparseRows(np.zeros(1, np.int64), *nothing), options).ptr.tolist() == [0]
        assert len(predictor.predict(SparseRows(np.zeros(4, np.int64), *nothing), options).ptr) == 4


def test_rows_longer_than_any_before_get_larger_buffers(model):
    predictor = ForestPredictor(model)
    few = predictor.predict(some_rows(3), PredictOptions(top_r=1))
    predictor.predict(some_rows(3), PredictOptions(top_r=40))
    everything = np.arange(N_FEATURES, dtype=np.int32), np.ones(N_FEATURES, np.float32)
    predictor.predict(SparseRows(np.array([0, N_FEATURES]), *everything, N_FEATURES), PredictOptions())
    same(predictor.predict(some_rows(3), PredictOptions(top_r=1)), few)


def test_allowed_and_denied_labels(predictor):
    rows, options = some_rows(60), PredictOptions(top_r=40)
    everything = predictor.predict(rows, options)
    names = [f"label::{i}" for i in (3, 5, 8)]
    for mask, kept in (
        (predictor.label_mask(allow=names), np.isin(everything.labels, [3, 5, 8])),
        (predictor.label_mask(deny=names), ~np.isin(everything.labels, [3, 5, 8])),
        (predictor.label_mask(allow=names, deny=names[:1]), np.isin(everything.labels, [5, 8])),
        (predictor.label_mask(allow=[]), np.zeros(len(everything.labels), bool)),
    ):
        found = predictor.predict(rows, options._replace(mask=mask))
        np.testing.assert_array_equal(found.labels, everything.labels[kept])
        np.testing.assert_array_equal(found.scores, everything.scores[kept])
    assert predictor.label_mask() is None
    with pytest.raises(UnknownLabel, match="deny_labels: expected labels of the model, found 'nobody'"):
        predictor.label_mask(deny=["label::1", "nobody"])


def test_a_threshold_for_each_label_that_may_move(predictor):
    rows = some_rows(20)
    everything = predictor.predict(rows, PredictOptions(top_r=40))
    thresholds = np.linspace(0.0, 0.5, N_LABELS).astype(np.float32)
    prepared = predictor.node_thresholds(thresholds)
    for moved in ([], [3, 7, 39]):
        thresholds[moved] = 0.01
        predictor.move_thresholds(prepared, np.array(moved, np.int32), thresholds)
        found = predictor.predict(rows, PredictOptions(top_r=40, threshold=prepared))
        kept = everything.scores >= thresholds[everything.labels]
        np.testing.assert_array_equal(found.labels, everything.labels[kept])
        assert 0 < kept.sum() < len(kept)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n_rows", [1, 50])
def test_a_stop_ends_its_own_call_only(model, options, n_rows):
    predictor = ForestPredictor(model)
    rows, stop = some_rows(n_rows), np.zeros(1, np.uint8)
    expected = predictor.predict(rows, options)
    same(predictor.predict(rows, options._replace(stop=stop)), expected)
    stop[0] = 1
    stopped = predictor.predict(rows, options._replace(stop=stop))
    assert len(stopped.labels) == 0
    assert stopped.exact.tolist() == [0] * n_rows
    same(predictor.predict(rows, options), expected)


def test_read_only_rows_are_answered_too(predictor):
    rows = some_rows(5)
    expected = predictor.predict(rows, PredictOptions())
    for array in rows[:3]:
        array.setflags(write=False)
    same(predictor.predict(rows, PredictOptions()), expected)


@pytest.mark.parametrize("link", ["multiway", "argmax"])
def test_explanations_add_up_to_the_score(link, tmp_path):
    trees, model = published(tmp_path, link)
    predictor, rows = ForestPredictor(model), some_rows(12)
    found = predictor.predict(rows, PredictOptions(top_r=40))
    n_features_told = 0
    for row, (first, last) in enumerate(itertools.pairwise(found.ptr)):
        own = slice(*rows.indptr[row : row + 2])
        values = dict(zip(rows.indices[own].tolist(), rows.values[own].tolist(), strict=True))
        expected = routed_scores(trees, link, values, N_LABELS)
        for label in found.labels[first:last].tolist():
            leaves = predictor.explain(rows, row, label).leaves
            assert sum(leaf.value * leaf.weight for leaf in leaves) == pytest.approx(expected[label])
            for leaf in leaves:
                assert len(leaf.path) == depth_of(model.ensemble.parent, leaf.leaf)
                assert [node.node for node in leaf.path][-1:] in ([leaf.leaf], [])
                for node in leaf.path:
                    shares = [abs(share.contribution) for share in node.features]
                    assert shares == sorted(shares, reverse=True)
                    assert {share.feature for share in node.features} <= set(values)
                    if len(values) <= FEATURES_MAX:  # then all are told, and whole numbers add up
                        bias = model.ensemble.node_bias[node.node]
                        assert node.margin == bias + sum(share.contribution for share in node.features)
                        n_features_told += len(node.features)
    absent = int(np.flatnonzero(routed_scores(trees, link, {}, N_LABELS) == 0)[0])
    assert predictor.explain(SparseRows(np.zeros(2, np.int64), *rows[1:]), 0, absent).leaves == []


def test_after_the_warm_up_nothing_is_compiled(model):
    kernels = (route_rows, reach_leaves, explain_route, depth_of, set_logs)
    predictor = ForestPredictor(model)
    predictor.warm_up()
    before = [len(kernel.signatures) for kernel in kernels]
    for options in OPTIONS:
        predictor.predict_batch(some_rows(90), options, 2)
    thresholds = predictor.node_thresholds(np.full(N_LABELS, 0.5, np.float32))
    mask = predictor.label_mask(allow=["label::1"])
    predictor.predict(some_rows(2), PredictOptions(threshold=thresholds, mask=mask))
    for label in range(N_LABELS):
        predictor.explain(some_rows(3), 1, label)
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_each_kind_of_model_has_its_predictor(model, tmp_path):
    assert isinstance(make_predictor(model), ForestPredictor)
    store = Store(tmp_path)
    store.publish("labels", small_draft())
    assert isinstance(make_predictor(store.open("labels")), Predictor)
    with pytest.raises(Unavailable, match="expected a model of kind decision-tree, found label-tree"):
        ForestPredictor(store.open("labels"))


def test_the_children_scored_are_bounded_by_trees_levels_and_width(model, predictor):
    ensemble = model.ensemble
    inner = np.flatnonzero(ensemble.node_chunk >= 0)
    n_levels = 1 + max(depth_of(ensemble.parent, int(node)) for node in inner)
    widest = int(np.diff(ensemble.child_ptr).max())
    assert predictor.children_scored(10) == 3 * n_levels * widest
