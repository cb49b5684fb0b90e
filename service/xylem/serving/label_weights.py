"""The weights of a label's own classifiers, those of its leaf in each label tree, decoded.

`xylem models explain` shows the strongest of them, by the names of their features.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xylem.base import UnsupportedOption
from xylem.engine import FeatureNames, depth_of, feature_names
from xylem_store import COMBINED, F32, I32, Model, TreeEnsemble, chunk_of, name_of


class LeafWeights(NamedTuple):
    """The classifier of a label's leaf in one tree.

    It distinguishes the label from the leaf's siblings.

    tree, leaf  the tree's number and the leaf's node
    depth       nodes on the path from below the root to the leaf
    siblings    the number of other nodes, leaves and inner ones, with the same parent
    bias        the constant term
    features    int32[m]    the features whose weight is not 0, ascending
    weights     float32[m]  their weights
    """

    tree: int
    leaf: int
    depth: int
    siblings: int
    bias: float
    features: I32
    weights: F32


def leaf_weights(ensemble: TreeEnsemble, label: int) -> list[LeafWeights]:
    """Return the classifiers of a label's leaves, one for each label tree that has a leaf of it.

    Cost: for each tree a pass over the chunk of the leaf's parent.
    """
    return [
        _weights_of_leaf(ensemble, tree, leaf)
        for tree, leaf in enumerate(ensemble.label_leaf[:, label].tolist())
        if leaf >= 0
    ]


def mean_weights(leaves: Sequence[LeafWeights]) -> tuple[I32, F32]:
    """Return the features of some classifiers, ascending, and the mean of each feature's weights.

    A classifier without a weight for a feature counts 0.
    """
    features, places = np.unique(
        np.concatenate([leaf.features for leaf in leaves]), return_inverse=True
    )
    return features, (
        np.bincount(places, np.concatenate([leaf.weights for leaf in leaves]), len(features))
        / len(leaves)
    ).astype(np.float32)


def _weights_of_leaf(ensemble: TreeEnsemble, tree: int, leaf: int) -> LeafWeights:
    parent = int(ensemble.parent[leaf])
    chunk = chunk_of(ensemble, parent)
    position = leaf - int(ensemble.child_ptr[parent])
    is_of_leaf = chunk.child == position
    return LeafWeights(
        tree=tree,
        leaf=leaf,
        depth=depth_of(ensemble.parent, leaf),
        siblings=len(chunk.bias) - 1,
        bias=float(chunk.bias[position]),
        features=chunk.feature[is_of_leaf],
        weights=chunk.weight[is_of_leaf],
    )


TOP = 20


def label_features(model: Model, label: int, top: int = TOP) -> dict[str, Any]:
    """Return what `xylem models explain --json` prints: the strongest weights of a label's own
    classifiers.

    Among the keys are:

    features  the means over the trees that have the label, the largest absolute weight first:
              {feature, weight}
    trees     for each of these trees: tree, leaf, depth, siblings, bias, and features as above. The
              classifier is that of the label's leaf: it distinguishes the label from the leaf's
              siblings

    label  its id

    A feature without a name (hashing, raw) is given as its id, a string. Raises UnsupportedOption
    for models whose labels have no weights of features.
    """
    manifest = model.manifest
    where = manifest.full_name
    if manifest.kind != "label-tree" or manifest.link == "softmax":
        descriptions = {
            COMBINED: "a combined one: its members have them",
            "label-tree": "softmax nodes, whose weights are of an embedding's dimensions",
        }
        raise UnsupportedOption(
            f"{where}: expected a model whose labels have weights of features, found "
            f"{descriptions.get(manifest.kind, 'decision trees, whose leaves count labels')}"
        )
    label_name = name_of(model.labels, label)
    leaves = leaf_weights(model.ensemble, label)
    if not leaves:
        raise UnsupportedOption(
            f"{where}: expected a label that has a leaf in a tree, "
            f"found {label_name!r:.80}, which has none"
        )
    names = feature_names(manifest.features, model.arrays)
    return {
        "model": manifest.model,
        "version": manifest.version,
        "label": label_name,
        "id": label,
        "link": manifest.link,
        "features": _strongest(*mean_weights(leaves), names, top),
        "trees": [
            {
                "tree": leaf.tree,
                "leaf": leaf.leaf,
                "depth": leaf.depth,
                "siblings": leaf.siblings,
                "bias": leaf.bias,
                "features": _strongest(leaf.features, leaf.weights, names, top),
            }
            for leaf in leaves
        ],
    }


def _strongest(
    features: I32, weights: F32, names: FeatureNames | None, top: int
) -> list[dict[str, Any]]:
    """Return the `top` strongest weights, with the names of their features.

    Those of the components of vectors are left out: they have no names.
    """
    if names is not None and names.tail is not None:
        weights = weights[features < names.tail]
        features = features[features < names.tail]
    return [
        {
            "feature": str(features[i]) if names is None else names.name(int(features[i])),
            "weight": float(weights[i]),
        }
        # stable: of equal weights the one of the smaller feature id comes first
        for i in np.argsort(-np.abs(weights), kind="stable")[:top].tolist()
    ]
