"""Trainer `ldsm` from rows to an ensemble: validity, determinism,
bounds, that it learns, and odd data.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.trainings import (
    Data,
    bits_of,
    choices,
    data_of,
    estimate_by,
    scores_of,
    share_right,
    trained_by,
)
from tests.oracles.problems import (
    dense_labels,
    learnable,
    random_labels,
    random_rows,
    training_sets,
)

from xylem.base.errors import BadData
from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers import Trained
from xylem.trainers.ldsm.trainer import LdsmParameters

SMALL = ("trees=3", "max_nodes=60", "epochs=5")


def _data(seed: int = 0, n_rows: int = 300) -> Data:
    return learnable(seed, n_rows, 30)


def _train(data: Data, *items: str) -> Trained:
    """Small trees, of which items change something."""
    values = dict(item.split("=") for item in (*SMALL, *items))
    return trained_by("ldsm", data, *(f"{key}={value}" for key, value in values.items()))


def _bound(data: Data, *items: str) -> int:
    found = estimate_by("ldsm", data, *items)
    assert found["bytes_bound"] == 12 * found["nonzeros_bound"]
    return int(found["nonzeros_bound"])


def _leaves(trained: Trained) -> list[dict[int, float]]:
    """The shares of labels in each leaf."""
    ptr, label, value = (
        trained.ensemble.leaf_ptr,
        trained.ensemble.leaf_label,
        trained.ensemble.leaf_value,
    )
    return [
        dict(zip(label[a:b].tolist(), value[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(ptr)
        if b > a
    ]


def test_the_trees_of_an_ensemble_differ() -> None:
    ensemble = _train(_data()).ensemble
    bounds = [slice(*ensemble.child_ptr[t : t + 2]) for t in range(3)]
    assert len({ensemble.node_bias[children].tobytes() for children in bounds}) == 3


@pytest.mark.parametrize(
    "items", [[], ["optimiser=nag", "arity=2"], ["rerank=yes", "shares=labels", "arity=8"]]
)
def test_what_is_trained_has_learnt(items: list[str]) -> None:
    data = _data(2)
    trained = _train(data, "max_nodes=300", "epochs=10", *items)
    assert ("tail/ptr" in trained.extra) == ("rerank=yes" in items)
    scores = scores_of(trained, data)
    has_labels = dense_labels(data[1]).any(axis=1)
    assert scores.any(axis=1)[has_labels].mean() > 0.9
    assert share_right(scores, data[1]) > 0.7
    assert not scores[:, 4].any(), "a label without rows is in no leaf"


def test_leaves_hold_shares_of_rows_or_of_labels() -> None:
    by_rows, by_labels = (
        _leaves(_train(_data(1), f"shares={kind}")) for kind in ("rows", "labels")
    )
    assert all(max(leaf.values()) <= 1 for leaf in by_rows)
    assert any(sum(leaf.values()) > 1.2 for leaf in by_rows), "rows may carry several labels"
    for rows_leaf, labels_leaf in zip(by_rows, by_labels, strict=True):
        assert sum(labels_leaf.values()) == pytest.approx(1, abs=1e-5)
        total = sum(rows_leaf.values())
        assert labels_leaf == pytest.approx({k: v / total for k, v in rows_leaf.items()}, abs=1e-5)


def test_a_leaf_keeps_its_most_frequent_labels() -> None:
    whole, cut = (_leaves(_train(_data(1), f"leaf_labels={n}")) for n in (100, 3))
    assert max(map(len, whole)) > 3
    for every, kept in zip(whole, cut, strict=True):
        best = sorted(every, key=lambda label: (-every[label], label))[:3]
        assert kept == {label: every[label] for label in best}


def test_limits_are_kept() -> None:
    data = _data(4)
    n_labelled = int((np.diff(data[1].indptr) > 0).sum())
    reports = {
        item: _train(data, "max_nodes=1000", item).report
        for item in ("max_nodes=5", "max_depth=2", "max_copies=3", "min_rows=50")
    }
    assert reports["max_nodes=5"]["nodes_mean"] <= 5
    assert reports["max_depth=2"]["depth_max"] <= 2
    assert reports["max_copies=3"]["rows_in_leaves_mean"] <= 3 * n_labelled
    assert all(depth["rows"] >= 50 * depth["splits"] for depth in reports["min_rows=50"]["depths"])
    assert all(report["depth_max"] >= 1 for report in reports.values())
    free = _train(data, "max_nodes=1000").report
    assert free["depth_max"] > 2
    assert free["rows_in_leaves_mean"] > 3 * n_labelled, "the limits above did limit"


@pytest.mark.parametrize("items", [[], ["max_copies=4", "max_nodes=400"], ["max_depth=1"]])
def test_trained_size_is_within_the_bound(items: Any) -> None:
    data, items = _data(1), ["trees=3", "prune=0", *items]
    assert 0 < trained_by("ldsm", data, *items).n_nonzeros <= _bound(data, *items)
    n_used = len(np.unique(data[0].indices))
    assert _bound(data, "trees=7", "max_depth=1", "arity=3") == 7 * 3 * n_used, (
        "each feature for each child"
    )


def test_trained_size_is_within_the_bound_with_fewer_children() -> None:
    rows = random_rows(np.random.default_rng(0), 3, 10, 0.1)
    data = rows, random_labels(np.random.default_rng(1), 3, 8, 0.6)
    items = ("trees=2", "epochs=2", "max_nodes=8", "lambda1=0", "step=1000")
    trained = trained_by("ldsm", data, *items)
    assert (np.diff(trained.ensemble.child_ptr) == 3).sum() > 2, "otherwise this shows nothing"
    assert trained.n_nonzeros <= _bound(data, *items)


def test_the_report_has_the_objective_by_depth() -> None:
    report = _train(_data(3), "max_nodes=200").report
    assert report["trees"] == 3
    assert [of["depth"] for of in report["depths"]] == list(range(report["depth_max"]))
    assert report["depths"][0]["splits"] == 3, "the roots"
    assert sum(of["splits"] for of in report["depths"]) == report["splits"]
    for of in report["depths"]:
        assert (
            -6 - 1e-9 <= of["objective_min"] <= of["objective_mean"] <= of["objective_max"] <= 4.5
        )
        assert 0 <= of["balance_mean"] <= 0.75
        assert 0 <= of["purity_mean"] <= 1
    first, last = report["depths"][0], report["depths"][-2]
    assert last["objective_mean"] < first["objective_mean"], "deeper nodes are easier (figure 1)"


def test_rows_without_labels_are_left_out() -> None:
    rows, labels = _data(5)
    some = np.flatnonzero(np.diff(labels.indptr))
    assert len(some) < rows.n_rows
    whole, labelled = _train((rows, labels)), _train((rows.take(some), labels.take(some)))
    assert bits_of(whole) == bits_of(labelled)
    assert whole.report == labelled.report


def test_rows_that_are_alike_become_one_leaf() -> None:
    data = data_of(np.tile([0.6, 0.0, 0.8], (12, 1)), np.tile(np.eye(4), (3, 1)) > 0)
    trained = _train(data)
    assert (trained.report["nodes_mean"], trained.report["splits_given_up"]) == (1, 3)
    assert (scores_of(trained, data) == 0.25).all()


@pytest.mark.parametrize(
    ("x", "shares"), [(np.eye(10, 6), [0, 0, 1, 0, 0]), (np.zeros((10, 6)), [0, 0, 1, 0.5, 0])]
)
def test_one_label_or_rows_without_features_give_a_leaf(x: Any, shares: Any) -> None:
    carried = np.zeros((10, 5), bool)
    carried[:, 2] = True
    carried[::2, 3] = shares[3] > 0
    data = data_of(x, carried)
    trained = _train(data)
    assert trained.n_nonzeros == 0
    assert (scores_of(trained, data) == shares).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_values_that_no_step_could_follow_are_refused(value: float) -> None:
    rows, labels = _data(0)
    values = rows.values.copy()
    values[rows.indptr[7]] = value
    with pytest.raises(
        BadData, match=r"row 7: expected (finite values|values of a finite squared length)"
    ):
        _train((rows._replace(values=values), labels))


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e3, 1e18])
@pytest.mark.parametrize("optimiser", ["sgd", "nag"])
def test_rows_of_any_length_give_finite_weights(size: float, optimiser: str) -> None:
    rows, labels = _data(0, n_rows=60)
    scaled = rows._replace(values=(rows.values * np.float32(size)).astype(np.float32))
    ensemble = _train((scaled, labels), f"optimiser={optimiser}", "prune=0").ensemble
    assert np.isfinite(ensemble.dense).all()
    assert np.isfinite(ensemble.node_bias).all()


def test_trees_may_have_more_nodes_where_labels_are_many() -> None:
    parameters = LdsmParameters()
    assert [parameters.most_nodes(k) for k in (1, 1000, 1001, 10**6)] == [2000, 2000, 2002, 65_536]
    assert LdsmParameters(max_nodes=7).most_nodes(10**6) == 7


data_sets = training_sets(40, 60, 30, [0.0, 0.1, 0.9], [0.0, 0.1, 0.6])
numbers = choices(
    lambda1=[0, 2, 50], lambda2=[0, 1.5, 50], step=[0, 0.001, 1000], max_copies=[1, 32]
)
kinds = choices(
    arity=[2, 4, 7], max_nodes=[8, 200], optimiser=["sgd", "nag"], trees=[2], epochs=[2]
)


@settings(max_examples=60)
@given(data_sets, numbers, kinds, st.integers(0, 2**63 - 1))
def test_any_data_and_parameters_give_valid_trees(
    data: tuple[SparseRows, LabelRows], numbers: Any, kinds: Any, seed: int
) -> None:
    items = [f"{name}={value}" for name, value in {**numbers, **kinds}.items()]
    trained = trained_by("ldsm", data, *items, seed=seed)
    e = trained.ensemble
    n_children = np.diff(e.child_ptr)
    assert ((n_children == 0) == (np.diff(e.leaf_ptr) > 0)).all(), (
        "no leaf is empty, no inner node is a leaf"
    )
    assert n_children.max() <= kinds["arity"]
    assert (n_children[n_children > 0] > 1).all(), "a node has a choice to make"
    assert trained.report["nodes_mean"] <= kinds["max_nodes"]
    assert np.isfinite(e.node_bias).all()
    assert np.isfinite(e.dense).all()
    assert ((e.leaf_value > 0) & (e.leaf_value <= 1)).all()
    assert set(e.leaf_label.tolist()) == set(data[1].indices.tolist()), "no label is lost"
    assert trained.n_nonzeros <= _bound(data, *items)
    again = trained_by("ldsm", data, *items, seed=seed, threads=2)
    assert bits_of(trained) == bits_of(again)
    assert trained.report == again.report
