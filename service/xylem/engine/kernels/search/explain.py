"""Why a label has its probability, and why a row reached a leaf of a decision tree: the nodes on
the path, and what each feature of the row added there.
"""

import numpy as np

from xylem.engine.kernels.search.call import Call, Rows, Search
from xylem.engine.kernels.search.scores import log_links
from xylem.engine.kernels.search.scoring import ALONE, FEATURE, Scorer, call_scorer
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import F32, I32, I64, TreeEnsemble, struct_at
from xylem_store import nonallocating_inlined as inlined
from xylem_store import nonallocating_kernel as kernel

FEATURES_MAX = 5
"""So many features a node are told, those that added or took away most."""

NO_FEATURE = -1
"""Stands behind the last feature where a node has fewer."""

_LARGEST = np.float32(np.finfo(np.float32).max)


@inlined
def keep_share(feature: int, share: np.float32, features_out: I32, shares_out: F32) -> None:
    """Put a feature among those that added most so far, if it belongs
    there; of equals the first one stays.

    features_out  int32[FEATURES_MAX], NO_FEATURE behind the last one
    shares_out    float32[FEATURES_MAX]: by absolute value, descending
    A share of 0 or none is left out; one beyond a float32 counts as its largest number.
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
    """Choose among features, int32[n], by what each added, float32[n]; outputs as of
    `keep_share`.
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
) -> None:
    """Walk a leaf's path from below the root to the leaf, of `depth` nodes.

    call_at          of a Call: the row is its first one
    path_out         int32[depth]: the nodes
    probability_out  float32[depth]: of each node given its parent; [0]: of a decision tree
    score_out        float32[depth]: of each node, the product down to it; in a model of one tree
                     the last has the bits of the label's score in every traversal. Of a decision
                     tree the margins, with the bits that routing compares
    features_out     int32[depth, FEATURES_MAX]: the row's features that add most to the node's
                     margin, by absolute share, NO_FEATURE behind the last one
    shares_out       float32[depth, FEATURES_MAX]: their shares, value * weight; margin = bias + the
                     sum over all features, but for rounding
    Cost: a chunk a node, and a row of the chunk a feature and node.
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
        above = ensemble.parent[node]
        position = node - ensemble.child_ptr[above]
        path_out[step] = node
        call_scorer(scorer, ALONE, above, call.first, 0)
        if len(probability_out) > 0:
            log_links(
                link, ensemble.child_ptr[above + 1] - ensemble.child_ptr[above], work.margins[0]
            )
        score_out[step] = work.margins[0, position]
        features_out[step] = NO_FEATURE
        for i in range(rows.indptr[call.first + 1] - first):
            call_scorer(scorer, FEATURE, above, i, 0)
            share = work.margins[0, position]
            keep_share(rows.indices[first + i], share, features_out[step], shares_out[step])
        node = above
    total = np.float32(0.0)
    for step in range(len(probability_out)):
        probability_out[step] = np.exp(score_out[step])
        total += score_out[step]
        score_out[step] = np.exp(total)


def depth_of(parent: I32, node: int) -> int:
    """Return how many steps a node is below its root."""
    depth = 0
    while parent[node] >= 0:
        node = parent[node]
        depth += 1
    return depth
