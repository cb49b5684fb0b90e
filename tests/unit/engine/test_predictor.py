"""Predictors of label trees and of decision trees: options, threads, buffers, and
what they refuse.
"""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.helpers.answers import assert_same, each_row, empty_rows, row_with
from tests.helpers.small_models import random_rerank, small_draft
from tests.oracles.routing import random_decision_forest, routed_scores, whole_rows
from tests.oracles.trees import random_rows, row_dicts

import xylem.engine.predictor as predictor_module
from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import CombinedPredictor, make_predictor
from xylem.engine.explain import FEATURES_MAX
from xylem.engine.forest_predictor import ForestPredictor
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.best_first import best_first_rows, threshold_rows
from xylem.engine.kernels.search.explain import depth_of, explain_leaf
from xylem.engine.kernels.search.routing import route_rows
from xylem.engine.kernels.search.subtrees import lift, set_logs
from xylem.engine.predictor import NodeThresholds, PredictOptions, Predictor
from xylem_store.version import Model, model_of

N_FEATURES = 70
N_LABELS = 40
LABEL_TREES = ["one-tree", "three-trees"]
FORESTS = ["multiway", "argmax", "re-ranked"]
OPTIONS = [
    PredictOptions(),
    PredictOptions(top_r=7, beam_width=2),
    PredictOptions(exact=True),
    PredictOptions(top_r=7, exact=True),
    PredictOptions(threshold=0.02, top_r=30),
    PredictOptions(threshold=0.25, top_r=30),
    PredictOptions(threshold=0.0, top_r=1000),
]


def forest_of(link: str, **changes: Any) -> tuple[list[Any], Model]:
    trees, ensemble = random_decision_forest(
        4, n_trees=3, n_labels=N_LABELS, n_features=N_FEATURES, arity=4
    )
    shape = {"n_labels": N_LABELS, "n_features": N_FEATURES, "kind": "decision-tree", "link": link}
    return trees, model_of(small_draft(**{**shape, "ensemble": ensemble, **changes}))


@pytest.fixture(scope="module", params=LABEL_TREES + FORESTS)
def model(request: pytest.FixtureRequest) -> Model:
    if request.param == "re-ranked":
        return forest_of("multiway", extra=random_rerank(3, N_LABELS, N_FEATURES, 1.0))[1]
    if request.param in FORESTS:
        return forest_of(request.param)[1]
    n_trees = {"one-tree": 1, "three-trees": 3}[request.param]
    shape = {
        "n_labels": N_LABELS,
        "n_features": N_FEATURES,
        "n_trees": n_trees,
        "arity": 4,
        "share": 0.2,
    }
    return model_of(small_draft(3, **shape))


@pytest.fixture(scope="module")
def predictor(model: Model) -> Predictor | ForestPredictor:
    made = make_predictor(model)
    assert (
        type(made)
        is {"label-tree": Predictor, "decision-tree": ForestPredictor}[model.manifest.kind]
    )
    return made


of_label_trees = pytest.mark.parametrize("model", LABEL_TREES, indirect=True)


def some_rows(n_rows: int, seed: int = 1) -> SparseRows:
    return SparseRows(*random_rows(seed, n_rows, N_FEATURES), N_FEATURES)


@pytest.mark.parametrize("options", [*OPTIONS, "tuned", "tuned, exact"])
def test_threads_and_batches_do_not_change_an_answer(
    predictor: CombinedPredictor, options: Any
) -> None:
    rows = some_rows(157)
    if isinstance(options, str):
        tuned = predictor.node_thresholds(np.linspace(0.001, 0.1, 40).astype(np.float32))
        options = PredictOptions(top_r=30, beam_width=2, exact=options != "tuned", threshold=tuned)
    expected = predictor.predict(rows, options)
    assert len(expected.labels) > 100
    assert expected.exact.all() or isinstance(predictor, Predictor)
    for threads in (1, 2, 5, 100):
        assert_same(predictor.predict(rows, options, threads), expected)
    for row, (labels, scores) in enumerate(each_row(expected)):
        alone = predictor.predict(rows.cut(row, row + 1), options)
        assert alone.labels.tolist() == labels
        np.testing.assert_array_equal(alone.scores, scores)


