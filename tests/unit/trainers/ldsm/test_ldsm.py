"""Trainer `ldsm` from rows to an ensemble: validity, determinism, bounds, that it learns, and odd data."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadData, BadParameter
from service.base.rows import LabelRows, SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.inference.searcher import Searcher
from service.trainers import TrainingSet, estimate, parse_parameters, train
from service.trainers.ldsm.trainer import LdsmParameters
from service.trainers.source import Tools
from service.trainers.spec import Trained
from service.workflows.choose_features import trial_model
from tests.oracles.problems import (
    dense_labels,
    dense_rows,
    learnable,
    random_labels,
    random_rows,
    to_labels,
    to_rows,
    training_sets,
)

SMALL = {"trees": "3", "max_nodes": "60", "epochs": "5"}


def _data(seed: int = 0, n_rows: int = 300) -> tuple[SparseRows, LabelRows]:
    return learnable(seed, n_rows, 30)


def _train(data: tuple[SparseRows, LabelRows], *items: str, seed: int = 0, threads: int = 1) -> Trained:
    values = {**SMALL, **dict(item.split("=") for item in items)}
    parameters = parse_parameters("ldsm", [f"{key}={value}" for key, value in values.items()])
    return train("ldsm", parameters, *data, seed, threads)


def _predictor(data: tuple[SparseRows, LabelRows], trained: Trained) -> Searcher:
    return make_predictor(trial_model(trained, data[1].n_labels, data[0].n_features))


def _same_bits(one: Trained, other: Trained) -> bool:
    pairs = zip(one.ensemble, other.ensemble, strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs) and one.report == other.report


def _bound(parameters: Any, rows: SparseRows, labels: LabelRows) -> int:
    found = estimate("ldsm", parameters, TrainingSet(rows, labels), Tools())
    assert found["bytes_bound"] == 12 * found["nonzeros_bound"]
    return int(found["nonzeros_bound"])


def test_the_trees_of_an_ensemble_differ() -> None:
    ensemble = _train(_data()).ensemble
    biases = [
        ensemble.node_bias[ensemble.child_ptr[t] : ensemble.child_ptr[t + 1]].tolist() for t in range(3)
    ]
    assert biases[0] != biases[1] != biases[2] != biases[0]


@pytest.mark.parametrize(
    "items", [[], ["optimiser=nag", "arity=2"], ["rerank=yes", "shares=labels", "arity=8"]]
)
def test_what_is_trained_has_learnt(items: list[str]) -> None:
    data = _data(2)
    trained = _train(data, "max_nodes=300", "epochs=10", *items)
    assert ("tail/ptr" in trained.extra) == ("rerank=yes" in items)
    found = _predictor(data, trained).predict(data[0], PredictOptions(top_r=1))
    carried = dense_labels(data[1])
    some = np.flatnonzero(carried.any(axis=1) & (np.diff(found.ptr) == 1))
    assert len(some) > 0.9 * carried.any(axis=1).sum()
    assert carried[some, found.labels[found.ptr[some]]].mean() > 0.7
    assert 4 not in found.labels, "a label without rows is in no leaf"


def _leaves(ensemble: Any) -> list[dict[int, float]]:
    ptr = ensemble.leaf_ptr
    return [
        dict(zip(ensemble.leaf_label[a:b].tolist(), ensemble.leaf_value[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(ptr)
        if b > a
    ]


def test_leaves_hold_shares_of_rows_or_of_labels() -> None:
    data = _data(1)
    by_rows, by_labels = (_leaves(_train(data, f"shares={kind}").ensemble) for kind in ("rows", "labels"))
    assert all(max(leaf.values()) <= 1 for leaf in by_rows)
    assert any(sum(leaf.values()) > 1.2 for leaf in by_rows), "rows may carry several labels"
    for rows_leaf, labels_leaf in zip(by_rows, by_labels, strict=True):
        assert sum(labels_leaf.values()) == pytest.approx(1, abs=1e-5)
        total = sum(rows_leaf.values())
        assert labels_leaf == pytest.approx({k: v / total for k, v in rows_leaf.items()}, abs=1e-5)


def test_limits_are_kept() -> None:
    data = _data(4)
    n_labelled = int((np.diff(data[1].indptr) > 0).sum())
    for items in (["max_nodes=5"], ["max_nodes=40"], ["max_depth=2"], ["max_copies=3"], ["min_rows=50"]):
        trained = _train(data, "max_nodes=1000", *items)
        report, (key, value) = trained.report, items[0].split("=")
        bounds = {
            "max_nodes": report["nodes_mean"] <= float(value),
            "max_depth": report["depth_max"] <= float(value),
            "max_copies": report["rows_in_leaves_mean"] <= float(value) * n_labelled,
            "min_rows": all(depth["rows"] >= 50 * depth["splits"] for depth in report["depths"]),
        }
        assert bounds[key], items
        assert report["depth_max"] >= 1
    free = _train(data, "max_nodes=1000").report
    assert free["depth_max"] > 2
    assert free["rows_in_leaves_mean"] > 3 * n_labelled, "the limits above did limit"


def test_trained_size_is_within_the_bound_when_nodes_have_fewer_children_than_arity() -> None:
    rows = random_rows(np.random.default_rng(0), 3, 10, 0.1)
    labels = random_labels(np.random.default_rng(1), 3, 8, 0.6)
    items = ("trees=2", "epochs=2", "max_nodes=8", "lambda1=0", "step=1000")
    parameters = parse_parameters("ldsm", items)
    trained, bound = train("ldsm", parameters, rows, labels), _bound(parameters, rows, labels)
    assert (np.diff(trained.ensemble.child_ptr) == 3).sum() > 2, "otherwise this shows nothing"
    assert trained.n_nonzeros <= bound


def test_trained_size_is_within_the_bound() -> None:
    data = _data(1)
    for items in ([], ["max_copies=4", "max_nodes=400"], ["max_depth=1"]):
        parameters = parse_parameters("ldsm", ["trees=3", "prune=0", *items])
        assert 0 < train("ldsm", parameters, *data).n_nonzeros <= _bound(parameters, *data)
    one_split = parse_parameters("ldsm", ["trees=7", "max_depth=1", "arity=3"])
    assert _bound(one_split, *data) == 7 * 3 * len(np.unique(data[0].indices))


def test_the_report_has_the_objective_by_depth() -> None:
    report = _train(_data(3), "max_nodes=200").report
    assert report["trees"] == 3
    assert [of["depth"] for of in report["depths"]] == list(range(report["depth_max"]))
    assert report["depths"][0]["splits"] == 3, "the roots"
    assert sum(of["splits"] for of in report["depths"]) == report["splits"]
    for of in report["depths"]:
        assert -6 - 1e-9 <= of["objective_min"] <= of["objective_mean"] <= of["objective_max"] <= 4.5
        assert 0 <= of["balance_mean"] <= 0.75
        assert 0 <= of["purity_mean"] <= 1
    first, last = report["depths"][0], report["depths"][-2]
    assert last["objective_mean"] < first["objective_mean"], "deeper nodes are easier (figure 1)"


def test_rows_without_labels_are_left_out() -> None:
    rows, labels = _data(5)
    some = np.flatnonzero(np.diff(labels.indptr) > 0)
    assert len(some) < rows.n_rows
    x, carried = dense_rows(rows), dense_labels(labels)
    without = to_rows(x[some]), to_labels(carried[some])
    with_all, with_some = _train((rows, labels)), _train(without)
    assert _same_bits(with_all, with_some)


def test_rows_that_are_alike_become_one_leaf() -> None:
    x = np.tile([0.6, 0.0, 0.8], (12, 1))
    carried = np.tile(np.eye(4, dtype=bool), (3, 1))
    data = to_rows(x), to_labels(carried)
    trained = _train(data)
    assert trained.report["nodes_mean"] == 1
    assert trained.report["splits_given_up"] == 3
    found = _predictor(data, trained).predict(data[0], PredictOptions(top_r=4))
    assert found.scores.tolist() == [0.25] * 48


@pytest.mark.parametrize("empty", [True, False])
def test_one_label_or_rows_without_features(empty: bool) -> None:
    """One label: a leaf says all. No features: nothing tells the rows apart."""
    x = np.zeros((10, 6)) if empty else np.eye(10, 6)
    carried = np.zeros((10, 5), bool)
    carried[:, 2] = True
    if empty:
        carried[::2, 3] = True
    data = to_rows(x), to_labels(carried)
    trained = _train(data)
    assert trained.n_nonzeros == 0
    found = _predictor(data, trained).predict(data[0], PredictOptions(top_r=2))
    one_row = slice(found.ptr[0], found.ptr[1])
    assert found.labels[one_row].tolist() == [2, 3][: 1 + empty]
    assert found.scores[one_row].tolist() == [1.0, 0.5][: 1 + empty]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_values_that_no_step_could_follow_are_refused(value: float) -> None:
    rows, labels = _data(0)
    values = rows.values.copy()
    values[rows.indptr[7]] = value
    with pytest.raises(BadData, match=r"row 7: expected (finite values|values of a finite squared length)"):
        _train((rows._replace(values=values), labels))


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e3, 1e18])
@pytest.mark.parametrize("optimiser", ["sgd", "nag"])
def test_rows_of_any_length_give_finite_weights(size: float, optimiser: str) -> None:
    rows, labels = _data(0, n_rows=60)
    scaled = rows._replace(values=(rows.values * np.float32(size)).astype(np.float32))
    ensemble = _train((scaled, labels), f"optimiser={optimiser}", "prune=0").ensemble
    assert np.isfinite(ensemble.dense).all()
    assert np.isfinite(ensemble.node_bias).all()


def test_parameters_that_cannot_be_are_refused() -> None:
    for items, message in (
        (["max_nodes=4"], "max_nodes: expected 0, or more than arity, 4"),
        (["arity=8", "max_nodes=8"], "max_nodes: expected 0, or more than arity, 8"),
    ):
        with pytest.raises(BadParameter, match=message):
            parse_parameters("ldsm", items)
    assert parse_parameters("ldsm", ["max_nodes=5"])


def test_trees_may_have_more_nodes_where_labels_are_many() -> None:
    parameters = LdsmParameters()
    assert [parameters.most_nodes(k) for k in (1, 1000, 1001, 10**6)] == [2000, 2000, 2002, 65_536]
    assert LdsmParameters(max_nodes=7).most_nodes(10**6) == 7


def test_a_leaf_keeps_its_most_frequent_labels() -> None:
    data = _data(1)
    whole, cut = (_leaves(_train(data, f"leaf_labels={n}").ensemble) for n in (100, 3))
    assert max(map(len, whole)) > 3
    for all_shares, kept in zip(whole, cut, strict=True):
        best = sorted(all_shares, key=lambda label: (-all_shares[label], label))[:3]
        assert kept == {label: all_shares[label] for label in best}


data_sets = training_sets(40, 60, 30, [0.0, 0.1, 0.9], [0.0, 0.1, 0.6])
settings_of_trees = st.builds(
    lambda *items: ["trees=2", "epochs=2", *items],
    st.sampled_from(["arity=2", "arity=4", "arity=7"]),
    st.sampled_from(["max_nodes=8", "max_nodes=200"]),
    st.sampled_from(["lambda1=0", "lambda1=2", "lambda1=50"]),
    st.sampled_from(["lambda2=0", "lambda2=1.5", "lambda2=50"]),
    st.sampled_from(["optimiser=sgd", "optimiser=nag"]),
    st.sampled_from(["step=0", "step=0.001", "step=1000"]),
    st.sampled_from(["max_copies=1", "max_copies=32"]),
)


@settings(max_examples=60)
@given(data_sets, settings_of_trees, st.integers(0, 2**63 - 1))
def test_any_data_and_parameters_give_valid_trees(
    data: tuple[SparseRows, LabelRows], items: list[str], seed: int
) -> None:
    parameters = parse_parameters("ldsm", items)
    trained = train("ldsm", parameters, *data, seed, 1)
    e, report = trained.ensemble, trained.report
    n_children = np.diff(e.child_ptr)
    assert ((n_children == 0) == (np.diff(e.leaf_ptr) > 0)).all(), "no leaf is empty, no inner node is a leaf"
    assert n_children.max() <= parameters.arity  # type: ignore[attr-defined]
    assert (n_children[n_children > 0] > 1).all(), "a node has a choice to make"
    assert report["nodes_mean"] <= parameters.max_nodes  # type: ignore[attr-defined]
    assert np.isfinite(e.node_bias).all()
    assert np.isfinite(e.dense).all()
    assert ((e.leaf_value > 0) & (e.leaf_value <= 1)).all()
    assert set(e.leaf_label.tolist()) == set(data[1].indices.tolist()), "no label is lost"
    assert trained.n_nonzeros <= _bound(parameters, *data)
    assert _same_bits(trained, train("ldsm", parameters, *data, seed, 2))
