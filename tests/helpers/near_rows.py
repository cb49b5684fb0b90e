"""Random rows with labels, and near rows drawn of them."""

from dataclasses import replace

import numpy as np

from tests.helpers.small_models import small_draft
from tests.oracles.problems import dense_rows, to_labels
from xylem.base.rows import LabelRows, SparseRows, offsets
from xylem.vocabulary.combined import combined_parts, no_ranker
from xylem.vocabulary.near_rows import (
    draw_near_rows,
)
from xylem_store.arrays import group_of
from xylem_store.near import (
    NEAR,
    ZERO,
    NearRows,
)
from xylem_store.version import Draft, model_of

N_LABELS, N_FEATURES = 8, 90
RAW = {"kind": "raw", "norm": "none"}


def random_rows(seed: int, n_rows: int) -> SparseRows:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 40, size=n_rows)
    indices = [np.sort(rng.choice(N_FEATURES, size, replace=False)) for size in sizes]
    values = rng.normal(0, 2, sizes.sum()).astype(np.float32)
    return SparseRows(offsets(sizes), np.concatenate(indices).astype(np.int32), values, N_FEATURES)


def random_labels(seed: int, n_rows: int, n_labels: int = N_LABELS) -> LabelRows:
    rng = np.random.default_rng(seed)
    is_true = rng.random((n_rows, n_labels)) < np.linspace(0.01, 0.9, n_labels)
    is_true[:, 1] = False  # a label without rows
    return to_labels(is_true)


def dense(rows: SparseRows) -> np.ndarray:
    """Return rows at length 1, float64[n, D]."""
    found = dense_rows(rows)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.where(length > 0, length, 1)


def dense_near(near: NearRows) -> np.ndarray:
    """Return the rows that are kept, float64[n, D]."""
    found = np.zeros((len(near.scale), N_FEATURES))
    for i, feature in enumerate(near.feature):
        for at in range(near.feature_ptr[i], near.feature_ptr[i + 1]):
            row = near.row[at]
            found[row, feature] = (int(near.value[at]) - ZERO) * near.scale[row]
    return found


def rows_of(near: NearRows, label: int) -> np.ndarray:
    return near.label_row[near.label_ptr[label] : near.label_ptr[label + 1]]


def voted_by(near: NearRows, row: int) -> list[int]:
    return near.row_label[near.row_label_ptr[row] : near.row_label_ptr[row + 1]].tolist()


def others_of(near: NearRows, label: int) -> dict[int, float]:
    """The labels that are true where this one is, and in which share of its rows."""
    at = slice(near.other_ptr[label], near.other_ptr[label + 1])
    return dict(zip(near.other_label[at].tolist(), near.other_share[at].tolist(), strict=True))


def near_draft(seed: int) -> tuple[Draft, NearRows]:
    """Return a combined version of one label tree with near rows,
    whose ranker finds all labels alike.
    """
    member = small_draft(seed, n_labels=N_LABELS, n_features=N_FEATURES, features=RAW)
    near = draw_near_rows(random_rows(seed, 300), random_labels(seed, 300), seed)
    parts = replace(
        combined_parts([model_of(member)], None, N_LABELS, 10), near=group_of(NEAR, near)
    )
    return parts.draft(no_ranker(parts), 0, {}), near
