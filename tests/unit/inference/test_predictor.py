"""The predictor: options, threads, buffers and what it refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

import service.inference.predictor as predictor_module
from model_store.store import Store
from service.base.errors import Unavailable, UnknownLabel
from service.base.rows import SparseRows
from service.inference.answering import Predictions
from service.inference.predictor import NodeThresholds, PredictOptions, Predictor
from service.kernels.search.beam import beam_rows
from service.kernels.search.best_first import best_first_rows, threshold_rows
from service.kernels.search.explain import depth_of, explain_leaf
from service.kernels.search.subtrees import lift
from tests.oracles.trees import random_rows
from tests.small_models import small_draft

N_FEATURES = 70


@pytest.fixture(scope="module", params=[1, 3], ids=["one-tree", "three-trees"])
def model(tmp_path_factory, request):
    store = Store(tmp_path_factory.mktemp("store"))
    n_trees = request.param
    store.publish(
        "small", small_draft(3, n_labels=40, n_features=N_FEATURES, n_trees=n_trees, arity=4, share=0.2)
    )
    return store.open("small")


@pytest.fixture(scope="module")
def predictor(model):
    return Predictor(model)


def some_rows(n_rows: int, seed: int = 1) -> SparseRows:
    return SparseRows(*random_rows(seed, n_rows, N_FEATURES), N_FEATURES)


def one_by_one(predictor: Predictor, rows: SparseRows, options: PredictOptions) -> list[Predictions]:
    answers = []
    for first, last in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        row = SparseRows(
            np.array([0, last - first]), rows.indices[first:last], rows.values[first:last], N_FEATURES
        )
        answers.append(predictor.predict(row, options))
    return answers


OPTIONS = [
    PredictOptions(),
    PredictOptions(top_r=7, beam_width=2),
    PredictOptions(exact=True),
    PredictOptions(threshold=0.02, top_r=30),
    PredictOptions(threshold=0.0, top_r=1000),
]


@pytest.mark.parametrize("options", [*OPTIONS, "tuned", "tuned, exact"])
def test_threads_and_batches_do_not_change_an_answer(predictor, options):
    rows = some_rows(157)
    if isinstance(options, str):
        tuned = predictor.node_thresholds(np.linspace(0.001, 0.1, 40).astype(np.float32))
        options = PredictOptions(top_r=30, beam_width=2, exact=options != "tuned", threshold=tuned)
    expected = predictor.predict(rows, options)
    for threads in (1, 2, 5, 100):
        found = predictor.predict_batch(rows, options, threads)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)
    alone = one_by_one(predictor, rows, options)
    np.testing.assert_array_equal(np.concatenate([a.labels for a in alone]), expected.labels)
    np.testing.assert_array_equal(np.concatenate([a.scores for a in alone]), expected.scores)
    np.testing.assert_array_equal([len(a.labels) for a in alone], np.diff(expected.ptr))


def test_callers_at_the_same_time_do_not_mix_their_answers(predictor):
    rows = some_rows(200, seed=9)
    expected = predictor.predict(rows, PredictOptions())
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: predictor.predict(rows, PredictOptions()), range(16)))
    for answer in answers:
        np.testing.assert_array_equal(answer.labels, expected.labels)
        np.testing.assert_array_equal(answer.scores, expected.scores)


@pytest.mark.parametrize("tuned", [False, True])
def test_an_exact_search_says_so_and_a_beam_where_it_is_known(predictor, tuned):
    rows = some_rows(100)
    threshold = predictor.node_thresholds(np.full(40, 0.001, np.float32)) if tuned else None
    options = PredictOptions(top_r=3, beam_width=1, threshold=threshold)
    whole, narrow = (predictor.predict(rows, options._replace(exact=exact)) for exact in (True, False))
    wide = predictor.predict(rows, options._replace(beam_width=40))
    assert whole.exact.tolist() == wide.exact.tolist() == [1] * 100
    assert not narrow.exact.all()
    for found in (narrow, wide):
        for row in np.flatnonzero(found.exact):
            own = [answers.labels[slice(*answers.ptr[row : row + 2])].tolist() for answers in (whole, found)]
            assert own[0] == own[1]


def test_no_rows_and_empty_rows_have_answers(predictor):
    nothing = np.empty(0, np.int32), np.empty(0, np.float32), N_FEATURES
    for options in OPTIONS:
        assert predictor.predict(SparseRows(np.zeros(1, np.int64), *nothing), options).ptr.tolist() == [0]
        assert len(predictor.predict(SparseRows(np.zeros(4, np.int64), *nothing), options).ptr) == 4


def test_rows_longer_than_any_before_get_larger_buffers(model):
    predictor = Predictor(model)
    few = predictor.predict(some_rows(3), PredictOptions(top_r=1, beam_width=1))
    predictor.predict(some_rows(3), PredictOptions(top_r=40, exact=True))
    again = predictor.predict(some_rows(3), PredictOptions(top_r=1, beam_width=1))
    np.testing.assert_array_equal(few.labels, again.labels)


def test_a_number_as_threshold_is_exact_whatever_is_asked(predictor):
    rows, options = some_rows(100), PredictOptions(top_r=30, beam_width=1, threshold=0.001)
    found = predictor.predict(rows, options)
    assert found.exact.tolist() == [1] * 100
    whole = predictor.predict(rows, options._replace(exact=True))
    np.testing.assert_array_equal(found.labels, whole.labels)
    np.testing.assert_array_equal(found.ptr, whole.ptr)


SURE = {
    "exact": PredictOptions(exact=True),
    "tuned, exact": PredictOptions(exact=True, threshold=NodeThresholds(np.empty(0, np.float32))),
    **{f"at least {x}": PredictOptions(threshold=x, top_r=40) for x in (0, 0.0, 0.002, 0.05, 0.4, 1.0, 1)},
    "at least 0.002, exact": PredictOptions(threshold=0.002, exact=True),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", SURE.values(), ids=SURE)
def test_what_a_beam_answers_shortly_is_the_exact_answer(predictor, model, options, masked):
    """To the bit; a beam as wide as the tree always has it, and an ensemble's never tries."""
    if isinstance(options.threshold, NodeThresholds):
        tuned = predictor.node_thresholds(np.linspace(0.001, 0.1, 40).astype(np.float32))
        options = options._replace(threshold=tuned)
    mask = predictor.label_mask(deny=[f"label::{i}" for i in range(0, 40, 3)]) if masked else None
    n_answered = dict.fromkeys((1, 3, 40), 0)
    for seed in range(60):
        row = some_rows(1, seed)
        for beam_width in n_answered:
            asked = options._replace(beam_width=beam_width, mask=mask)
            found = predictor.predict_shortly(row, asked)
            if found is not None:
                n_answered[beam_width] += 1
                for mine, expected in zip(found, predictor.predict(row, asked), strict=True):
                    np.testing.assert_array_equal(mine, expected)
    is_tree = model.ensemble.child_ptr[0] == 1
    assert n_answered[40] == 60 * is_tree
    assert n_answered[1] <= n_answered[3] <= n_answered[40]


