"""The rows near a text, which rank the candidates of a combined version."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    check_all,
    check_lists,
    empty_group,
    file_name,
    has_group,
    take_group,
)
from xylem_store.compiled.handles import F32_1, I32_1, I64_1, U8_1, handle
from xylem_store.errors import Corrupt

NEAR = "near"  # the prefix of the names of these arrays

ROWS_MAX = 64  # the most rows of a label

OTHERS_MAX = 32  # the most labels that are stored as true together with a label

NEAREST = 50  # the most rows that vote

# The features of a candidate that come from near rows.
#
# The first four come from the cosines between the row that is answered and the label's rows. The
# mean cosine is the product with the centroid of these rows, which therefore needs no arrays of its
# own. Each is 0 if a label has no rows; if it has two, the third greatest is 0.
#
# The next three come from votes. The NEAREST of all rows vote for their labels, by the cube of
# their cosines. The features are the votes for the label, these as a share of all votes, and the
# greatest cosine of a row that votes for the label.
#
# The next one says how often the label was true together with the first member's best labels: the
# mean over these, weighted by their scores. Three more are the greatest cosine, the sum of cubes
# and this expectation, each divided by its greatest value among the candidates of the row.
#
# The last five are the row's context. "score beside the next" is the logarithm of the first
# member's score for the label divided by its score for the next label in its answer; 0 if it does
# not propose the label. The others are equal for all candidates of a row, and are computed from the
# first member's scores and the candidates' votes.
NEAR_FEATURES = (
    "greatest cosine",
    "mean of the three greatest",
    "sum of cubes",
    "mean cosine",
    "votes",
    "share of all votes",
    "greatest cosine of a vote",
    "expected by the best labels",
    "share of the greatest cosine",
    "share of the greatest sum of cubes",
    "share of the greatest expectation",
    "score beside the next",
    "sum of the scores",
    "greatest score",
    "sum of the votes",
    "greatest cosine of the votes",
)

CONTEXT = NEAR_FEATURES.index("score beside the next")  # the first feature of a row's context

# The most rows of a feature: those in which it weighs most.
#
# Source: champion lists, Manning, Raghavan and Schütze 2008, "Introduction to Information
# Retrieval", section 7.1.3. With this bound answers do not take longer when there are more rows.
POSTINGS_MAX = 256

ZERO = 128  # the stored value that stands for 0


@handle
class NearRows(NamedTuple):
    """n rows of K labels as an inverted index: lists of F columns of the first member's features.

    label_ptr      int64[K + 1]  label l has the rows label_row[label_ptr[l] : label_ptr[l + 1]],
                                 at most ROWS_MAX
    label_row      int32[..]     ascending within a label
    feature        int32[F]      ascending, below the number of the first member's columns
    feature_ptr    int64[F + 1]  feature i has the rows row[feature_ptr[i] : feature_ptr[i + 1]],
                                 at most POSTINGS_MAX
    row            int32[..]     ascending within a feature
    value          uint8[..]     (value - ZERO) * scale[r] is the value of the feature in row r, at
                                 length 1
    scale          float32[n]    0 or more
    row_label_ptr  int64[n + 1]  row r votes for row_label[row_label_ptr[r] : row_label_ptr[r + 1]]
    row_label      int32[..]     ascending within a row: its labels, none if they are too many
    other_ptr      int64[K + 1]  label l was true together with
                                 other_label[other_ptr[l] : other_ptr[l + 1]]
    other_label    int32[..]     ascending within a label, at most OTHERS_MAX
    other_share    float32[..]   the share, from 0 to 1, of label l's rows that have the other label
    """

    label_ptr: I64_1
    label_row: I32_1
    feature: I32_1
    feature_ptr: I64_1
    row: I32_1
    value: U8_1
    scale: F32_1
    row_label_ptr: I64_1
    row_label: I32_1
    other_ptr: I64_1
    other_label: I32_1
    other_share: F32_1


def has_near(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a version has any arrays of near rows, complete or not."""
    return has_group(arrays, NEAR)


def near_features(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return how many features near rows add to a candidate: 0 in a version without them."""
    return len(NEAR_FEATURES) if has_near(arrays) else 0


def assemble_near(n_labels: int, arrays: Mapping[str, NDArray[Any]]) -> NearRows:
    """Return the near rows of a version, read-only; empty arrays without them. Reads no data.

    Raises Corrupt if its arrays do not fit.
    """
    if not has_near(arrays):
        label_offsets = np.zeros(n_labels + 1, np.int64)
        return empty_group(
            NearRows,
            label_ptr=label_offsets,
            other_ptr=label_offsets,
            feature_ptr=label_offsets[:1],
            row_label_ptr=label_offsets[:1],
        )
    return take_group(
        arrays,
        NEAR,
        NearRows,
        label_ptr=n_labels + 1,
        other_ptr=n_labels + 1,
        value="row",
        feature_ptr="feature+1",
        row_label_ptr="scale+1",
        other_share="other_label",
    )


def check_near(near: NearRows, n_columns: int) -> None:
    """Raise Corrupt unless every invariant of NearRows holds.

    n_columns  of the first member's features

    The caller has checked that the floats are finite.
    """
    n_rows = len(near.scale)
    n_labels = len(near.label_ptr) - 1
    check_lists(NEAR, near, "label_ptr", "label_row", n_rows)
    check_lists(NEAR, near, "feature_ptr", "row", n_rows)
    check_lists(NEAR, near, "row_label_ptr", "row_label", n_labels)
    check_lists(NEAR, near, "other_ptr", "other_label", n_labels)
    for name, ptr, length_max in (
        ("label_ptr", near.label_ptr, ROWS_MAX),
        ("other_ptr", near.other_ptr, OTHERS_MAX),
        ("feature_ptr", near.feature_ptr, POSTINGS_MAX),
    ):
        longest = int(np.diff(ptr).max(initial=0))
        if longest > length_max:
            raise Corrupt(file_name(f"{NEAR}/{name}"), f"at most {length_max} in a list", longest)
    check_all(
        f"{NEAR}/feature",
        (np.diff(near.feature, prepend=np.int64(-1)) > 0) & (near.feature < n_columns),
        f"ascending columns from 0 to {n_columns - 1}",
        near.feature,
    )
    check_all(f"{NEAR}/scale", near.scale >= 0, "0 or more", near.scale)
    check_all(
        f"{NEAR}/other_share",
        (near.other_share >= 0) & (near.other_share <= 1),
        "a share from 0 to 1",
        near.other_share,
    )
