"""A row of weight k trains as k equal rows, in every trainer; a label's weight counts where it is
true, and nowhere else.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.helpers.steps import Parts
from tests.helpers.trainings import Data, dense_weights, trained_by
from tests.oracles.problems import (
    dense_labels,
    dense_rows,
    hinge_objective,
    logistic_objective,
    random_labels,
    random_rows,
    to_labels,
    to_rows,
)

from xylem.base import BadParameter, Crew
from xylem.base.rows import LabelRows, RowWeights
from xylem.trainers import MemorySource, TrainingSet, fit, parse_parameters
from xylem.trainers.source import ROWS_MAX, Census, Tools, WholeRows
from xylem_store.decoding import chunk_of

TIGHT = ("eps=0.0001", "max_epochs=1000", "prune=0")
BATCH: dict[str, tuple[str, ...]] = {
    "label-tree": ("label-tree", "leaf_size=5", "arity=4", *TIGHT),
    "ovr": ("ovr", *TIGHT),
    "ovr, logistic": ("ovr", "loss=logistic", *TIGHT),
    "plt": ("plt", "leaf_size=5", "arity=4", *TIGHT),
}
OTHERS: dict[str, tuple[str, ...]] = {
    "plt, sgd": ("plt", "solver=sgd"),
    "lomtree": ("lomtree",),
    "fastxml": ("fastxml", "trees=2"),
    "pfastrexml": ("pfastrexml", "trees=2"),
    "ldsm": ("ldsm", "trees=2", "rerank=yes"),
    "huffman-tree": ("huffman-tree",),
    "learned-tree": ("learned-tree",),
}


def data_of_copies(seed: int = 3, n_rows: int = 60) -> tuple[Data, Data]:
    """Return rows with whole weights, and the same with each row as often as its weight says."""
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, 40, 0.2)
    labels = random_labels(rng, n_rows, 20, 0.3)
    copies = rng.integers(1, 4, n_rows)
    positions = np.repeat(np.arange(n_rows), copies)
    weighed = labels.weighed(copies.astype(np.float32))
    return (rows, weighed), (rows.take(positions), labels.take(positions))


@pytest.mark.parametrize("name", BATCH)
def test_the_weights_of_batch_solvers_are_those_of_copies(name: str) -> None:
    trainer, *items = BATCH[name]
    one, other = (trained_by(trainer, data, *items) for data in data_of_copies())
    np.testing.assert_array_equal(one.ensemble.label_leaf, other.ensemble.label_leaf)
    for array, array_of_copies in zip(one.ensemble, other.ensemble, strict=True):
        np.testing.assert_allclose(array, array_of_copies, atol=2e-4)


def weights_of(trained: Any, n_features: int) -> np.ndarray:
    """Return the weights and the bias, in the last column, of each label of a model of `ovr`."""
    chunk = chunk_of(trained.ensemble, 0)
    return np.column_stack([dense_weights(chunk, n_features).T, chunk.bias])


@pytest.mark.parametrize(
    ("loss", "objective"), [("squared_hinge", hinge_objective), ("logistic", logistic_objective)]
)
def test_the_objective_is_that_of_copies(loss: str, objective: Any) -> None:
    one, other = data_of_copies()
    least = []
    x, carried = dense_rows(other[0]), dense_labels(other[1])
    for data in (one, other):
        items = (f"loss={loss}", "idf=no", "cost=2", *TIGHT)
        weights = weights_of(trained_by("ovr", data, *items), x.shape[1])
        labels = np.flatnonzero(carried.any(axis=0))
        has_label = carried.any(axis=1)
        least.append(
            [
                objective(
                    x[has_label],
                    np.where(carried[has_label, label], 1.0, -1.0),
                    weights[child, :-1],
                    float(weights[child, -1]),
                    2.0,
                )
                for child, label in enumerate(labels)
            ]
        )
    np.testing.assert_allclose(*least, rtol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_whole_weights_are_whole_rows_to_the_bit(name: str) -> None:
    trainer, *items = OTHERS[name]
    one, other = (trained_by(trainer, data, *items) for data in data_of_copies())
    for array, array_of_copies in zip(one.ensemble, other.ensemble, strict=True):
        np.testing.assert_array_equal(array, array_of_copies)
    for group, array in one.extra.items():
        np.testing.assert_array_equal(array, other.extra[group])


# The trainers that read rows in parts; those that need all rows in memory are left out.
STREAMED = {
    **{name: BATCH[name] for name in ("label-tree", "ovr", "ovr, logistic")},
    **{name: OTHERS[name] for name in ("plt, sgd", "lomtree", "huffman-tree", "learned-tree")},
    "ldsm": ("ldsm", "trees=2", "rerank=no"),
}


@pytest.mark.parametrize("name", STREAMED)
def test_whole_weights_of_a_stream_are_whole_rows(name: str) -> None:
    trainer, *items = STREAMED[name]
    parameters = parse_parameters(trainer, items)
    one, other = (
        fit(trainer, parameters, Parts(TrainingSet(*data), 3), Tools()).ensemble
        for data in data_of_copies()
    )
    for array, array_of_copies in zip(one, other, strict=True):
        np.testing.assert_allclose(array, array_of_copies, atol=2e-4 if name in BATCH else 0)


@pytest.mark.parametrize("clustering", ["balanced", "kmeans"])
def test_blocks_weigh_as_rows_in_memory(clustering: str) -> None:
    (rows, labels), _ = data_of_copies(n_rows=400)
    items = ("leaf_size=5", "arity=4", f"clustering={clustering}")
    parameters = parse_parameters("label-tree", items)
    data = TrainingSet(rows, labels)
    in_memory, in_blocks = (
        fit("label-tree", parameters, source(data), Tools(crew=Crew(2))).ensemble
        for source in (MemorySource, partial(Parts, cuts=3))
    )
    for array, array_of_blocks in zip(in_memory, in_blocks, strict=True):
        np.testing.assert_allclose(array, array_of_blocks, atol=1e-6)


def test_the_large_nodes_of_blocks_weigh_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xylem.trainers.blocks._plan_nodes", lambda blocks, shape: ([0], [], []))
    parameters = parse_parameters("ovr", TIGHT)
    found = []
    for data in data_of_copies():
        trained = fit("ovr", parameters, Parts(TrainingSet(*data), 3), Tools())
        found.append(weights_of(trained, 40))
    rows, labels = data_of_copies()[0]
    plain = trained_by("ovr", (rows, labels._replace(weights=None)), *TIGHT)
    # blocks end after 20 passes, near the optimum
    assert 20 * np.abs(found[0] - found[1]).max() < np.abs(found[0] - weights_of(plain, 40)).max()


def test_a_labels_weight_counts_where_it_is_true() -> None:
    # row 0 carries both labels, of which the first has weight 3: as a positive of label 0 it is
    # there three times, as a positive of label 1 once, and as a negative of label 2 once
    carried = [[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]]
    rows = to_rows(np.eye(4))
    labels = to_labels(np.array(carried))
    of_labels = np.array([3, 1, 1, 1, 1, 1], np.float32)
    weighed = labels.weighed(np.ones(4, np.float32), of_labels)
    items = ("idf=no", "cost=1", *TIGHT)
    found = weights_of(trained_by("ovr", (rows, weighed), *items), 4)
    for label, copies in ((0, [3, 1, 1, 1]), (1, [1, 1, 1, 1]), (2, [1, 1, 1, 1])):
        positions = np.repeat(np.arange(4), copies)
        only = to_labels(np.array(carried)[positions])
        alone = weights_of(trained_by("ovr", (rows.take(positions), only), *items), 4)
        np.testing.assert_allclose(found[label], alone[label], atol=2e-4)


def test_fractions_are_drawn_alike_and_right_on_average() -> None:
    (rows, labels), _ = data_of_copies(n_rows=2000)
    labels = labels.weighed(
        np.full(2000, 1.25, np.float32), np.full(len(labels.indices), 0.5, np.float32)
    )
    source = WholeRows(MemorySource(TrainingSet(rows, labels)), seed=1)
    (first,), (second,) = (list(source.parts()) for _ in range(2))
    assert first.labels.weights is None
    np.testing.assert_array_equal(first.labels.indices, second.labels.indices)
    assert first.n_rows == source.census.n_rows == pytest.approx(2500, rel=0.03)
    assert len(first.labels.indices) == pytest.approx(0.625 * len(labels.indices), rel=0.03)


def test_counts_are_sums_of_weights() -> None:
    labels = LabelRows(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), 3)
    rows = random_rows(np.random.default_rng(0), 2, 4, 1.0)
    labels = labels.weighed(np.array([2.5, 0.1], np.float32), np.array([1, 2, 1], np.float32))
    census = MemorySource(TrainingSet(rows, labels)).census
    assert census.n_rows == 2 and census.weighed.rows == pytest.approx(2.6)
    assert census.weighed.label_rows == pytest.approx([2.5, 5.1, 0])
    n_rows, label_rows = census.weighed.rounded()
    assert (n_rows, label_rows.tolist()) == (5, [2, 5, 0])
    rare = census._replace(weights=census.weighed._replace(label_rows=np.array([0.1, 5, 0])))
    assert rare.weighed.rounded()[1].tolist() == [1, 5, 0]
    both = census + Census(1, 4, 4, 1, np.array([1]), np.array([4]))
    assert both.weighed.label_rows == pytest.approx([3.5, 5.1, 0])


def test_too_many_whole_rows_are_refused() -> None:
    (rows, labels), _ = data_of_copies()
    labels = labels._replace(
        weights=RowWeights(np.full(60, 1e9, np.float32), np.ones(len(labels.indices), np.float32))
    )
    with pytest.raises(BadParameter, match=f"a sum of at most {ROWS_MAX:,} for a trainer"):
        trained_by("fastxml", (rows, labels))