def test_what_needs_the_exact_search_itself_is_not_answered_shortly(predictor):
    row, options = some_rows(1), PredictOptions(exact=True, beam_width=40)
    weights = predictor.node_weights(np.linspace(1, 2, 40).astype(np.float32))
    assert predictor.predict_shortly(row, options._replace(costs=True)) is None
    assert predictor.predict_shortly(row, options._replace(weights=weights)) is None
    assert predictor.predict_shortly(row, PredictOptions(costs=True, weights=weights)) is not None


def test_allowed_and_denied_labels(predictor):
    rows = some_rows(20)
    options = PredictOptions(top_r=40, exact=True)
    names = [f"label::{i}" for i in (3, 5, 8)]
    allowed = predictor.predict(rows, options._replace(mask=predictor.label_mask(allow=names)))
    assert np.unique(allowed.labels).tolist() == [3, 5, 8]
    denied = predictor.predict(rows, options._replace(mask=predictor.label_mask(deny=names)))
    assert np.unique(denied.labels).tolist() == [i for i in range(40) if i not in (3, 5, 8)]
    both = predictor.label_mask(allow=names, deny=names[:1])
    assert np.unique(predictor.predict(rows, options._replace(mask=both)).labels).tolist() == [5, 8]
    none = predictor.predict(rows, options._replace(mask=predictor.label_mask(allow=[])))
    assert len(none.labels) == 0
    assert predictor.label_mask() is None
    for mode in (PredictOptions(top_r=40), PredictOptions(top_r=40, threshold=0.0)):
        found = predictor.predict(rows, mode._replace(mask=predictor.label_mask(allow=names)))
        assert np.unique(found.labels).tolist() == [3, 5, 8]


