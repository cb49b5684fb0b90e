"""Rows in an order by their labels are told from rows in an order by chance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from service.base.rows import LabelRows, offsets
from service.trainers.lomtree.trainer import LabelOrder


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


def test_labels_of_a_row_each_are_in_no_order() -> None:
    order = LabelOrder()
    order.add(_labels(np.arange(5000)))
    assert order.warnings() == []


@pytest.mark.parametrize("cuts", [[], [1], [3, 3, 70_000], list(range(0, 200_000, 997))])
def test_it_does_not_matter_how_rows_are_cut(cuts: list[int]) -> None:
    labels = _labels(np.sort(np.random.default_rng(2).integers(0, 300, 200_000)) // 2)
    whole, parts = LabelOrder(), LabelOrder()
    whole.add(labels)
    bounds = [0, *cuts, 200_000]
    for first, last in pairwise(bounds):
        parts.add(labels.cut(first, last))
    assert whole.difference() == parts.difference() > 0.5


def test_few_rows_and_rows_without_labels_say_nothing() -> None:
    order = LabelOrder()
    assert order.difference() == 0
    order.add(LabelRows(offsets([0] * 50), np.empty(0, np.int32), 3))
    order.add(_labels(np.arange(10)))
    assert order.warnings() == []
