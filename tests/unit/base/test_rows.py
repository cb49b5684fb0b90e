"""The algebra of sparse rows, against rows that are lists."""

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows

from xylem.base.rows import LabelRows, SparseRows, offsets, ranges

places = st.lists(st.integers(0, 11), max_size=30)


def _data(seed: int) -> tuple[SparseRows, LabelRows]:
    rng = np.random.default_rng(seed)
    return random_rows(rng, 12, 6, 0.3), random_labels(rng, 12, 5, 0.3)


@given(st.integers(0, 2**31), places)
def test_rows_are_taken_in_the_order_of_their_places(seed: int, chosen: list[int]) -> None:
    rows, labels = _data(seed)
    at = np.array(chosen, np.int64)
    np.testing.assert_array_equal(dense_rows(rows.take(at)), dense_rows(rows)[at])
    np.testing.assert_array_equal(dense_labels(labels.take(at)), dense_labels(labels)[at])


@given(st.integers(0, 2**31), st.lists(st.integers(0, 12), max_size=6))
def test_what_is_cut_joins_again(seed: int, cuts: list[int]) -> None:
    rows, labels = _data(seed)
    bounds = sorted({0, 12, *cuts})
    parts = [rows.cut(first, last) for first, last in pairwise(bounds)]
    of_labels = [labels.cut(first, last) for first, last in pairwise(bounds)]
    assert [part.n_rows for part in parts] == np.diff(bounds).tolist()
    assert all(part.indptr[0] == 0 for part in parts)
    for one, other in ((rows, SparseRows.join(parts)), (labels, LabelRows.join(of_labels))):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@given(st.lists(st.integers(0, 4)))
def test_offsets_of_a_list_and_of_an_array_are_the_sums_so_far(counts: list[int]) -> None:
    expected = [sum(counts[:i]) for i in range(len(counts) + 1)]
    for found in (offsets(counts), offsets(iter(counts)), offsets(np.array(counts, np.int32))):
        assert found.dtype == np.int64
        assert found.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_ranges_are_those_of_each_start(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    assert ranges(starts, lengths).tolist() == [
        i for start, n in pairs for i in range(start, start + n)
    ]