def test_an_unknown_label_in_a_list_is_named(predictor):
    with pytest.raises(UnknownLabel, match="deny_labels: expected labels of the model, found 'nobody'"):
        predictor.label_mask(deny=["label::1", "nobody"])


def test_a_threshold_for_each_label(predictor):
    rows = some_rows(20)
    thresholds = np.linspace(0.001, 0.1, 40).astype(np.float32)
    everything = predictor.predict(rows, PredictOptions(top_r=40, exact=True))
    prepared = predictor.node_thresholds(thresholds)
    kept = everything.scores >= thresholds[everything.labels]
    for exact, beam_width in ((True, 1), (False, 1000)):
        options = PredictOptions(40, beam_width, exact, prepared)
        np.testing.assert_array_equal(predictor.predict(rows, options).labels, everything.labels[kept])
    assert 0 < kept.sum() < len(kept)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n_rows", [1, 50])
def test_a_stop_ends_its_own_call_only(model, options, n_rows):
    predictor = Predictor(model)
    rows, stop = some_rows(n_rows), np.zeros(1, np.uint8)
    expected = predictor.predict(rows, options)
    unstopped = predictor.predict(rows, options._replace(stop=stop))
    stop[0] = 1
    stopped = predictor.predict(rows, options._replace(stop=stop))
    assert len(stopped.labels) == 0
    assert stopped.exact.tolist() == [0] * n_rows
    for found in (unstopped, predictor.predict(rows, options)):
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_blocks_of_rows_are_cut_to_bounded_memory(predictor):
    rows = some_rows(200, seed=4)
    options = PredictOptions(top_r=40, beam_width=2000)
    with mock.patch.object(predictor_module, "_BLOCK_ENTRIES_MAX", 40 * 33):
        cut = predictor.predict(rows, options)
    np.testing.assert_array_equal(cut.labels, predictor.predict(rows, options).labels)


def test_read_only_rows_are_answered_too(predictor):
    rows = some_rows(5)
    expected = predictor.predict(rows, PredictOptions())
    for array in rows[:3]:
        array.setflags(write=False)
    np.testing.assert_array_equal(predictor.predict(rows, PredictOptions()).labels, expected.labels)


def test_after_the_warm_up_nothing_is_compiled(model):
    searches = (beam_rows, best_first_rows, threshold_rows)
    kernels = (*searches, lift, depth_of, explain_leaf)
    predictor = Predictor(model)
    predictor.warm_up()
    before = [len(kernel.signatures) for kernel in kernels]
    for options in OPTIONS:
        predictor.predict_batch(some_rows(9), options, 2)
        predictor.predict_batch(some_rows(90), options, 2)
    masked = PredictOptions(mask=predictor.label_mask(allow=["label::1"]))
    predictor.predict(some_rows(2), masked)
    predictor.predict(
        some_rows(2), PredictOptions(threshold=predictor.node_thresholds(np.full(40, 0.5, np.float32)))
    )
    predictor.predict(
        some_rows(2),
        PredictOptions(weights=predictor.node_weights(np.full(40, 2, np.float32)), costs=True),
    )
    predictor.explain(some_rows(3), 1, 7)
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_a_decision_tree_is_refused_until_it_can_be_served(tmp_path):
    store = Store(tmp_path)
    store.publish("d", small_draft(kind="decision-tree"))
    with pytest.raises(Unavailable, match="expected a model of kind label-tree, found decision-tree"):
        Predictor(store.open("d"))


def test_the_children_scored_are_bounded_by_trees_beam_and_width(model, predictor):
    n_trees = int(model.ensemble.child_ptr[0])
    assert predictor.children_scored(1) == 4 * n_trees
    assert predictor.children_scored(3) == 12 * n_trees
    assert predictor.children_scored(10**6) == 4 * n_trees * len(model.ensemble.directory)
