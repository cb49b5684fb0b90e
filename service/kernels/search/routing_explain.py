"""Why a row reached a leaf of a decision tree: the nodes on its path, and what each feature added there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import struct_at
from model_store.ensemble import TreeEnsemble
from service.kernels.search.call import Call
from service.kernels.search.explain import keep_most
from service.kernels.search.scoring import Scorer, score_alone
from service.kernels.search.workspace import Workspace


@kernel
def explain_route(
    call_at: NDArray[np.int64],
    leaf: int,
    path_out: NDArray[np.int32],
    margin_out: NDArray[np.float32],
    features_out: NDArray[np.int32],
    shares_out: NDArray[np.float32],
) -> None:
    """Walk a leaf's path from below the root to the leaf, of `depth` nodes.

    call_at          of a Call: the row is its first one
    path_out         int32[depth]: the nodes
    margin_out       float32[depth]: their margins, with the bits that routing compares
    features_out     int32[depth, FEATURES_MAX], and
    shares_out       float32[depth, FEATURES_MAX]: what adds most to the node's margin, as of `explain_leaf`
    Cost: a chunk a node, and a row of the chunk a feature and node.
    """
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    work = struct_at(Workspace, call.work)
    node = leaf
    for step in range(len(path_out) - 1, -1, -1):
        above = ensemble.parent[node]
        path_out[step] = node
        score_alone(scorer, above, call.first)
        margin_out[step] = work.margins[0, node - ensemble.child_ptr[above]]
        keep_most(ensemble, node, call, scorer, features_out[step], shares_out[step])
        node = above
