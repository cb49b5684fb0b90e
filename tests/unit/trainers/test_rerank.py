"""The arrays of re-ranking against dense means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadParameter
from service.base.rows import LabelRows, SparseRows
from service.trainers.representations import rerank_arrays
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_labels, to_rows


def dense_means(rows: SparseRows, labels: LabelRows) -> np.ndarray:
    """The mean of the rows of each label, each row at length 1: float64[K, D]."""
    x, y = dense_rows(rows), dense_labels(labels)
    means = np.zeros((labels.n_labels, rows.n_features))
    for label in range(labels.n_labels):
        of_label = [row / np.linalg.norm(row) if row.any() else row for row in x[y[:, label]]]
        if of_label:
            means[label] = np.mean(of_label, axis=0)
    return means


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 20), st.sampled_from([0.0, 0.2, 0.9]))
def test_means_and_norms_are_those_of_dense_rows(seed: int, n_rows: int, n_labels: int, density: float):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, 15, density)
    rows = rows._replace(values=(rows.values * rng.uniform(0.1, 9)).astype(np.float32))
    labels = random_labels(rng, n_rows, n_labels, 0.3)
    found = rerank_arrays(rows, labels, 0.8, 30.0)
    assert {name: array.dtype for name, array in found.items()} == {
        "tail/ptr": np.int64,
        "tail/features": np.int32,
        "tail/values": np.float32,
        "tail/norm2": np.float32,
        "tail/parameters": np.float32,
    }
    assert found["tail/parameters"].tolist() == [np.float32(0.8), 30.0]
    means, ptr = dense_means(rows, labels), found["tail/ptr"]
    assert ptr[0] == 0
    assert len(ptr) == n_labels + 1
    for label in range(n_labels):
        here = slice(ptr[label], ptr[label + 1])
        assert (np.diff(found["tail/features"][here]) > 0).all()
        mean = np.zeros(15)
        mean[found["tail/features"][here]] = found["tail/values"][here]
        assert mean == pytest.approx(means[label], abs=1e-6)
    assert found["tail/norm2"] == pytest.approx((means**2).sum(axis=1), abs=1e-6)


def test_rows_without_features_and_labels_without_rows():
    rows = to_rows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]]))
    labels = to_labels(np.array([[1, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]], bool))
    found = rerank_arrays(rows, labels, 1.0, 0.0)
    assert found["tail/ptr"].tolist() == [0, 2, 3, 3, 3]
    assert found["tail/values"] == pytest.approx([0.3, 0.4, 1.0])
    assert found["tail/norm2"] == pytest.approx([0.25, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("alpha", "gamma", "message"),
    [
        (-0.1, 1.0, "alpha: expected a number from 0 to 1, found -0.1"),
        (1.1, 1.0, "alpha: expected a number from 0 to 1, found 1.1"),
        (float("nan"), 1.0, "alpha: .* found nan"),
        (0.5, -1.0, "gamma: expected a finite number >= 0, found -1.0"),
        (0.5, float("inf"), "gamma: .* found inf"),
        (0.5, float("nan"), "gamma: .* found nan"),
    ],
)
def test_alpha_and_gamma_out_of_range_are_refused(alpha: float, gamma: float, message: str):
    with pytest.raises(BadParameter, match=message):
        rerank_arrays(to_rows(np.eye(2)), to_labels(np.eye(2, dtype=bool)), alpha, gamma)
