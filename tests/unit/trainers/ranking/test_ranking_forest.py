"""Trainers fastxml and pfastrexml from rows to an ensemble: the trees hold what they say, on any data."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.rows import LabelRows, SparseRows
from service.evaluation.ranking import propensities
from service.executors.local import Crew
from service.trainers import estimate, parse_parameters, train
from service.trainers.ranking.forest import (
    FastXmlParameters,
    PfastreXmlParameters,
    grow_forest,
    typical_value,
)
from service.trainers.ranking.tree import Grown
from service.trainers.representations import rerank_arrays
from service.trainers.source import Tools, TrainingSet
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

NAMES = ["fastxml", "pfastrexml"]
trainers = pytest.mark.parametrize("name", NAMES)


def rows_and_labels(seed: int = 0, n_rows: int = 300) -> tuple[SparseRows, LabelRows]:
    return learnable(seed, n_rows, 20, n_features=40, rarity=0.9, without=3)


def forest(data, parameters: FastXmlParameters, seed=0, threads=1) -> list[Grown]:
    ones = np.ones(data[1].n_labels, np.float32)
    tools = Tools(seed, Crew(threads))
    return grow_forest(TrainingSet(*data), parameters, ones, parameters.trees, tools)


def leaf_of(grown: Grown, row: np.ndarray) -> int:
    """Where a dense row goes, margins summed as the training does: float32, by feature, the constant last."""
    node = 0
    while grown.child_ptr[node] < grown.child_ptr[node + 1]:
        margin = np.float32(0)
        for e in range(grown.weight_ptr[node], grown.weight_ptr[node + 1]):
            margin += grown.weight[e] * np.float32(row[grown.feature[e]])
        second = grown.child_ptr[node] + 1
        node = int(second if margin + grown.bias[second] > 0 else second - 1)
    return node


data_sets = training_sets(60, 12, 12, [0.0, 0.2, 0.8], [0.05, 0.4])
settings_of_trees = st.builds(
    FastXmlParameters,
    trees=st.just(2),
    max_leaf=st.sampled_from([1, 3, 100]),
    max_depth=st.sampled_from([1, 4, 64]),
    leaf_labels=st.sampled_from([1, 3, 100]),
    cost=st.sampled_from([0.1, 3.0, 1000.0]),
    prune=st.sampled_from([0.0, 0.5]),
)


@settings(max_examples=60)
@given(data_sets, settings_of_trees, st.integers(0, 2**63 - 1))
def test_leaves_hold_the_rows_that_the_separators_send_there(data, parameters, seed):
    x, carried = dense_rows(data[0]), dense_labels(data[1])
    labelled = np.flatnonzero(carried.any(axis=1))
    for grown in forest(data, parameters, seed):
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
            assert grown.leaf_label[here].tolist() == sorted(order[: parameters.leaf_labels])
            assert grown.leaf_count[here].tolist() == count[grown.leaf_label[here]].tolist()
        for node in np.flatnonzero(sizes).tolist():
            here = slice(grown.weight_ptr[node], grown.weight_ptr[node + 1])
            assert grown.n_rows[node] > parameters.max_leaf
            assert (np.diff(grown.feature[here]) > 0).all()
            assert (np.abs(grown.weight[here]) >= parameters.prune).all()
            assert 0 < len(grown.weight[here]) <= grown.n_used[node]


@settings(max_examples=25)
@given(data_sets, st.sampled_from(NAMES), st.integers(0, 2**63 - 1))
def test_any_data_gives_the_same_bits_for_any_number_of_threads(data, name, seed):
    parameters = parse_parameters(name, ["trees=3", "max_leaf=2"])
    one, two = (train(name, parameters, *data, seed, threads) for threads in (1, 2))
    for field, array in one.ensemble._asdict().items():
        assert array.tobytes() == getattr(two.ensemble, field).tobytes(), field
    assert {key: array.tobytes() for key, array in one.extra.items()} == {
        key: array.tobytes() for key, array in two.extra.items()
    }
    assert ((one.ensemble.leaf_value > 0) & (one.ensemble.leaf_value <= 1)).all()


def test_another_seed_and_another_tree_are_different():
    data = rows_and_labels()
    first, second = forest(data, FastXmlParameters(trees=2), seed=1)
    assert first.weight.tobytes() != second.weight.tobytes()
    assert first.weight.tobytes() != forest(data, FastXmlParameters(trees=1), seed=2)[0].weight.tobytes()


@trainers
def test_an_ensemble_tells_the_labels_of_its_rows(name):
    rows, labels = rows_and_labels(1)
    trained = train(name, parse_parameters(name, ["trees=10"]), rows, labels, threads=2)
    assert (trained.kind, trained.link) == ("decision-tree", "argmax")
    assert trained.n_nonzeros > 0
    json.dumps(trained.parameters)
    carried = dense_labels(labels)
    scores = np.zeros(carried.shape)
    for grown in forest((rows, labels), FastXmlParameters(trees=10)):
        for i, row in enumerate(dense_rows(rows)):
            leaf = leaf_of(grown, row)
            here = slice(grown.leaf_ptr[leaf], grown.leaf_ptr[leaf + 1])
            scores[i, grown.leaf_label[here]] += grown.leaf_count[here] / grown.n_rows[leaf]
    some = carried.any(axis=1)
    assert carried[np.arange(len(scores)), scores.argmax(axis=1)][some].mean() > 0.85


def test_values_of_leaves_are_shares():
    rows, labels = rows_and_labels(2)
    trained = train("fastxml", FastXmlParameters(trees=1), rows, labels, 5)
    grown = forest((rows, labels), FastXmlParameters(trees=1), 5)[0]
    share = grown.leaf_count / np.repeat(grown.n_rows, np.diff(grown.leaf_ptr))
    assert trained.ensemble.leaf_value == pytest.approx(share)
    assert trained.extra == {}
    assert trained.n_nonzeros == len(grown.weight)


def test_propensities_raise_rare_labels_and_come_with_mean_rows():
    rows, labels = rows_and_labels(3)
    # every label occurs as often as the next, so one is made rare
    carried = dense_labels(labels)
    carried[np.flatnonzero(carried[:, 5])[2:], 5] = False
    labels = to_labels(carried)
    parameters = PfastreXmlParameters(trees=2, max_leaf=1000, alpha=0.25, gamma=7.0)
    trained = train("pfastrexml", parameters, rows, labels)
    worth = 1 / propensities(carried.sum(axis=0), rows.n_rows)
    of_rows = carried[carried.any(axis=1)].mean(axis=0) * worth / worth.max()
    ensemble = trained.ensemble
    assert ensemble.leaf_value == pytest.approx(np.tile(of_rows[of_rows > 0], 2))
    expected = rerank_arrays(rows, labels, 0.25, 7.0)
    assert trained.extra.keys() == expected.keys()
    assert all(np.array_equal(trained.extra[key], expected[key]) for key in expected)
    plain = PfastreXmlParameters(trees=2, rerank="no")
    assert train("pfastrexml", plain, rows, labels).extra == {}


@trainers
def test_the_estimate_has_room_and_says_something(name):
    data = rows_and_labels(4, n_rows=500)
    parameters = parse_parameters(name, ["trees=6"])
    trained = train(name, parameters, *data, 3)
    found = estimate(name, parameters, TrainingSet(*data), Tools(3))
    assert trained.n_nonzeros <= found["nonzeros_bound"] <= 3 * trained.n_nonzeros
    assert found["bytes_bound"] == 12 * found["nonzeros_bound"]
    assert found["ratio_to_ovr"] == pytest.approx(found["bytes_bound"] / (8 * 40 * 19))
    assert len(found["alpha_per_depth"]) > 2
    assert all(0 < alpha <= 1 for alpha in found["alpha_per_depth"])
    alone = parse_parameters(name, ["trees=1"])
    assert (
        estimate(name, alone, TrainingSet(*data), Tools())["nonzeros_bound"]
        == train(name, alone, *data).n_nonzeros
    )


def one_leaf(rows: SparseRows, labels: LabelRows, **chosen) -> None:
    """Train, and expect roots without children."""
    for grown in forest((rows, labels), FastXmlParameters(trees=2, **chosen)):
        assert grown.child_ptr.tolist() == [1, 1]
        assert len(grown.weight) == 0


def test_rows_that_cannot_or_need_not_be_split_are_one_leaf():
    rng = np.random.default_rng(8)
    rows, labels = random_rows(rng, 40, 10, 0.3), random_labels(rng, 40, 6, 0.4)
    one_leaf(to_rows(np.ones((40, 10))), labels)
    one_leaf(to_rows(np.zeros((40, 10))), labels)
    one_leaf(rows, to_labels(np.ones((40, 1), bool)))
    one_leaf(rows, labels, max_leaf=41)
    one_leaf(rows, labels, cost=1e-6)


def test_the_scale_of_the_rows_is_nothing():
    rows, labels = rows_and_labels(9)
    larger = rows._replace(values=rows.values * np.float32(64))
    one, other = (forest((x, labels), FastXmlParameters(trees=1))[0] for x in (rows, larger))
    # the constant term's column stays 1, so only the first splits are sure to be alike
    assert other.n_rows[1:3].tolist() == pytest.approx(one.n_rows[1:3].tolist(), abs=20)
    assert len(other.weight) == pytest.approx(len(one.weight), rel=0.3)
    assert typical_value(larger) == pytest.approx(64 * typical_value(rows))
    assert typical_value(to_rows(np.array([[0.0, 0.0], [3.0, -3.0]]))) == 3.0
    assert typical_value(to_rows(np.zeros((2, 2)))) == 1.0


def test_depth_is_bounded():
    data = rows_and_labels(5)
    for depth in (1, 3):
        for grown in forest(data, FastXmlParameters(trees=2, max_leaf=1, max_depth=depth)):
            level = np.zeros(len(grown.n_rows), int)
            for node in range(len(level)):
                level[grown.child_ptr[node] : grown.child_ptr[node + 1]] = level[node] + 1
            assert level.max() == depth


def test_a_stopped_crew_ends_soon_with_what_there_is():
    data, crew = rows_and_labels(6), Crew(1)
    crew.stop[0] = 1
    ones = np.ones(20, np.float32)
    grown = grow_forest(TrainingSet(*data), FastXmlParameters(trees=2), ones, 2, Tools(0, crew))
    assert [len(tree.n_rows) for tree in grown] == [1, 1]


def test_trees_are_reported_to_their_end():
    seen = []
    train(
        "fastxml",
        FastXmlParameters(trees=3),
        *rows_and_labels(7),
        0,
        2,
        lambda stage, done, total: seen.append((stage, done, total)),
    )
    assert seen == [("trees", 1, 3), ("trees", 2, 3), ("trees", 3, 3)]
