"""A TreeEnsemble as the traversals are handed it."""

from __future__ import annotations

import numpy as np

from model_store.compiled.handles import Kinds, borrower
from model_store.ensemble import TreeEnsemble

ENSEMBLE_KINDS: Kinds = {
    "child_ptr": (np.int32, 1),
    "parent": (np.int32, 1),
    "node_label": (np.int32, 1),
    "label_leaf": (np.int32, 2),
    "node_chunk": (np.int32, 1),
    "node_bias": (np.float32, 1),
    "node_scale": (np.float32, 1),
    "directory": (np.uint32, 3),
    "block_ptr": (np.int64, 1),
    "blocks": (np.uint32, 2),
    "row_start": (np.int64, 1),
    "row_ptr": (np.int32, 1),
    "sparse_ptr": (np.int64, 1),
    "sparse": (0, 1),
    "dense_ptr": (np.int64, 1),
    "dense": (1, 1),
    "leaf_ptr": (np.int64, 1),
    "leaf_label": (np.int32, 1),
    "leaf_value": (np.float32, 1),
}
"""The samples are empty arrays of the dtypes of `sparse` and `dense`."""

borrow_ensemble = borrower(TreeEnsemble, ENSEMBLE_KINDS)
