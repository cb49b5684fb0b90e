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
    element_name,
    group_of,
    take,
    take_group,
)
from xylem_store.compiled.handles import F32_1, I32_1, handle
from xylem_store.errors import Corrupt
from xylem_store.manifest import Manifest
from xylem_store.near import assemble_near, near_features

RANKER = "ranker"  # the prefix of the names of the ranker's arrays

# The features of a candidate that come from a member.
MEMBER_FEATURES = ("log score", "log rank", "share of the best score", "has the label")

CANDIDATES_MAX = 1000
BEAM_MAX = 1000
NODES_MAX = 63
TREES_MAX = 10_000
FEATURES_MAX = 256

NO_LABEL = -1  # stands for a label of a member that the combined version does not have


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
        check_all(
            map_name(number),
            (labels >= NO_LABEL) & (labels < manifest.n_labels),
            f"{NO_LABEL} or labels below {manifest.n_labels}",
            labels,
        )
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
        raise Corrupt(
            element_name(f"{RANKER}/tree_ptr", 0),
            f"offsets from 0 to {n_nodes} of trees of 1 to {NODES_MAX} nodes",
            "others",
        )
    ends = np.repeat(ptr[1:], sizes)
    nodes = np.arange(n_nodes)
    is_inner = ranker.child != nodes
    check_all(
        f"{RANKER}/child",
        ((ranker.child > nodes) & (ranker.child.astype(np.int64) + 1 < ends)) | ~is_inner,
        "itself, or two nodes above",
        ranker.child,
    )
    below = np.concatenate([ranker.child[is_inner], ranker.child[is_inner] + 1])
    if len(np.unique(below)) < len(below):
        raise Corrupt(
            element_name(f"{RANKER}/child", 0), "each node below one other", "one below two"
        )
    check_all(
        f"{RANKER}/feature",
        (ranker.feature >= 0) & (ranker.feature < n_features),
        f"a feature below {n_features}",
        ranker.feature,
    )
