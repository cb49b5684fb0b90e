"""The trainer `lomtree`: what it learns, what it tells, and what strange data mean to it."""

from itertools import pairwise
from math import e, log2
from typing import Any

import numpy as np
import pytest

from model_store.origin import REPORT, json_array
from service.base.rows import LabelRows, SparseRows, offsets
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import Trained, TrainingSet, estimate, parse_parameters, train
from service.trainers.lomtree.learning import learn_rows
from service.trainers.lomtree.trainer import LabelOrder, LomtreeParameters, OnlineLomtree
from service.trainers.source import Tools
from service.workflows.choose_features import trial_model
from tests.oracles.problems import to_labels, to_rows

N_LABELS = 6


def data(seed: int = 0, n_rows: int = 600) -> tuple[SparseRows, LabelRows]:
    """Rows of one label each that their features tell."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, N_LABELS, n_rows)
    x = rng.random((n_rows, 20)) * (rng.random((n_rows, 20)) < 0.3)
    x[np.arange(n_rows), own] += 2
    return to_rows(x / np.sqrt((x**2).sum(axis=1, keepdims=True))), to_labels(own[:, None] == range(N_LABELS))


def fitted(rows: SparseRows, labels: LabelRows, *items: str, seed: int = 0) -> Trained:
    return train("lomtree", parse_parameters("lomtree", items), rows, labels, seed)


def answers(trained: Trained, rows: SparseRows, n_labels: int, top_r: int = 1) -> Any:
    """The labels and scores of a model."""
    model = trial_model(trained, n_labels, rows.n_features)
    return make_predictor(model).predict(rows, PredictOptions(top_r=top_r), 1)


def same_bits(one: Trained, other: Trained) -> bool:
    pairs = zip(one.ensemble, other.ensemble, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and one.report == other.report


def test_what_is_published_answers_rows_not_seen() -> None:
    rows, labels = data()
    found = answers(fitted(rows, labels), data(1)[0], N_LABELS)
    assert np.mean(found.labels == data(1)[1].indices) > 0.9
    assert (found.scores > 0.5).mean() > 0.9


def test_the_seed_is_nothing_to_rows_in_their_own_order() -> None:
    assert same_bits(*(fitted(*data(), "order=given", seed=seed) for seed in (1, 2)))


def test_the_budget_bounds_the_leaves() -> None:
    rows, labels = data()
    for leaves in (1, 2, 5):
        trained = fitted(rows, labels, f"leaves={leaves}")
        n_leaves = np.count_nonzero(np.diff(trained.ensemble.child_ptr) == 0)
        assert n_leaves <= leaves
        assert trained.report["splits"] == n_leaves - 1
    assert len(fitted(rows, labels).ensemble.parent) <= 2 * 4 * N_LABELS - 1


def test_a_tree_of_one_leaf_needs_no_kernels_of_its_own() -> None:
    rows, labels = data(n_rows=40)
    fitted(rows, labels, "leaves=2")
    known = set(learn_rows.overloads)
    fitted(rows, labels, "leaves=1")
    assert set(learn_rows.overloads) == known


def test_rare_labels_count_less_for_the_number_of_leaves() -> None:
    rows, _ = data(n_rows=600)
    even = np.arange(600, dtype=np.int32) % 6
    skewed = np.maximum(np.arange(600, dtype=np.int32) - 580, 0)  # 581 times the first, 19 others once
    skewed_labels = np.exp(-(581 * np.log(581 / 600) + 19 * np.log(1 / 600)) / 600)
    assert 1 < skewed_labels < 2
    for label, n_leaves in ((even, 4 * 6), (skewed, 4 * 2)):
        labels = LabelRows(np.arange(601), label, 20)
        bound = estimate("lomtree", LomtreeParameters(), TrainingSet(rows, labels), Tools())["nonzeros_bound"]
        assert bound == (n_leaves - 1) * 20


def test_the_report_keeps_the_theory_and_fits_in_a_version() -> None:
    rows, labels = data()
    report = fitted(rows, labels, "leaves=20").report
    assert report["rows"] == 5 * rows.n_rows
    for line in report["splits_by_depth"]:
        assert 0 <= line["objective"] <= 1
        assert 0.5 * (1 - np.sqrt(1 - line["objective"])) <= line["smaller_side"] + 0.1 <= 0.6 + 1e-9
    growth = report["criteria_by_splits"]
    assert growth["splits"] == list(range(report["splits"] + 1))
    for name in ("shannon", "gini", "modified_gini", "error"):
        assert (np.diff(growth[name]) <= 1e-9).all()
    for error, shannon in zip(growth["error"], growth["shannon"], strict=True):
        assert error <= shannon * log2(e) + 1e-9
    assert growth["error"][-1] < 0.1 < growth["error"][0]
    assert len(json_array(REPORT, report)) < 1 << 16


@pytest.mark.parametrize("leaves", [20, 0])
def test_a_stream_gives_the_same_tree_however_it_is_cut(leaves: int) -> None:
    rows, labels = data(2)
    # numbered as they come, as those of a stream are: `leaves=0` follows how many there are
    _, first_seen, known = np.unique(labels.indices, return_index=True, return_inverse=True)
    labels = labels._replace(indices=np.argsort(np.argsort(first_seen)).astype(np.int32)[known])
    found = []
    for cuts in ([600], [1, 100, 599], list(range(0, 600, 7))):
        online = OnlineLomtree(LomtreeParameters(), leaves)
        for first, last in zip([0, *cuts], [*cuts, 600], strict=True):
            part = SparseRows(
                rows.indptr[first : last + 1] - rows.indptr[first],
                rows.indices[rows.indptr[first] : rows.indptr[last]],
                rows.values[rows.indptr[first] : rows.indptr[last]],
                rows.n_features,
            )
            n_labels = int(labels.indices[:last].max(initial=-1)) + 1
            theirs = LabelRows(np.arange(last - first + 1), labels.indices[first:last], n_labels)
            list(online.learn(TrainingSet(part, theirs)))
        found.append(online.finish(N_LABELS, rows.n_features, np.arange(N_LABELS, dtype=np.int32)))
    assert found[0].report["rows"] == 600
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


def test_the_ids_of_a_stream_are_the_final_ones() -> None:
    rows, labels = data()
    online = OnlineLomtree(LomtreeParameters())
    for _ in range(3):
        list(online.learn(TrainingSet(rows, labels)))
    ids = np.array([7, 5, 3, 1, 0, 2], np.int32)
    found = answers(online.finish(8, rows.n_features, ids), rows, 8)
    assert np.mean(found.labels == ids[labels.indices]) > 0.9


def test_rows_with_several_labels_are_answered_with_the_share_of_each() -> None:
    rows, labels = data()
    carried = np.zeros((rows.n_rows, N_LABELS + 1), bool)
    carried[np.arange(rows.n_rows), labels.indices] = True
    carried[:, N_LABELS] = True
    found = answers(fitted(rows, to_labels(carried)), rows, N_LABELS + 1, top_r=2)
    assert (found.scores[found.labels == N_LABELS] == 1).all()
    both = found.labels.reshape(-1, 2)
    assert (both == N_LABELS).any(axis=1).all()
    assert (both == labels.indices[:, None]).any(axis=1).mean() > 0.9


def test_one_label_and_duplicate_rows_need_no_split() -> None:
    rows, _ = data(n_rows=50)
    one = to_labels(np.eye(3, dtype=bool)[np.ones(50, int)])
    trained = fitted(rows, one, "leaves=8")
    assert (trained.report["splits"], trained.n_nonzeros) == (0, 0)
    found = answers(trained, rows, 3)
    assert (found.labels == 1).all()
    assert (found.scores == 1).all()
    same = to_rows(np.ones((40, 3)))
    two = to_labels(np.eye(2, dtype=bool)[np.arange(40) % 2])
    report = fitted(same, two, "leaves=8").report
    assert report["criteria_by_splits"]["error"][-1] == 0.5


def test_splits_that_separate_nothing_make_no_chain() -> None:
    own = np.where(np.arange(2000) % 30 == 0, 1 + np.arange(2000) % 7, 0)  # one label nearly always
    alike = fitted(to_rows(np.ones((2000, 3))), to_labels(own[:, None] == np.arange(8)), "leaves=64")
    assert alike.report["depth"] <= 5


def test_rows_without_labels_are_passed_over_and_rows_without_features_are_routed() -> None:
    rows, labels = data()
    keep = np.arange(rows.n_rows) % 3 > 0
    carried = np.zeros((rows.n_rows, N_LABELS), bool)
    carried[np.arange(rows.n_rows), labels.indices] = keep
    trained = fitted(rows, to_labels(carried), "passes=1")
    assert trained.report["rows"] == keep.sum()
    nothing = SparseRows(np.zeros(4, np.int64), rows.indices[:0], rows.values[:0], rows.n_features)
    found = answers(trained, nothing, N_LABELS)
    assert len(found.labels) == 3
    assert fitted(nothing, to_labels(np.eye(3, dtype=bool))).n_nonzeros == 0


def test_leaves_answer_with_their_commonest_labels_only() -> None:
    rows, labels = data()
    trained = fitted(rows, labels, "leaves=1", "leaf_labels=2")
    counts = np.bincount(labels.indices)
    best = np.sort(np.argsort(-counts, kind="stable")[:2])
    assert trained.ensemble.leaf_label.tolist() == best.tolist()
    assert trained.ensemble.leaf_value == pytest.approx(counts[best] / rows.n_rows)


def _labels(of_row: np.ndarray) -> LabelRows:
    return LabelRows(np.arange(len(of_row) + 1), of_row.astype(np.int32), int(of_row.max(initial=0)) + 1)


def _drawn(kind: str, n_rows: int, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "even":
        return rng.integers(0, n_labels, n_rows)
    return np.minimum(rng.geometric(0.05, n_rows) - 1, n_labels - 1)


@pytest.mark.parametrize("kind", ["even", "skewed"])
@pytest.mark.parametrize("n_rows", [1000, 76_000, 300_000])
@pytest.mark.parametrize("n_labels", [2, 50, 500])
def test_sorted_rows_are_warned_of_and_shuffled_ones_are_not(n_rows: int, n_labels: int, kind: str) -> None:
    rng = np.random.default_rng(n_rows + n_labels)
    drawn = _drawn(kind, n_rows, n_labels, rng)
    found = {}
    for name, of_row in (("sorted", np.sort(drawn)), ("shuffled", rng.permutation(drawn))):
        order = LabelOrder()
        order.add(_labels(of_row))
        found[name] = order.warnings()
    (warning,) = found["sorted"]
    assert "those of the last tenth have other labels than those of the first" in warning
    assert found["shuffled"] == []


@pytest.mark.parametrize("cuts", [[], [1], [3, 3, 70_000], list(range(0, 200_000, 997))])
def test_it_does_not_matter_how_rows_are_cut(cuts: list[int]) -> None:
    labels = _labels(np.sort(np.random.default_rng(2).integers(0, 300, 200_000)) // 2)
    whole, parts = LabelOrder(), LabelOrder()
    whole.add(labels)
    bounds = [0, *cuts, 200_000]
    for first, last in pairwise(bounds):
        parts.add(labels.cut(first, last))
    assert whole.difference() == parts.difference() > 0.5


def test_few_rows_rows_without_labels_and_labels_of_a_row_each_say_nothing() -> None:
    each, order = LabelOrder(), LabelOrder()
    each.add(_labels(np.arange(5000)))
    assert each.warnings() == []
    assert order.difference() == 0
    order.add(LabelRows(offsets([0] * 50), np.empty(0, np.int32), 3))
    order.add(_labels(np.arange(10)))
    assert order.warnings() == []
