"""Draw near rows, some of each label, from training rows; and find groups of similar rows.

Rows of a group are held out together. Held-out rows represent rows that come later, often from
other sources than the training rows. If a row is held out while a similar row is not, a ranker
learns to trust near rows more than it should.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xylem.base import BadParameter, Dataset, LabelRows, SparseRows, offsets, ranges
from xylem.vocabulary.featurizers import rows_of_member
from xylem.vocabulary.ranker import Candidates, gain_of, precisions, rank_by_folds
from xylem_store import (
    CONTEXT,
    F32,
    F64,
    I32,
    I64,
    NEAR,
    NEAR_FEATURES,
    OTHERS_MAX,
    POSTINGS_MAX,
    ROWS_MAX,
    ZERO,
    Model,
    NearRows,
    group_of,
)

# The number of near rows in all, unless rows of labels are more.
#
# All of them vote, so with more of them nearer ones are found.
KEPT_ROWS = 1 << 16

# At most this many features of a row are stored, those with the largest values.
#
# Products with whole rows do not rank better.
FEATURES_MAX = 24

# Rows with more labels do not vote, nor count for labels that are true together.
#
# They would take too long.
LABELS_MAX = 100

SMOOTHING = 2.0

# The integer that a row's largest value is stored as.
#
# A value not larger than 1 / (2 * _LARGEST) of the largest one becomes 0.
_LARGEST = 127


def check_rerank(link: str, trainer: str) -> None:
    """Raise BadParameter for a model whose candidates cannot be ranked by near rows."""
    if link == "softmax":
        raise BadParameter(
            f"rerank: expected a trainer of sparse rows, found {trainer}, whose scores sum to 1"
        )


def near_of(
    member: Model, dataset: Dataset, labels: LabelRows, seed: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of near rows, which have a member's features, but not those of vectors.

    dataset  the rows that the member was trained on
    labels   of these rows, with the ids of the combined version

    Raises BadParameter for a member of dense rows, BadInput for instances of another kind.
    """
    check_rerank(member.manifest.link, member.manifest.trainer.name)
    return group_of(
        NEAR, draw_near_rows(rows_of_member(member, dataset).without_tail(), labels, seed)
    )


def near_or_not(
    kind: str, candidates: Candidates, margins: F64, seed: int
) -> tuple[Candidates, F64, dict[str, Any]]:
    """Return candidates and margins by folds, without near rows if these gain nothing.

    The third part is the measurement: whether near rows are "kept", and the precisions "alone",
    without them, and "ranked", with them.
    """
    plain = candidates._replace(
        features=np.ascontiguousarray(candidates.features[:, : -len(NEAR_FEATURES)])
    )
    plain_margins = rank_by_folds(kind, plain, seed)
    near = candidates.features[:, -len(NEAR_FEATURES) :]
    if not np.ptp(near[:, :CONTEXT], axis=0).any():  # no row is near, so a gain would be chance
        margins = plain_margins
    measured = gain_of(
        precisions(plain, plain_margins), precisions(candidates, margins), len(candidates.ptr) - 1
    )
    return (candidates, margins, measured) if measured["kept"] else (plain, plain_margins, measured)


def place_near(near: NearRows, old: I32) -> NearRows:
    """Return near rows for other labels.

    old  label i was label old[i] before, and each occurs once; below 0: label i is new, and has no
         rows
    """
    is_old = old >= 0
    new = np.full(len(near.label_ptr) - 1, -1, np.int32)
    new[old[is_old]] = np.flatnonzero(is_old)
    n_rows, n_others = (
        np.where(is_old, np.diff(ptr)[old], 0) for ptr in (near.label_ptr, near.other_ptr)
    )
    other_places = ranges(near.other_ptr[old], n_others)
    other_ptr, chosen = _renumbered(n_others, near.other_label[other_places], new)
    row_label_ptr, row_label_places = _renumbered(np.diff(near.row_label_ptr), near.row_label, new)
    return near._replace(
        label_ptr=offsets(n_rows),
        label_row=near.label_row[ranges(near.label_ptr[old], n_rows)],
        row_label_ptr=row_label_ptr,
        row_label=new[near.row_label[row_label_places]],
        other_ptr=other_ptr,
        other_label=new[near.other_label[other_places[chosen]]],
        other_share=near.other_share[other_places[chosen]],
    )


