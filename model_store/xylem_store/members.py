"""Combined versions: they hold other versions, their members, and rank the members' candidates.

Names of labels in a text propose candidates too. A member's arrays are among the version's own,
each under `member_prefix`; its manifest is in the version's manifest. The ranker is a logistic
model of a candidate's features: linear, or the sum of regression trees (Friedman 2001, "Greedy
function approximation: a gradient boosting machine", algorithm 5), or both.

A candidate has F features: for each member MEMBER_FEATURES; those of names, if the version matches
names; the logarithm of 1 + the label's training rows; then those of near rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    check_all,
    check_lists,
    element_name,
    empty_group,
    file_name,
    group_of,
    has_group,
    take,
    take_group,
)
from xylem_store.compiled.handles import F32_1, I32_1, I64_1, U8_1, handle
from xylem_store.errors import Corrupt
from xylem_store.manifest import Manifest

NEAR = "near"
"""The prefix of the names of these arrays."""

ROWS_MAX = 64
"""The most rows of a label."""

OTHERS_MAX = 32
"""The most labels that are stored as true together with a label."""

NEAREST = 50
"""The most rows that vote."""

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
"""The features of a candidate that come from near rows.

The first four come from the cosines between the row that is answered and the label's rows. The mean
cosine is the product with the centroid of these rows, which therefore needs no arrays of its own.
Each is 0 if a label has no rows; if it has two, the third greatest is 0.

The next three come from votes. The NEAREST of all rows vote for their labels, by the cube of their
cosines. The features are the votes for the label, these as a share of all votes, and the greatest
cosine of a row that votes for the label.

The next one says how often the label was true together with the first member's best labels: the
mean over these, weighted by their scores. Three more are the greatest cosine, the sum of cubes and
this expectation, each divided by its greatest value among the candidates of the row.

The last five are the row's context. "score beside the next" is the logarithm of the first member's
score for the label divided by its score for the next label in its answer; 0 if it does not propose
the label. The others are equal for all candidates of a row, and are computed from the first
member's scores and the candidates' votes.
"""

CONTEXT = NEAR_FEATURES.index("score beside the next")
"""The first feature of a row's context."""

POSTINGS_MAX = 256
"""The most rows of a feature: those in which it weighs most.

Source: champion lists, Manning, Raghavan and Schütze 2008, "Introduction to Information
Retrieval", section 7.1.3. With this bound answers do not take longer when there are more rows.
"""

ZERO = 128
"""The stored value that stands for 0."""


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
        empty_offsets = {"feature_ptr": label_offsets[:1], "row_label_ptr": label_offsets[:1]}
        return empty_group(
            NearRows, label_ptr=label_offsets, other_ptr=label_offsets, **empty_offsets
        )
    sizes: dict[str, int | str] = {
        "label_ptr": n_labels + 1,
        "other_ptr": n_labels + 1,
        "value": "row",
    }
    sizes |= {"feature_ptr": "feature+1", "row_label_ptr": "scale+1", "other_share": "other_label"}
    return take_group(arrays, NEAR, NearRows, **sizes)


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
    rises = np.diff(near.feature, prepend=np.int64(-1)) > 0
    fits = rises & (near.feature < n_columns)
    check_all(f"{NEAR}/feature", fits, f"ascending columns from 0 to {n_columns - 1}", near.feature)
    check_all(f"{NEAR}/scale", near.scale >= 0, "0 or more", near.scale)
    is_share = (near.other_share >= 0) & (near.other_share <= 1)
    check_all(f"{NEAR}/other_share", is_share, "a share from 0 to 1", near.other_share)


RANKER = "ranker"  # the prefix of the names of the ranker's arrays
MEMBER_FEATURES = ("log score", "log rank", "share of the best score", "has the label")
"""The features of a candidate that come from a member."""

CANDIDATES_MAX = 1000
BEAM_MAX = 1000
NODES_MAX = 63
TREES_MAX = 10_000
FEATURES_MAX = 256

NO_LABEL = -1
"""Stands for a label of a member that the combined version does not have."""


@handle
class Ranker(NamedTuple):
    """Makes the margin m of a candidate from its features x; its probability is 1 / (1 + exp(-m)).

    linear     float32[F + 1]  m begins with x . linear[:F] + linear[F]
    tree_ptr   int32[T + 1]    tree t has the nodes tree_ptr[t] .. tree_ptr[t + 1] - 1, the root
               first
    feature    int32[N]        the feature that an inner node compares with its threshold
    threshold  float32[N]      a candidate goes to child + 1 if x[feature] > threshold, else to
               child
    child      int32[N]        greater than the node, in its tree, and so is child + 1; in a leaf:
               the node itself
    value      float32[N]      what a leaf adds to m
    """

    linear: F32_1
    tree_ptr: I32_1
    feature: I32_1
    threshold: F32_1
    child: I32_1
    value: F32_1


