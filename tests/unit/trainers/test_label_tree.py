"""The linear trainers from rows to an ensemble: validity, determinism, size, and that
they learn.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from tests.helpers.trainings import (
    bits_of,
    data_of,
    dense_weights,
    estimate_by,
    scores_of,
    share_right,
    trained_by,
)
from tests.oracles.problems import dense_labels, dense_rows, hinge_objective, learnable, to_rows

from xylem.base.errors import BadData, BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers import TrainingSet, estimate, parse_parameters, train
from xylem.trainers.classifiers import SolverOptions, members_of, train_classifiers
from xylem.trainers.label_tree import prune_of
from xylem.trainers.representations import rows_by_label
from xylem.trainers.shape import join
from xylem.trainers.source import Tools

VARIANTS = {
    "balanced": ("label-tree", ["leaf_size=5", "arity=4", "trees=2"]),
    "kmeans": ("label-tree", ["leaf_size=5", "arity=5", "clustering=kmeans"]),
    "logistic": ("label-tree", ["leaf_size=20", "loss=logistic", "cost=10"]),
    "ovr": ("ovr", []),
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def _data(seed: int = 0, n_rows: int = 400, n_labels: int = 70) -> tuple[SparseRows, LabelRows]:
    return learnable(seed, n_rows, n_labels, rarity=0.97)


@variants
def test_trained_size_is_within_the_bound(variant: str) -> None:
    data, (name, items) = _data(1), VARIANTS[variant]
    bound = estimate_by(name, data, *items, "prune=0")
    trained = trained_by(name, data, *items, "prune=0")
    assert trained.n_nonzeros <= bound["nonzeros_bound"]
    assert trained.n_nonzeros > 0.5 * bound["nonzeros_bound"], "a bound that says something"
    assert bound["bytes_bound"] == 12 * bound["nonzeros_bound"]
    assert all(0 < alpha <= 1 for alpha in bound["alpha_per_depth"])
    if name == "ovr":
        assert (bound["ratio_to_ovr"], bound["alpha_per_depth"]) == (12 / 8, [])
    assert trained_by(name, data, *items, "prune=0.3").n_nonzeros < trained.n_nonzeros


def test_estimate_by_hand() -> None:
    # Features 0-1 belong to labels 0-1, features 2-3 to labels 2-3;
    # feature 4 to all, feature 5 to none.
    x = np.zeros((5, 6))
    x[[0, 1, 2, 3], [0, 1, 2, 3]] = 1
    x[:4, 4] = 0.1
    x[4, 5] = 1
    labels = LabelRows(np.array([0, 1, 2, 3, 4, 4]), np.arange(4, dtype=np.int32), 6)
    found = estimate_by("label-tree", (to_rows(x), labels), "leaf_size=1", "arity=2")
    # The root uses 5 features for 2 children; each of its children 3 features for 2 labels.
    # Beside the weights are 7 nodes, 3 chunks of one group and one block each, 6 names, and ends.
    beside = 7 * 20 + 3 * (36 + 8 + 16) + 4 * 6 + 108
    assert found == {
        "nonzeros_bound": 5 * 2 + 2 * 3 * 2,
        "bytes_bound": 12 * 22,
        "ratio_to_ovr": 12 * 22 / (8 * 5 * 4),
        "stored_bytes": {
            "float32": 8 * 22 + beside,
            "bfloat16": 4 * 22 + beside,
            "int8": 2 * 22 + beside + 7 * 4,
        },
        "alpha_per_depth": [3 / 5],
    }


@variants
def test_what_is_trained_has_learnt(variant: str) -> None:
    data, (name, items) = _data(2), VARIANTS[variant]
    scores = scores_of(trained_by(name, data, *items), data)
    assert share_right(scores, data[1]) > 0.7
    assert scores.any(axis=1).all()
    assert (scores.any(axis=0) == (np.arange(70) != 4)).all(), "a label without rows has no leaf"


def _two_groups(labels: Any, first: int) -> Any:
    """A tree of two groups of the labels that occur, the first of so
    many; who carries each; these labels.
    """
    ptr, of_label, _ = rows_by_label(labels)
    used = np.flatnonzero(np.diff(ptr)).astype(np.int32)
    return (
        join(used, [np.array([0, first, len(used)])]),
        members_of(ptr, of_label, None, used),
        used,
    )


def test_chunks_hold_the_solvers_weights() -> None:
    rows, labels = _data(3, n_rows=80, n_labels=40)
    shape, members, used = _two_groups(labels, 20)
    solving = SolverOptions("squared_hinge", 1.0, 0.0, 0.0, 1e-3, 1000, 0.0)
    chunks = train_classifiers(rows, shape, members, solving, Tools(1, Crew(2)))
    x, carried = dense_rows(rows), dense_labels(labels)
    assert [chunk is None for chunk in chunks] == [False] * 3 + [True] * len(used)
    for node in range(3):
        children = [
            carried[:, used[a:b]].any(axis=1) for a, b in pairwise(shape.child_bounds(node))
        ]
        here = np.any(children, axis=0)
        chunk = chunks[node]
        weights = dense_weights(chunk, rows.n_features)
        assert (np.diff(chunk.features) > 0).all()
        assert set(chunk.features.tolist()) <= set(np.flatnonzero(x[here].any(axis=0)).tolist())
        for c in (0, len(children) - 1):
            sign = np.where(children[c][here], 1.0, -1.0)
            model = LinearSVC(C=1.0, dual=True, tol=1e-6, max_iter=200_000, random_state=0).fit(
                x[here], sign
            )
            least = hinge_objective(x[here], sign, model.coef_[0], model.intercept_[0], 1.0)
            found = hinge_objective(x[here], sign, weights[:, c], float(chunk.bias[c]), 1.0)
            assert found == pytest.approx(least, rel=1e-3)


def test_cost_rises_from_the_root_to_nodes_of_fewer_rows() -> None:
    rows, labels = _data(5)
    shape, members, _ = _two_groups(labels, 8)
    even, rising = (
        SolverOptions("squared_hinge", 0.5, decay, 0.0, 1e-3, 1000, 0.0) for decay in (0.0, 1.0)
    )
    one, other = (
        train_classifiers(rows, shape, members, each, Tools(1)) for each in (even, rising)
    )
    assert np.array_equal(one[0].weight, other[0].weight)
    for node in (1, 2):
        assert np.abs(one[node].weight).sum() < np.abs(other[node].weight).sum()
    costs = SolverOptions("squared_hinge", 0.5, 1.0, 0.5, 1, 1, 0).costs_at(
        400, 100, np.array([100, 25, 0])
    )
    assert costs.tolist() == pytest.approx([2.0, 4.0, 20.0] + 13 * [2.0])


def test_stages_are_reported_to_their_end() -> None:
    told = []
    parameters = parse_parameters("label-tree", ["leaf_size=5"])
    train("label-tree", parameters, *_data(0), 0, 2, lambda *now: told.append(now))
    assert all(0 <= done <= total for _, done, total in told)
    last = {stage: done == total for stage, done, total in told}
    assert last == {"label representations": True, "clustering": True, "classifiers": True}


def test_data_and_settings_that_cannot_be_used_are_refused() -> None:
    rows, labels = _data(0)
    parameters = parse_parameters("label-tree", [])
    with pytest.raises(BadData, match="expected labels for 399 rows, found them for 400"):
        train("label-tree", parameters, rows._replace(indptr=rows.indptr[:-1]), labels)
    with pytest.raises(BadParameter, match="threads >= 1"):
        train("label-tree", parameters, rows, labels, threads=0)
    with pytest.raises(BadParameter, match="seed >= 0"):
        estimate("label-tree", parameters, TrainingSet(rows, labels), Tools(-1))
    with pytest.raises(
        BadParameter, match="expected parameters of label-tree, found OvrParameters"
    ):
        train("label-tree", parse_parameters("ovr", []), rows, labels)


def test_rows_of_few_features_lose_more_small_weights() -> None:
    assert [prune_of("auto", n) for n in (0, 1, 40, 300)] == [0.1] * 4
    assert [prune_of("auto", n) for n in (1200, 30_000)] == pytest.approx([0.05, 0.01])
    for said in (0, 0.0, 0.1, 0.3, 100):
        assert prune_of(said, 40) == prune_of(said, 1200) == said


@pytest.mark.parametrize("name", ["label-tree", "ovr"])
def test_a_model_of_long_rows_has_the_bound_of_its_rows(name: str) -> None:
    rng = np.random.default_rng(7)
    data = data_of(np.abs(rng.standard_normal((60, 1200))) / 30, rng.random((60, 5)) < 0.3)
    auto, same, tenth = (
        trained_by(name, data, *items) for items in ([], ["prune=0.05"], ["prune=0.1"])
    )
    assert bits_of(auto) == bits_of(same)
    assert auto.n_nonzeros == same.n_nonzeros > tenth.n_nonzeros