def test_callers_at_the_same_time_do_not_mix_their_answers(predictor: CombinedPredictor) -> None:
    rows = some_rows(200, seed=9)
    expected = predictor.predict(rows, PredictOptions())
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: predictor.predict(rows, PredictOptions()), range(16)):
            assert_same(answer, expected)


def test_no_rows_empty_rows_and_read_only_rows_have_answers(predictor: CombinedPredictor) -> None:
    rows = some_rows(5)
    expected = predictor.predict(rows, PredictOptions())
    for array in rows[:3]:
        array.setflags(write=False)
    assert_same(predictor.predict(rows, PredictOptions()), expected)
    for options in OPTIONS:
        assert predictor.predict(empty_rows(0, N_FEATURES), options).ptr.tolist() == [0]
        assert len(predictor.predict(empty_rows(3, N_FEATURES), options).ptr) == 4


def test_rows_longer_than_any_before_get_larger_buffers(model: Any) -> None:
    predictor, few = make_predictor(model), PredictOptions(top_r=1, beam_width=1)
    expected = predictor.predict(some_rows(3), few)
    predictor.predict(some_rows(3), PredictOptions(top_r=40, exact=True))
    predictor.predict(row_with(np.arange(N_FEATURES), N_FEATURES), PredictOptions())
    assert_same(predictor.predict(some_rows(3), few), expected)


def test_allowed_and_denied_labels(predictor: CombinedPredictor) -> None:
    rows = some_rows(60)
    few = np.isin(np.arange(N_LABELS), [3, 5, 8]).view(np.uint8)
    for mode in (PredictOptions(top_r=40, exact=True), PredictOptions(top_r=40, threshold=0.0)):
        everything = predictor.predict(rows, mode)
        for allowed in (few, 1 - few, np.zeros(N_LABELS, np.uint8), np.ones(N_LABELS, np.uint8)):
            is_allowed = allowed[everything.labels] > 0
            masked = predictor.predict(rows, mode._replace(mask=predictor.label_mask(allowed)))
            np.testing.assert_array_equal(masked.labels, everything.labels[is_allowed])
            np.testing.assert_array_equal(masked.scores, everything.scores[is_allowed])
    narrow = predictor.predict(rows, PredictOptions(top_r=40, mask=predictor.label_mask(few)))
    assert set(narrow.labels) <= {3, 5, 8}


def test_a_threshold_for_each_label_that_may_move(predictor: CombinedPredictor) -> None:
    rows = some_rows(20)
    everything = predictor.predict(rows, PredictOptions(top_r=40, exact=True))
    thresholds = np.linspace(0.001, 0.1, N_LABELS).astype(np.float32)
    prepared = predictor.node_thresholds(thresholds)
    for moved in ([], [3, 7, 39]):
        thresholds[moved] = 0.01
        predictor.move_thresholds(prepared, np.array(moved, np.int32), thresholds)
        kept = everything.scores >= thresholds[everything.labels]
        assert 0 < kept.sum() < len(kept)
        for exact, beam_width in ((True, 1), (False, 1000)):
            options = PredictOptions(40, beam_width, exact, prepared)
            np.testing.assert_array_equal(
                predictor.predict(rows, options).labels, everything.labels[kept]
            )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n_rows", [1, 50])
def test_a_stop_ends_its_own_call_only(model: Any, options: Any, n_rows: int) -> None:
    predictor = make_predictor(model)
    rows, stop = some_rows(n_rows), np.zeros(1, np.uint8)
    expected = predictor.predict(rows, options)
    assert_same(predictor.predict(rows, options._replace(stop=stop)), expected)
    stop[0] = 1
    stopped = predictor.predict(rows, options._replace(stop=stop))
    assert len(stopped.labels) == 0
    assert stopped.exact.tolist() == [0] * n_rows
    assert_same(predictor.predict(rows, options), expected)


def test_a_warm_up_leaves_no_buffers(model: Any) -> None:
    make_predictor(model).warm_up()  # what is loaded once is there
    predictor = make_predictor(model)
    tracemalloc.start()
    predictor.warm_up()
    left = tracemalloc.get_traced_memory()[0]
    predictor.predict(some_rows(1), PredictOptions())
    with_buffers = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < (with_buffers - left) / 2


