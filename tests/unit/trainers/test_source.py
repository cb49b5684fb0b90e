"""Windows over rows that come in parts: always the same ones, within their bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.rows import LabelRows
from service.trainers.source import MemorySource, count, windows
from service.trainers.spec import TrainingSet
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_labels, to_rows


class _Parts:
    """A source that yields its rows cut at some bounds."""

    def __init__(self, data, cuts):
        self.census = count(data)
        x, y = dense_rows(data.rows), dense_labels(data.labels)
        bounds = [0, *sorted({c for c in cuts if 0 < c < len(x)}), len(x)]
        self.cut = [TrainingSet(to_rows(x[a:b]), to_labels(y[a:b])) for a, b in pairwise(bounds)]

    def parts(self):
        yield from self.cut


def _data(seed, n_rows):
    rng = np.random.default_rng(seed)
    return TrainingSet(random_rows(rng, n_rows, 10, 0.3), random_labels(rng, n_rows, 5, 0.4))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**31),
    st.integers(1, 60),
    st.lists(st.integers(1, 59), max_size=8),
    st.integers(1, 70),
    st.integers(1, 150),
)
def test_windows_do_not_depend_on_parts(seed, n_rows, cuts, rows_max, entries_max):
    data = _data(seed, n_rows)
    whole = list(windows(MemorySource(data), rows_max, entries_max))
    in_parts = list(windows(_Parts(data, cuts), rows_max, entries_max))
    assert len(whole) == len(in_parts)
    for one, other in zip(whole, in_parts, strict=True):
        for a, b in zip((*one.rows, *one.labels), (*other.rows, *other.labels), strict=True):
            np.testing.assert_array_equal(a, b)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 70), st.integers(1, 150))
def test_windows_hold_every_row_once_and_no_more_than_asked(seed, n_rows, rows_max, entries_max):
    data = _data(seed, n_rows)
    found = list(windows(MemorySource(data), rows_max, entries_max))
    np.testing.assert_array_equal(np.vstack([dense_rows(w.rows) for w in found]), dense_rows(data.rows))
    np.testing.assert_array_equal(
        np.vstack([dense_labels(w.labels) for w in found]), dense_labels(data.labels)
    )
    for number, window in enumerate(found):
        entries = np.diff(window.rows.indptr) + np.diff(window.labels.indptr)
        assert 1 <= len(entries) <= rows_max
        assert entries[:-1].sum() < entries_max
        if number < len(found) - 1:
            assert len(entries) == rows_max or entries.sum() >= entries_max


def test_a_census_counts_rows_and_non_zeros_of_labels():
    rows = to_rows(np.array([[1.0, 0, 2], [0, 0, 0], [1, 1, 1]]))
    labels = LabelRows(np.array([0, 2, 3, 4]), np.array([0, 3, 3, 0], np.int32), 4)
    census = count(TrainingSet(rows, labels))
    assert (census.n_rows, census.n_features, census.n_nonzeros) == (3, 3, 5)
    assert census.label_rows.tolist() == [2, 0, 0, 2]
    assert census.label_nonzeros.tolist() == [5, 0, 0, 2]
