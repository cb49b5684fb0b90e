"""The trainer `lomtree`: what it learns, what it tells, and what strange data mean to it."""

from itertools import pairwise

import numpy as np
import pytest
from tests.helpers.trainings import (
    bits_of,
    data_of,
    estimate_by,
    scores_of,
    share_right,
    trained_by,
)
from tests.oracles.problems import dense_labels, to_labels

from xylem.base.rows import LabelRows, SparseRows, offsets
from xylem.trainers import Trained, TrainingSet
from xylem.trainers.lomtree.learning import learn_rows
from xylem.trainers.lomtree.trainer import LabelOrder, LomtreeParameters, OnlineLomtree
from xylem_store.origin import REPORT, json_array

N_LABELS = 6


def data(seed: int = 0, n_rows: int = 600) -> TrainingSet:
    """Rows of one label each that their features tell."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, N_LABELS, n_rows)
    x = rng.random((n_rows, 20)) * (rng.random((n_rows, 20)) < 0.3)
    x[np.arange(n_rows), own] += 2
    x /= np.sqrt((x**2).sum(axis=1, keepdims=True))
    return data_of(x, own[:, None] == range(N_LABELS))


def assert_same(one: Trained, *others: Trained) -> None:
    for other in others:
        assert bits_of(one) == bits_of(other)
        assert one.report == other.report


def test_what_is_published_answers_rows_not_seen() -> None:
    scores = scores_of(trained_by("lomtree", data()), data(1))
    assert share_right(scores, data(1).labels) > 0.9
    assert (scores.max(axis=1) > 0.5).mean() > 0.9


def test_the_seed_is_nothing_to_rows_in_their_own_order() -> None:
    assert_same(*(trained_by("lomtree", data(), "order=given", seed=seed) for seed in (1, 2)))


def test_the_budget_bounds_the_leaves() -> None:
    for leaves in (1, 2, 5):
        trained = trained_by("lomtree", data(), f"leaves={leaves}")
        n_leaves = np.count_nonzero(np.diff(trained.ensemble.child_ptr) == 0)
        assert n_leaves <= leaves
        assert trained.report["splits"] == n_leaves - 1
    assert len(trained_by("lomtree", data()).ensemble.parent) <= 2 * 4 * N_LABELS - 1


def test_a_tree_of_one_leaf_needs_no_kernels_of_its_own() -> None:
    trained_by("lomtree", data(n_rows=40), "leaves=2")
    known = set(learn_rows.overloads)
    trained_by("lomtree", data(n_rows=40), "leaves=1")
    assert set(learn_rows.overloads) == known


def test_rare_labels_count_less_for_the_number_of_leaves() -> None:
    even = np.arange(600, dtype=np.int32) % 6
    skewed = np.maximum(
        np.arange(600, dtype=np.int32) - 580, 0
    )  # 581 times the first, 19 others once
    skewed_labels = np.exp(-(581 * np.log(581 / 600) + 19 * np.log(1 / 600)) / 600)
    assert 1 < skewed_labels < 2
    for label, n_leaves in ((even, 4 * 6), (skewed, 4 * 2)):
        found = estimate_by("lomtree", (data().rows, LabelRows(np.arange(601), label, 20)))
        assert found["nonzeros_bound"] == (n_leaves - 1) * 20


def test_the_report_has_the_gain_of_splits_and_fits_in_a_version() -> None:
    report = trained_by("lomtree", data(), "leaves=20").report
    assert report["rows"] == 5 * 600
    for line in report["splits_by_depth"]:
        assert 0 <= line["objective"] <= 1
        assert (
            0.5 * (1 - np.sqrt(1 - line["objective"])) <= line["smaller_side"] + 0.1 <= 0.6 + 1e-9
        )
    growth = report["criteria_by_splits"]
    assert growth["splits"] == list(range(report["splits"] + 1))
    for name in ("shannon", "gini", "modified_gini", "error"):
        assert (np.diff(growth[name]) <= 1e-9).all()
    assert growth["error"][-1] < 0.1 < growth["error"][0]
    assert len(json_array(REPORT, report)) < 1 << 16


@pytest.mark.parametrize("leaves", [20, 0])
def test_a_stream_gives_the_same_tree_however_it_is_cut(leaves: int) -> None:
    rows, labels = data(2)
    # numbered as they come, as those of a stream are: `leaves=0` follows how many there are
    _, first_seen, known = np.unique(labels.indices, return_index=True, return_inverse=True)
    labels = labels._replace(indices=np.argsort(np.argsort(first_seen)).astype(np.int32)[known])
    found = []
    for cuts in ([], [1, 100, 599], list(range(0, 600, 7))):
        online = OnlineLomtree(LomtreeParameters(), leaves)
        for first, last in pairwise([0, *cuts, 600]):
            n_labels = int(labels.indices[:last].max(initial=-1)) + 1
            seen = labels.cut(first, last)._replace(n_labels=n_labels)
            list(online.learn(TrainingSet(rows.cut(first, last), seen)))
        found.append(online.finish(N_LABELS, rows.n_features, np.arange(N_LABELS, dtype=np.int32)))
    assert found[0].report["rows"] == 600
    assert_same(*found)


def test_the_ids_of_a_stream_are_the_final_ones() -> None:
    rows, labels = data()
    online = OnlineLomtree(LomtreeParameters())
    for _ in range(3):
        list(online.learn(data()))
    ids = np.array([7, 5, 3, 1, 0, 2], np.int32)
    final = labels._replace(indices=ids[labels.indices], n_labels=8)
    trained = online.finish(8, rows.n_features, ids)
    assert share_right(scores_of(trained, (rows, final)), final) > 0.9


def test_rows_with_several_labels_have_the_share_of_each() -> None:
    rows, labels = data()
    carried = np.hstack([dense_labels(labels), np.ones((600, 1), bool)])
    given = rows, to_labels(carried)
    scores = scores_of(trained_by("lomtree", given), given)
    assert (scores[:, N_LABELS] == 1).all()
    assert share_right(scores[:, :N_LABELS], labels) > 0.9


def test_one_label_and_duplicate_rows_need_no_split() -> None:
    one = data(n_rows=50).rows, to_labels(np.arange(3) == np.ones((50, 1)))
    trained = trained_by("lomtree", one, "leaves=8")
    assert (trained.report["splits"], trained.n_nonzeros) == (0, 0)
    assert (scores_of(trained, one) == [0, 1, 0]).all()
    same = data_of(np.ones((40, 3)), np.eye(2, dtype=bool)[np.arange(40) % 2])
    assert trained_by("lomtree", same, "leaves=8").report["criteria_by_splits"]["error"][-1] == 0.5


def test_splits_that_separate_nothing_make_no_chain() -> None:
    own = np.where(np.arange(2000) % 30 == 0, 1 + np.arange(2000) % 7, 0)  # one label nearly always
    alike = data_of(np.ones((2000, 3)), own[:, None] == np.arange(8))
    assert trained_by("lomtree", alike, "leaves=64").report["depth"] <= 5


def test_rows_without_labels_are_skipped_without_features_routed() -> None:
    rows, labels = data()
    keep = np.arange(600) % 3 > 0
    trained = trained_by(
        "lomtree", (rows, to_labels(dense_labels(labels) & keep[:, None])), "passes=1"
    )
    assert trained.report["rows"] == keep.sum()
    nothing = SparseRows(np.zeros(4, np.int64), rows.indices[:0], rows.values[:0], rows.n_features)
    assert scores_of(trained, (nothing, labels.cut(0, 3))).any(axis=1).all()
    assert trained_by("lomtree", (nothing, to_labels(np.eye(3, dtype=bool)))).n_nonzeros == 0


def test_leaves_answer_with_their_commonest_labels_only() -> None:
    trained = trained_by("lomtree", data(), "leaves=1", "leaf_labels=2")
    counts = np.bincount(data().labels.indices)
    best = np.sort(np.argsort(-counts, kind="stable")[:2])
    assert trained.ensemble.leaf_label.tolist() == best.tolist()
    assert trained.ensemble.leaf_value == pytest.approx(counts[best] / 600)


def order_of(*parts: LabelRows) -> LabelOrder:
    """What is known of the order of labels after these rows."""
    order = LabelOrder()
    for part in parts:
        order.add(part)
    return order


def _labels(of_row: np.ndarray) -> LabelRows:
    return LabelRows(
        np.arange(len(of_row) + 1), of_row.astype(np.int32), int(of_row.max(initial=0)) + 1
    )


@pytest.mark.parametrize("kind", ["even", "skewed"])
@pytest.mark.parametrize("n_rows", [1000, 76_000, 300_000])
@pytest.mark.parametrize("n_labels", [2, 50, 500])
def test_sorted_rows_are_warned_of_and_shuffled_ones_are_not(
    n_rows: int, n_labels: int, kind: str
) -> None:
    rng = np.random.default_rng(n_rows + n_labels)
    if kind == "even":
        drawn = rng.integers(0, n_labels, n_rows)
    else:
        drawn = np.minimum(rng.geometric(0.05, n_rows) - 1, n_labels - 1)
    (warning,) = order_of(_labels(np.sort(drawn))).warnings()
    assert "those of the last tenth have other labels than those of the first" in warning
    assert order_of(_labels(rng.permutation(drawn))).warnings() == []


@pytest.mark.parametrize("cuts", [[], [1], [3, 3, 70_000], list(range(0, 200_000, 997))])
def test_it_does_not_matter_how_rows_are_cut(cuts: list[int]) -> None:
    labels = _labels(np.sort(np.random.default_rng(2).integers(0, 300, 200_000)) // 2)
    parts = [labels.cut(first, last) for first, last in pairwise([0, *cuts, 200_000])]
    assert order_of(labels).difference() == order_of(*parts).difference() > 0.5


def test_few_rows_and_rows_without_labels_give_no_warning() -> None:
    assert order_of(_labels(np.arange(5000))).warnings() == []
    assert order_of().difference() == 0
    unlabelled = LabelRows(offsets([0] * 50), np.empty(0, np.int32), 3)
    assert order_of(unlabelled, _labels(np.arange(10))).warnings() == []
