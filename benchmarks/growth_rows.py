"""Generated rows with the statistics of Amazon-670k, with labels and without."""

import numpy as np
from numpy.typing import NDArray

from xylem.base.rows import LabelRows, SparseRows

N_FEATURES = 135_909
ROW_FEATURES = 75

# Amazon-670k has 490,449 training rows of 670,091 labels, 5.45 labels a row.
_ROWS_A_LABEL = 0.75
_MORE_LABELS_A_ROW = 4.9  # drawn beside the first one; some are drawn twice

# Labels that occur together, and are drawn by a power of a uniform number: some are frequent.
_GROUP_LABELS = 40
_SKEW = 1.5

# A label has so many features of its own, from which this share of its rows' features is drawn.
_LABEL_FEATURES = 30
_OWN_SHARE = 0.4
# many draws repeat a frequent feature
_DRAWS_A_FEATURE = 4


class Zipf:
    """Features whose frequencies follow Zipf's law (exponent 1),
    their ids in no order of frequency.
    """

    def __init__(self) -> None:
        self._feature_of_rank = np.random.default_rng(0).permutation(N_FEATURES).astype(np.int32)

    def draw(self, random: np.random.Generator, n: int) -> NDArray[np.int32]:
        """Return n features; a rank is an exponential of a uniform number, rounded down."""
        ranks = np.exp(random.random(n, np.float32) * np.float32(np.log(N_FEATURES + 1))).astype(
            np.int32
        )
        features: NDArray[np.int32] = self._feature_of_rank[np.minimum(ranks, N_FEATURES) - 1]
        return features


def _row_of(drawn: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the first ROW_FEATURES different features that were drawn, ascending."""
    first = np.sort(np.unique(drawn, return_index=True)[1])[:ROW_FEATURES]
    row: NDArray[np.int32] = np.sort(drawn[first])
    return row


def _rows_of(random: np.random.Generator, indices: NDArray[np.int32]) -> SparseRows:
    """Return rows of these features, int32[n, ROW_FEATURES], with random values, of length 1."""
    values = random.random(indices.shape, np.float32) + np.float32(0.1)
    values /= np.sqrt((values**2).sum(axis=1, keepdims=True))
    indptr = np.arange(len(indices) + 1, dtype=np.int64) * ROW_FEATURES
    return SparseRows(indptr, indices.ravel(), values.ravel(), N_FEATURES)


def generate_rows(n_rows: int) -> SparseRows:
    """Return rows of ROW_FEATURES different features, of length 1."""
    random, zipf = np.random.default_rng(1), Zipf()
    indices = np.empty((n_rows, ROW_FEATURES), np.int32)
    for row in indices:
        row[:] = _row_of(zipf.draw(random, _DRAWS_A_FEATURE * ROW_FEATURES))
    return _rows_of(random, indices)


def generate_labelled(n_labels: int) -> tuple[SparseRows, LabelRows]:
    """Return rows that can be learnt from, and their labels: _ROWS_A_LABEL rows for each label.

    The labels of a row are of one group. Part of its features are drawn from those of its labels,
    the others by Zipf's law. A few labels have no row.
    """
    random, zipf = np.random.default_rng(n_labels), Zipf()
    label_features = zipf.draw(random, n_labels * _LABEL_FEATURES).reshape(
        n_labels, _LABEL_FEATURES
    )
    n_rows = max(1, int(_ROWS_A_LABEL * n_labels))
    n_groups = -(-n_labels // _GROUP_LABELS)
    groups = random.permutation(n_rows) % n_groups
    labels = []
    indices = np.empty((n_rows, ROW_FEATURES), np.int32)
    for row, group in zip(indices, groups.tolist(), strict=True):
        n_drawn = 1 + random.poisson(_MORE_LABELS_A_ROW)
        places = (_GROUP_LABELS * random.random(n_drawn) ** _SKEW).astype(np.int32)
        row_labels = np.unique(np.minimum(group * _GROUP_LABELS + places, n_labels - 1))
        labels.append(row_labels.astype(np.int32))
        drawn = zipf.draw(random, _DRAWS_A_FEATURE * ROW_FEATURES)
        from_labels = np.flatnonzero(random.random(len(drawn)) < _OWN_SHARE)
        drawn[from_labels] = random.choice(label_features[row_labels].ravel(), len(from_labels))
        row[:] = _row_of(drawn)
    label_ptr = np.concatenate([[0], np.cumsum([len(of_row) for of_row in labels])])
    return _rows_of(random, indices), LabelRows(label_ptr, np.concatenate(labels), n_labels)
