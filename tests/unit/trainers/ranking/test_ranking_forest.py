"""Trainers fastxml and pfastrexml from rows to an ensemble: the
trees hold what they say, on any data.
"""

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
from tests.oracles import problems
from tests.oracles.label_trees import levels
from tests.oracles.problems import (
    dense_labels,
    dense_rows,
    learnable,
    random_labels,
    random_rows,
    to_rows,
)

from xylem.base.executors.local import Crew
from xylem.evaluation.ranking import propensities
from xylem.trainers import train
from xylem.trainers.ranking import forest as ranking
from xylem.trainers.ranking.forest import FastXmlParameters, PfastreXmlParameters
from xylem.trainers.ranking.tree import GrownTree
from xylem.trainers.representations import rerank_arrays
from xylem.trainers.source import Tools, TrainingSet

NAMES = ["fastxml", "pfastrexml"]
trainers = pytest.mark.parametrize("name", NAMES)


def rows_and_labels(seed: int = 0, n_rows: int = 300) -> Data:
    return learnable(seed, n_rows, 20, n_features=40, rarity=0.9, without=3)


def forest(data: Data, seed: int = 0, crew: Crew | None = None, **chosen: Any) -> list[GrownTree]:
    """Trees of fastxml, two unless chosen otherwise."""
    parameters = FastXmlParameters(**{"trees": 2, **chosen})
    ones, tools = np.ones(data[1].n_labels, np.float32), Tools(seed, crew or Crew(1))
    return ranking.grow_forest(TrainingSet(*data), parameters, ones, parameters.trees, tools)


def leaf_of(grown: GrownTree, row: np.ndarray) -> int:
    """Where a dense row goes, margins summed as the training does:
    float32, by feature, the constant last.
    """
    node = 0
    while grown.child_ptr[node] < grown.child_ptr[node + 1]:
        margin = np.float32(0)
        for e in range(grown.weight_ptr[node], grown.weight_ptr[node + 1]):
            margin += grown.weight[e] * np.float32(row[grown.feature[e]])
        second = grown.child_ptr[node] + 1
        node = int(second if margin + grown.bias[second] > 0 else second - 1)
    return node


data_sets = problems.training_sets(60, 12, 12, [0.0, 0.2, 0.8], [0.05, 0.4])
settings_of_trees = choices(
    max_leaf=[1, 3, 100],
    max_depth=[1, 4, 64],
    leaf_labels=[1, 3, 100],
    cost=[0.1, 3.0, 1000.0],
    prune=[0.0, 0.5],
)


@settings(max_examples=60)
@given(data_sets, settings_of_trees, st.integers(0, 2**63 - 1))
def test_leaves_hold_the_rows_that_the_separators_send_there(
    data: Any, chosen: Any, seed: int
) -> None:
    x, carried = dense_rows(data[0]), dense_labels(data[1])
    labelled = np.flatnonzero(carried.any(axis=1))
    for grown in forest(data, seed, **chosen):
        sizes = np.diff(grown.child_ptr)
        assert set(sizes.tolist()) <= {0, 2}
        assert grown.n_rows[0] == len(labelled)
        leaves = {row: leaf_of(grown, x[row]) for row in labelled.tolist()}
        for node in np.flatnonzero(sizes == 0).tolist():
            rows = [row for row, leaf in leaves.items() if leaf == node]
            assert len(rows) == grown.n_rows[node] > 0
            count = carried[rows].sum(axis=0)
            order = sorted(np.flatnonzero(count).tolist(), key=lambda label: (-count[label], label))
            here = slice(grown.leaf_ptr[node], grown.leaf_ptr[node + 1])
            assert grown.leaf_label[here].tolist() == sorted(order[: chosen["leaf_labels"]])
            assert grown.leaf_count[here].tolist() == count[grown.leaf_label[here]].tolist()
        for node in np.flatnonzero(sizes).tolist():
            here = slice(grown.weight_ptr[node], grown.weight_ptr[node + 1])
            assert grown.n_rows[node] > chosen["max_leaf"]
            assert (np.diff(grown.feature[here]) > 0).all()
            assert (np.abs(grown.weight[here]) >= chosen["prune"]).all()
            assert 0 < len(grown.weight[here]) <= grown.n_used[node]


@settings(max_examples=25)
@given(data_sets, st.sampled_from(NAMES), st.integers(0, 2**63 - 1))
def test_any_data_gives_the_same_bits_for_any_number_of_threads(
    data: Any, name: str, seed: int
) -> None:
    one, two = (
        trained_by(name, data, "trees=3", "max_leaf=2", seed=seed, threads=n) for n in (1, 2)
    )
    assert bits_of(one) == bits_of(two)
    assert ((one.ensemble.leaf_value > 0) & (one.ensemble.leaf_value <= 1)).all()


def test_another_seed_and_another_tree_are_different() -> None:
    first, second = forest(rows_and_labels(), seed=1)
    other = forest(rows_and_labels(), seed=2)[0]
    assert len({grown.weight.tobytes() for grown in (first, second, other)}) == 3