class Proposing(NamedTuple):
    """The settings by which a combined version finds its candidates.

    candidates     the number of best labels that each member proposes
    beam_width     of the members' searches
    name_features  the number of features of a concept, in the last columns of a row; 0: no names
                   are matched
    concepts       labels 0 .. concepts - 1 are the vocabulary's
    """

    candidates: int
    beam_width: int
    name_features: int
    concepts: int


def assemble_ranker(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> Ranker:
    """Return the ranker of a combined version, read-only. Reads no data.

    Raises Corrupt if an array is missing or does not fit.
    """
    for number, member in enumerate(manifest.members):
        take(arrays, map_name(number), "int32", (member.n_labels,))
    take(arrays, f"{RANKER}/proposing", "int32", (len(Proposing._fields),))
    assemble_near(manifest.n_labels, arrays)
    return take_group(arrays, RANKER, Ranker, feature="child", threshold="child", value="child")


def ranker_arrays(
    ranker: Ranker, proposing: Proposing, maps: list[NDArray[np.int32]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a ranker by name.

    maps  for each member the ids of its labels in the combined version, or NO_LABEL
    """
    arrays = group_of(RANKER, ranker) | {f"{RANKER}/proposing": np.array(proposing, np.int32)}
    return arrays | {map_name(number): labels for number, labels in enumerate(maps)}


def map_name(number: int) -> str:
    """Return the name of the array that maps the labels of a member."""
    return f"{RANKER}/labels{number}"


def proposing_of(arrays: Mapping[str, NDArray[Any]]) -> Proposing:
    """Return the settings by which a combined version finds its candidates."""
    return Proposing(*arrays[f"{RANKER}/proposing"].tolist())


def check_ranker(ranker: Ranker, manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise Corrupt unless indices are in bounds and every walk down a tree ends.

    The caller has checked that the floats are finite.
    """
    proposing = proposing_of(arrays)
    limits = Proposing(CANDIDATES_MAX, BEAM_MAX, FEATURES_MAX, manifest.n_labels)
    for i, (name, value) in enumerate(proposing._asdict().items()):
        least = 0 if name in ("name_features", "concepts") else 1
        if not least <= value <= limits[i]:
            raise Corrupt(
                element_name(f"{RANKER}/proposing", i), f"{least} to {limits[i]} {name}", value
            )
    for number in range(len(manifest.members)):
        labels = arrays[map_name(number)]
        fits = (labels >= NO_LABEL) & (labels < manifest.n_labels)
        check_all(map_name(number), fits, f"{NO_LABEL} or labels below {manifest.n_labels}", labels)
        mapped_labels = labels[labels >= 0]
        if len(np.unique(mapped_labels)) < len(mapped_labels):
            raise Corrupt(element_name(map_name(number), 0), "each label once", "one twice")
    n_features = len(ranker.linear) - 1
    expected = candidate_features(len(manifest.members), proposing) + near_features(arrays)
    if n_features != expected or n_features > FEATURES_MAX:
        raise Corrupt(
            element_name(f"{RANKER}/linear", 0),
            f"{expected} features, {FEATURES_MAX} at most, and a constant",
            n_features,
        )
    _check_trees(ranker, n_features)


def candidate_features(n_members: int, proposing: Proposing) -> int:
    """Return the number of features of a candidate in a version without near rows."""
    return len(MEMBER_FEATURES) * n_members + proposing.name_features + 1


def _check_trees(ranker: Ranker, n_features: int) -> None:
    n_nodes = len(ranker.child)
    ptr = ranker.tree_ptr
    is_offsets = 1 <= len(ptr) <= TREES_MAX + 1 and ptr[0] == 0 and ptr[-1] == n_nodes
    sizes = np.diff(ptr)
    if not is_offsets or (sizes < 1).any() or (sizes > NODES_MAX).any():
        expected = f"offsets from 0 to {n_nodes} of trees of 1 to {NODES_MAX} nodes"
        raise Corrupt(element_name(f"{RANKER}/tree_ptr", 0), expected, "others")
    ends = np.repeat(ptr[1:], sizes)
    nodes = np.arange(n_nodes)
    is_inner = ranker.child != nodes
    is_above = (ranker.child > nodes) & (ranker.child.astype(np.int64) + 1 < ends)
    check_all(f"{RANKER}/child", is_above | ~is_inner, "itself, or two nodes above", ranker.child)
    below = np.concatenate([ranker.child[is_inner], ranker.child[is_inner] + 1])
    if len(np.unique(below)) < len(below):
        raise Corrupt(
            element_name(f"{RANKER}/child", 0), "each node below one other", "one below two"
        )
    fits = (ranker.feature >= 0) & (ranker.feature < n_features)
    check_all(f"{RANKER}/feature", fits, f"a feature below {n_features}", ranker.feature)