def test_after_the_warm_up_nothing_is_compiled(model: Any) -> None:
    of_searches = beam_rows, best_first_rows, threshold_rows, route_rows
    kernels = *of_searches, lift, explain_leaf, set_logs
    predictor = make_predictor(model)
    predictor.warm_up()
    before = [len(kernel.signatures) for kernel in kernels]
    for options in OPTIONS:
        predictor.predict(some_rows(9), options, 2)
        predictor.predict(some_rows(90), options, 2)
    mask = predictor.label_mask(np.eye(N_LABELS, dtype=np.uint8)[1])
    tuned = predictor.node_thresholds(np.full(N_LABELS, 0.5, np.float32))
    wanted = [PredictOptions(threshold=threshold, mask=mask) for threshold in (None, tuned)]
    wanted.append(PredictOptions(threshold=tuned))
    if isinstance(predictor, Predictor):
        weights = predictor.node_weights(np.full(N_LABELS, 2, np.float32))
        wanted.append(PredictOptions(weights=weights, costs=True))
    for options in wanted:
        predictor.predict(some_rows(2), options)
    for label in range(N_LABELS):
        predictor.explain(some_rows(3), 1, label)
    assert [len(kernel.signatures) for kernel in kernels] == before


@of_label_trees
@pytest.mark.parametrize("threshold", [None, "tuned", 0.001])
def test_an_exact_search_says_so_and_a_beam_where_it_is_known(
    predictor: CombinedPredictor, threshold: Any
) -> None:
    """With a number as threshold each search is exact, whatever is asked."""
    rows, is_number = some_rows(100), threshold == 0.001
    if threshold == "tuned":
        threshold = predictor.node_thresholds(np.full(40, 0.001, np.float32))
    options = PredictOptions(top_r=30, beam_width=1, threshold=threshold)
    whole, narrow = (
        predictor.predict(rows, options._replace(exact=exact)) for exact in (True, False)
    )
    wide = predictor.predict(rows, options._replace(beam_width=40))
    assert whole.exact.tolist() == wide.exact.tolist() == [1] * 100
    assert narrow.exact.all() == is_number
    expected = [labels for labels, _ in each_row(whole)]
    for found in (narrow, wide):
        for row, (labels, _) in enumerate(each_row(found)):
            assert labels == expected[row] or not found.exact[row]


SURE = {
    "exact": PredictOptions(exact=True),
    "tuned, exact": PredictOptions(exact=True, threshold=NodeThresholds(np.empty(0, np.float32))),
    **{
        f"at least {x}": PredictOptions(threshold=x, top_r=40)
        for x in (0, 0.0, 0.002, 0.05, 0.4, 1.0, 1)
    },
    "at least 0.002, exact": PredictOptions(threshold=0.002, exact=True),
}


@of_label_trees
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", SURE.values(), ids=SURE)
def test_what_a_beam_answers_shortly_is_the_exact_answer(
    predictor: CombinedPredictor, model: Any, options: Any, masked: Any
) -> None:
    """To the bit; a beam as wide as the tree always has it, and an ensemble's never tries."""
    if isinstance(options.threshold, np.ndarray):
        tuned = predictor.node_thresholds(np.linspace(0.001, 0.1, 40).astype(np.float32))
        options = options._replace(threshold=tuned)
    allowed = (np.arange(N_LABELS) % 3 > 0).view(np.uint8)
    mask = predictor.label_mask(allowed) if masked else None
    n_answered = dict.fromkeys((1, 3, 40), 0)
    for seed in range(60):
        row = some_rows(1, seed)
        for beam_width in n_answered:
            asked = options._replace(beam_width=beam_width, mask=mask)
            found = predictor.predict_on_event_loop(row, asked)
            if found is not None:
                n_answered[beam_width] += 1
                assert_same(found, predictor.predict(row, asked))
    is_tree = model.ensemble.child_ptr[0] == 1
    assert n_answered[40] == 60 * is_tree
    assert n_answered[1] <= n_answered[3] <= n_answered[40]