def _renumbered(counts: I64, labels: I32, new: I32) -> tuple[I64, I64]:
    """Return lists of labels after each label became new[label].

    The parts are the offsets of the lists, and the places of the labels that are left, with labels
    ascending in each list.
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    new_labels = new[labels]
    order = np.lexsort((new_labels, owner))
    order = order[new_labels[order] >= 0]
    return offsets(np.bincount(owner[order], minlength=len(counts))), order


def draw_near_rows(rows: SparseRows, labels: LabelRows, seed: int) -> NearRows:
    """Return at most ROWS_MAX rows of each label, and others until there are KEPT_ROWS.

    The rows are drawn by the seed. Cosines with them use the lengths of whole rows, and the
    features that are stored. Cost: sorts of the rows and of their features.
    """
    label_ptr, drawn = _draw_rows_of_labels(labels, seed)
    is_used = np.zeros(rows.n_rows, np.bool_)
    is_used[drawn] = True
    unused = np.random.default_rng(seed).permutation(np.flatnonzero(~is_used))
    is_used[unused[: max(0, KEPT_ROWS - int(is_used.sum()))]] = True
    used = np.flatnonzero(is_used)
    of_row, features, values, lengths = largest_features(rows.take(used))
    largest = np.zeros(len(used))
    np.maximum.at(largest, of_row, np.abs(values))
    step = np.where(largest > 0, largest / _LARGEST, 1)
    scale = np.divide(step, lengths, out=np.zeros(len(used)), where=lengths > 0)
    listed = largest_rows(of_row, features, values * (scale / step)[of_row])
    feature, n_rows = np.unique(features[listed], return_counts=True)
    value = np.rint(values[listed] / step[of_row[listed]]) + ZERO
    voting = labels.take(used)
    n_true = np.diff(voting.indptr)
    n_voting_labels = np.where(n_true <= LABELS_MAX, n_true, 0)
    return NearRows(
        label_ptr,
        np.searchsorted(used, drawn).astype(np.int32),
        feature.astype(np.int32),
        offsets(n_rows),
        of_row[listed].astype(np.int32),
        value.astype(np.uint8),
        scale.astype(np.float32),
        offsets(n_voting_labels),
        voting.indices[ranges(voting.indptr[:-1], n_voting_labels)],
        *_co_occurring_labels(labels),
    )


def largest_features(rows: SparseRows) -> tuple[I64, I32, F64, F64]:
    """Return the FEATURES_MAX largest features of each row, and the lengths of the whole rows.

    The parts are the row, the feature and the value of each stored feature, and the lengths,
    float64[n].
    """
    values = rows.values.astype(np.float64)
    of_row = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    lengths = np.sqrt(np.bincount(of_row, values**2, rows.n_rows))
    chosen = _first_of_groups(
        of_row, np.lexsort((rows.indices, -np.abs(values), of_row)), FEATURES_MAX
    )
    return of_row[chosen], rows.indices[chosen], values[chosen], lengths


def largest_rows(of_row: I64, features: I32, weights: F64) -> I64:
    """Return the places of the POSTINGS_MAX largest weights of each feature, by feature and row."""
    listed = _first_of_groups(
        features, np.lexsort((of_row, -np.abs(weights), features)), POSTINGS_MAX
    )
    return listed[np.lexsort((of_row[listed], features[listed]))]


def _first_of_groups(groups: NDArray[Any], order: I64, limit: int) -> I64:
    """Return the places of the first members of each group, at most `limit` of them.

    order  the places of the members, in which those of a group follow each other
    """
    return order[places_in_groups(groups[order]) < limit]


def places_in_groups(ordered: NDArray[Any]) -> I64:
    """Return the place of each member in its group, from 0.

    The members of a group follow each other.
    """
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    return np.arange(len(ordered)) - np.repeat(begins, np.diff(np.append(begins, len(ordered))))


def _draw_rows_of_labels(labels: LabelRows, seed: int) -> tuple[I64, I64]:
    """Draw at most ROWS_MAX rows of each label by the seed.

    Returns the offsets of the labels' rows, int64[K + 1], and the rows, ascending within a label.
    """
    row = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
    lot = np.random.default_rng(seed).permutation(len(row))
    counts = np.bincount(labels.indices, minlength=labels.n_labels)
    chosen = _first_of_groups(labels.indices, np.lexsort((lot, labels.indices)), ROWS_MAX)
    chosen = chosen[np.lexsort((row[chosen], labels.indices[chosen]))]
    return offsets(np.minimum(counts, ROWS_MAX)), row[chosen]


def _co_occurring_labels(labels: LabelRows) -> tuple[I64, I32, F32]:
    """Return for each label those that are most often true together with it, with their shares.

    The parts are offsets, at most OTHERS_MAX other labels of each label, and a share for each of
    these. A share is n / (rows of the label + SMOOTHING), so that a single row says little.
    """
    voting = labels.take(np.flatnonzero(np.diff(labels.indptr) <= LABELS_MAX))
    is_true = csr_array(
        (np.ones(len(voting.indices), np.int32), voting.indices, voting.indptr),
        (voting.n_rows, labels.n_labels),
    )
    together = (is_true.T @ is_true).tocoo()
    counts = np.bincount(voting.indices, minlength=labels.n_labels)
    is_pair = together.row != together.col
    label = together.row[is_pair]
    other = together.col[is_pair]
    n = together.data[is_pair]
    order = np.lexsort((other, -n, label))
    n_pairs = np.bincount(label, minlength=labels.n_labels)
    order = _first_of_groups(label, order, OTHERS_MAX)
    order = order[np.lexsort((other[order], label[order]))]
    share = n[order] / (counts[label[order]] + SMOOTHING)
    return (
        offsets(np.minimum(n_pairs, OTHERS_MAX)),
        other[order].astype(np.int32),
        share.astype(np.float32),
    )


ALIKE = 0.6  # rows with at least this cosine are similar

# A group of more rows is divided.
GROUP_ROWS = 50

_COMPARED = 1000  # rows that are compared with all others at a time


def group_alike(rows: SparseRows, rows_max: int = GROUP_ROWS) -> I64:
    """Return the group of each row, int64[n] from 0: similar rows are in the same group.

    Two rows are similar if their cosine is at least ALIKE; rows that are connected by similar rows
    are in one group too. A group of more than `rows_max` rows is divided in the order of its rows.
    Cosines are of the features that near rows store (`largest_features`, `largest_rows`). Cost: for
    each row at most FEATURES_MAX * POSTINGS_MAX products.
    """
    of_row, features, values, lengths = largest_features(rows)
    weights = values / np.where(lengths > 0, lengths, 1)[of_row]
    shape = (rows.n_rows, rows.n_features)
    listed = largest_rows(of_row, features, weights)
    row_matrix = csr_array((weights, (of_row, features)), shape)
    lists = csr_array((weights[listed], (features[listed], of_row[listed])), shape[::-1])
    row = []
    other = []
    for first in range(0, rows.n_rows, _COMPARED):
        cosines = (row_matrix[first : first + _COMPARED] @ lists).tocoo()
        is_alike = cosines.data >= ALIKE
        row.append(first + cosines.row[is_alike])
        other.append(cosines.col[is_alike])
    group = _smallest_connected(rows.n_rows, np.concatenate(row), np.concatenate(other))
    order = np.argsort(group, kind="stable")
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(places_in_groups(group[order]) % rows_max == 0) - 1
    return groups


def _smallest_connected(n: int, row: I64, other_row: I64) -> I64:
    """Return for each of n rows the smallest row that it is connected with.

    row, other_row  the pairs that connect rows

    Cost: some passes.
    """
    smallest = np.arange(n)
    while True:
        smaller = smallest.copy()
        np.minimum.at(smaller, row, smallest[other_row])
        np.minimum.at(smaller, other_row, smallest[row])
        smaller = smaller[smaller]
        if np.array_equal(smaller, smallest):
            return smallest
        smallest = smaller
