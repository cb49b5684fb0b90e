"""Explain why a label has its probability, or why a row reached a leaf of a decision tree: by the
nodes on the path, and what each feature of the row added to their margins.
"""

import numpy as np

from xylem.engine.kernels.search.call import Call, Rows, Search
from xylem.engine.kernels.search.scores import log_links
from xylem.engine.kernels.search.scoring import ALONE, FEATURE, Scorer, call_scorer
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import (
    F32,
    I32,
    I64,
    TreeEnsemble,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)

# The most features of a node that are returned: those with the largest absolute share.
FEATURES_MAX = 5

# Stands behind the last feature if a node has fewer than FEATURES_MAX.
NO_FEATURE = -1

_LARGEST = np.float32(np.finfo(np.float32).max)


@inlined
def keep_share(feature: int, share: np.float32, features_out: I32, shares_out: F32) -> None:
    """Insert a feature into the list of those with the largest shares so far, if it belongs there.

    Of equal shares the first one stays before the others. A share of 0 or NaN is left out; an
    infinite one counts as the largest float32.

    features_out  int32[FEATURES_MAX], NO_FEATURE behind the last one
    shares_out    float32[FEATURES_MAX]: by absolute value, descending
    """
    if abs(share) > 0:
        share = min(max(share, -_LARGEST), _LARGEST)
        size = abs(share)
        place = FEATURES_MAX
        while place > 0 and (features_out[place - 1] < 0 or abs(shares_out[place - 1]) < size):
            if place < FEATURES_MAX:
                features_out[place] = features_out[place - 1]
                shares_out[place] = shares_out[place - 1]
            place -= 1
        if place < FEATURES_MAX:
            features_out[place] = feature
            shares_out[place] = share


@kernel
def keep_shares(features: I32, shares: F32, features_out: I32, shares_out: F32) -> None:
    """Choose the features, of int32[n], with the largest shares, of float32[n].

    The outputs are those of `keep_share`.
    """
    features_out[:] = NO_FEATURE
    for i in range(len(features)):
        keep_share(features[i], shares[i], features_out, shares_out)


@kernel
def explain_leaf(
    call_at: I64,
    leaf: int,
    path_out: I32,
    probability_out: F32,
    score_out: F32,
    features_out: I32,
    shares_out: F32,
    first_tail: int,
) -> None:
    """Explain the `depth` nodes on the path to a leaf: all but the root, the leaf included.

    call_at          the handle of a Call, whose first row is explained
    path_out         int32[depth]: the nodes
    probability_out  float32[depth]: the probability of each node, given its parent; [0] for a
                     decision tree
    score_out        float32[depth]: the product of the probabilities down to each node; in a model
                     of one tree the last one has the same bits as the label's score in every
                     traversal. For a decision tree the margins, with the bits that routing compares
    features_out     int32[depth, FEATURES_MAX]: the row's features that add most to the node's
                     margin, by absolute share, NO_FEATURE behind the last one
    shares_out       float32[depth, FEATURES_MAX]: their shares, value * weight; margin = bias + the
                     sum over all features, but for rounding
    first_tail       the features from this one on count as one, which has this id: a vector's
                     components mean nothing one by one

    Cost: one chunk for each node, and for each feature and node one row of the chunk.
    """
    call = struct_at(Call, call_at)
    ensemble = struct_at(TreeEnsemble, call.ensemble)
    scorer = Scorer(call.scorer, call_at)
    link = struct_at(Search, call.search).link
    work = struct_at(Workspace, call.work)
    rows = struct_at(Rows, call.rows)
    first = rows.indptr[call.first]
    depth = len(path_out)
    node = leaf
    for step in range(depth - 1, -1, -1):
        parent = ensemble.parent[node]
        position = node - ensemble.child_ptr[parent]
        path_out[step] = node
        call_scorer(scorer, ALONE, parent, call.first, 0)
        if len(probability_out) > 0:
            log_links(
                link, ensemble.child_ptr[parent + 1] - ensemble.child_ptr[parent], work.margins[0]
            )
        score_out[step] = work.margins[0, position]
        features_out[step] = NO_FEATURE
        of_tail = np.float32(0.0)
        for i in range(rows.indptr[call.first + 1] - first):
            call_scorer(scorer, FEATURE, parent, i, 0)
            share = work.margins[0, position]
            if rows.indices[first + i] >= first_tail:
                of_tail += share
            else:
                keep_share(rows.indices[first + i], share, features_out[step], shares_out[step])
        keep_share(first_tail, of_tail, features_out[step], shares_out[step])
        node = parent
    total = np.float32(0.0)
    for step in range(len(probability_out)):
        probability_out[step] = np.exp(score_out[step])
        total += score_out[step]
        score_out[step] = np.exp(total)


def depth_of(parent: I32, node: int) -> int:
    """Return the depth of a node: the number of steps from its root."""
    depth = 0
    while parent[node] >= 0:
        node = parent[node]
        depth += 1
    return depth