@pytest.mark.parametrize("n_labels", [1, 15, 16, 33, 90])
@pytest.mark.parametrize("top_r", [1, 5, 16, 17, 40])
def test_a_beam_finds_the_best_of_a_wide_node(n_labels: int, top_r: int) -> None:
    """With equal scores, thresholds, masks and weights too; the exact search offers all leaves."""
    shape = {"n_labels": n_labels, "n_features": N_FEATURES, "arity": 100, "share": 0.2}
    wide = Predictor(model_of(small_draft(5, n_trees=1, link="hinge3", **shape)))
    rows = some_rows(40)
    allowed = (np.arange(n_labels) % 3 > 0).view(np.uint8)
    weights = np.linspace(0.1, 2, n_labels).astype(np.float32)
    for changes in (
        {},
        {"mask": wide.label_mask(allowed)},
        {"weights": wide.node_weights(weights)},
        {"threshold": wide.node_thresholds(weights / 4)},
    ):
        options = PredictOptions(top_r=top_r, **changes)
        assert_same(wide.predict(rows, options), wide.predict(rows, options._replace(exact=True)))


@of_label_trees
def test_exact_costs_and_weights_have_no_short_answer(
    predictor: CombinedPredictor,
) -> None:
    row, options = some_rows(1), PredictOptions(exact=True, beam_width=40)
    weights = predictor.node_weights(np.linspace(1, 2, 40).astype(np.float32))
    assert predictor.predict_on_event_loop(row, options._replace(costs=True)) is None
    assert predictor.predict_on_event_loop(row, options._replace(weights=weights)) is None
    assert (
        predictor.predict_on_event_loop(row, PredictOptions(costs=True, weights=weights))
        is not None
    )


@of_label_trees
def test_blocks_of_rows_are_cut_to_bounded_memory(predictor: CombinedPredictor) -> None:
    rows = some_rows(200, seed=4)
    options = PredictOptions(top_r=40, beam_width=2000)
    with mock.patch.object(predictor_module, "_BLOCK_ENTRIES_MAX", 40 * 33):
        cut = predictor.predict(rows, options)
    np.testing.assert_array_equal(cut.labels, predictor.predict(rows, options).labels)


@pytest.mark.parametrize("link", ["multiway", "argmax"])
def test_explanations_add_up_to_the_score(link: str) -> None:
    trees, model = forest_of(link)
    predictor, rows = ForestPredictor(model), SparseRows(*whole_rows(1, 12, N_FEATURES), N_FEATURES)
    found = predictor.predict(rows, PredictOptions(top_r=40))
    for row, (values, (labels, _)) in enumerate(
        zip(row_dicts(rows[:3]), each_row(found), strict=True)
    ):
        expected = routed_scores(trees, link, values, N_LABELS)
        for label in labels:
            leaves = predictor.explain(rows, row, label).leaves
            assert sum(leaf.value * leaf.weight for leaf in leaves) == pytest.approx(
                expected[label]
            )
            for leaf in leaves:
                assert len(leaf.path) == depth_of(model.ensemble.parent, leaf.leaf)
                assert [node.node for node in leaf.path][-1:] in ([leaf.leaf], [])
                for node in leaf.path:
                    shares = [abs(share.contribution) for share in node.features]
                    assert shares == sorted(shares, reverse=True)
                    assert {share.feature for share in node.features} <= set(values)
                    if len(values) <= FEATURES_MAX:  # then all are told, and whole numbers add up
                        bias = model.ensemble.node_bias[node.node]
                        assert node.margin == bias + sum(
                            share.contribution for share in node.features
                        )
    absent = int(np.flatnonzero(routed_scores(trees, link, {}, N_LABELS) == 0)[0])
    assert predictor.explain(empty_rows(1, N_FEATURES), 0, absent).leaves == []


def test_the_number_of_scored_children_is_bounded(model: Any, predictor: CombinedPredictor) -> None:
    ensemble = model.ensemble
    if model.manifest.kind == "label-tree":
        n_trees = int(ensemble.child_ptr[0])
        assert predictor.children_scored(1) == 4 * n_trees
        assert predictor.children_scored(3) == 12 * n_trees
        assert predictor.children_scored(10**6) == 4 * n_trees * len(ensemble.directory)
    else:
        inner = np.flatnonzero(ensemble.node_chunk >= 0)
        n_levels = 1 + max(depth_of(ensemble.parent, int(node)) for node in inner)
        widest = int(np.diff(ensemble.child_ptr).max())
        assert predictor.children_scored(10) == 3 * n_levels * widest