@trainers
def test_an_ensemble_tells_the_labels_of_its_rows(name: str) -> None:
    data = rows_and_labels(1)
    trained = trained_by(name, data, "trees=10", threads=2)
    assert (trained.kind, trained.link) == ("decision-tree", "argmax")
    assert trained.n_nonzeros > 0
    assert share_right(scores_of(trained, data), data[1]) > 0.85


def test_values_of_leaves_are_shares() -> None:
    trained = trained_by("fastxml", rows_and_labels(2), "trees=1", seed=5)
    (grown,) = forest(rows_and_labels(2), 5, trees=1)
    share = grown.leaf_count / np.repeat(grown.n_rows, np.diff(grown.leaf_ptr))
    assert trained.ensemble.leaf_value == pytest.approx(share)
    assert trained.extra == {}
    assert trained.n_nonzeros == len(grown.weight)


def test_propensities_raise_rare_labels_and_come_with_mean_rows() -> None:
    rows, labels = rows_and_labels(3)
    # every label occurs as often as the next, so one is made rare
    carried = dense_labels(labels)
    carried[np.flatnonzero(carried[:, 5])[2:], 5] = False
    rows, labels = data_of(dense_rows(rows), carried)
    parameters = PfastreXmlParameters(trees=2, max_leaf=1000, alpha=0.25, gamma=7.0)
    trained = train("pfastrexml", parameters, rows, labels)
    worth = 1 / propensities(carried.sum(axis=0), rows.n_rows)
    of_rows = carried[carried.any(axis=1)].mean(axis=0) * worth / worth.max()
    assert trained.ensemble.leaf_value == pytest.approx(np.tile(of_rows[of_rows > 0], 2))
    np.testing.assert_equal(trained.extra, rerank_arrays(rows, labels, 0.25, 7.0))
    assert trained_by("pfastrexml", (rows, labels), "trees=2", "rerank=no").extra == {}


@trainers
def test_the_estimate_has_room_and_says_something(name: str) -> None:
    data = rows_and_labels(4, n_rows=500)
    n_nonzeros = trained_by(name, data, "trees=6", seed=3).n_nonzeros
    found = estimate_by(name, data, "trees=6", seed=3)
    assert n_nonzeros <= found["nonzeros_bound"] <= 3 * n_nonzeros
    assert found["bytes_bound"] == 12 * found["nonzeros_bound"]
    assert found["ratio_to_ovr"] == pytest.approx(found["bytes_bound"] / (8 * 40 * 19))
    assert len(found["alpha_per_depth"]) > 2
    assert all(0 < alpha <= 1 for alpha in found["alpha_per_depth"])
    alone = trained_by(name, data, "trees=1").n_nonzeros
    assert estimate_by(name, data, "trees=1")["nonzeros_bound"] == alone


def test_rows_that_cannot_or_need_not_be_split_are_one_leaf() -> None:
    rng = np.random.default_rng(8)
    rows, labels = random_rows(rng, 40, 10, 0.3), random_labels(rng, 40, 6, 0.4)
    carried = dense_labels(labels)
    for case, data, chosen in [
        ("alike", data_of(np.ones((40, 10)), carried), {}),
        ("empty", data_of(np.zeros((40, 10)), carried), {}),
        ("one label", data_of(dense_rows(rows), np.ones((40, 1), bool)), {}),
        ("few", (rows, labels), {"max_leaf": 41}),
        ("a low cost", (rows, labels), {"cost": 1e-6}),
    ]:
        for grown in forest(data, **chosen):
            assert (grown.child_ptr.tolist(), len(grown.weight)) == ([1, 1], 0), case


def test_the_scale_of_the_rows_is_nothing() -> None:
    rows, labels = rows_and_labels(9)
    larger = rows._replace(values=rows.values * np.float32(64))
    one, other = (forest((x, labels), trees=1)[0] for x in (rows, larger))
    # the constant term's column stays 1, so only the first splits are sure to be alike
    assert other.n_rows[1:3].tolist() == pytest.approx(one.n_rows[1:3].tolist(), abs=20)
    assert len(other.weight) == pytest.approx(len(one.weight), rel=0.3)
    assert ranking.typical_value(larger) == pytest.approx(64 * ranking.typical_value(rows))
    assert ranking.typical_value(to_rows(np.array([[0.0, 0.0], [3.0, -3.0]]))) == 3.0
    assert ranking.typical_value(to_rows(np.zeros((2, 2)))) == 1.0


@pytest.mark.parametrize("depth", [1, 3])
def test_depth_is_bounded(depth: int) -> None:
    grown = forest(rows_and_labels(5), max_leaf=1, max_depth=depth)
    assert [levels(tree.child_ptr).max() for tree in grown] == [depth, depth]


def test_a_stopped_crew_ends_soon_with_what_there_is() -> None:
    crew = Crew(1)
    crew.stop[0] = 1
    assert [len(tree.n_rows) for tree in forest(rows_and_labels(6), crew=crew)] == [1, 1]


def test_trees_are_reported_to_their_end() -> None:
    seen = []
    train(
        "fastxml",
        FastXmlParameters(trees=3),
        *rows_and_labels(7),
        0,
        2,
        lambda *told: seen.append(told),
    )
    assert seen == [("trees", 1, 3), ("trees", 2, 3), ("trees", 3, 3)]
