from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kernels.text.sort_and_sum import sort_and_sum_rows, sort_labels

values = st.floats(-(2.0**100), 2.0**100, width=32)
pairs = st.lists(st.lists(st.tuples(st.integers(0, 6), values), max_size=40), max_size=6)


def flat(rows: list[list[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    indices = np.array([i for row in rows for i, _ in row], np.int32)
    return indptr, indices, np.array([v for row in rows for _, v in row], np.float32)


@settings(deadline=None)
@given(pairs)
def test_rows_are_sorted_and_summed_in_the_order_given(rows: list[list[tuple[int, float]]]) -> None:
    indptr, indices, values = flat(rows)
    n, bad = sort_and_sum_rows(indptr, indices, values)
    assert bad == -1 and n == indptr[-1]
    for row, start, end in zip(rows, indptr[:-1], indptr[1:], strict=True):
        sums: dict[int, float] = {}
        for i, value in row:
            sums[i] = sums.get(i, 0.0) + value
        assert indices[start:end].tolist() == sorted(sums)
        assert values[start:end].tolist() == [float(np.float32(sums[i])) for i in sorted(sums)]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=6))
def test_labels_are_sorted_sets(rows: list[list[int]]) -> None:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    indices = np.array([i for row in rows for i in row], np.int32)
    n = sort_labels(indptr, indices)
    assert n == indptr[-1]
    found = [indices[a:b].tolist() for a, b in itertools.pairwise(indptr)]
    assert found == [sorted(set(row)) for row in rows]


@pytest.mark.parametrize(
    ("rows", "first_bad"),
    [
        ([[(0, 1.0)], [(0, np.inf)], [(0, np.nan)]], 1),
        ([[(1, 1.0), (0, np.nan)]], 0),
        ([[(0, 1.0)], [(1, 3e38), (1, 3e38)]], 1),
        ([[(1, 3e38), (1, 3e38), (1, -3e38)]], -1),
    ],
)
def test_the_first_row_that_is_not_finite_is_named(
    rows: list[list[tuple[int, float]]], first_bad: int
) -> None:
    assert sort_and_sum_rows(*flat(rows))[1] == first_bad
