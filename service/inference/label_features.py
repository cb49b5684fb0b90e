"""A label's strongest features by name: what `xylem models explain` tells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.names import find_name
from model_store.version import Model
from service.base.errors import UnknownLabel, UnsupportedOption
from service.features import feature_names
from service.features.tables import FeatureNames
from service.inference.label_weights import leaf_weights, mean_weights, strongest

TOP = 20
TOP_MAX = 10_000


def label_features(model: Model, label: str, top: int = TOP) -> dict[str, Any]:
    """Return what a label's own classifiers weigh most, with the keys of `xylem models explain --json`.

    features  means over the trees that have the label, the largest in size first: {feature, weight}
    trees     for each such tree: tree, leaf, depth, siblings, bias, and features as above. The classifier is
              that of the label's leaf: it tells the label apart from the leaf's siblings

    A feature without a name (hashing, raw) is told by its id, as a string. Raises UnknownLabel, and
    UnsupportedOption for models whose labels have no weights of features.
    """
    manifest = model.manifest
    where = f"{manifest.model}@{manifest.version}"
    if manifest.kind != "label-tree" or manifest.link == "softmax":
        found = "decision trees, whose leaves count labels"
        if manifest.link == "softmax":
            found = "softmax nodes, whose weights are of an embedding's dimensions"
        raise UnsupportedOption(
            f"{where}: expected a model whose labels have weights of features, found {found}"
        )
    label_id = find_name(model.labels, label)
    if label_id < 0:
        raise UnknownLabel(f"{where}: expected one of {manifest.n_labels} labels, found {label!r:.80}")
    leaves = leaf_weights(model.ensemble, label_id)
    if not leaves:
        raise UnsupportedOption(
            f"{where}: expected a label that has a leaf in a tree, found {label!r:.80} in none"
        )
    names = feature_names(manifest.features, model.arrays)
    return {
        "model": manifest.model,
        "version": manifest.version,
        "label": label,
        "id": label_id,
        "link": manifest.link,
        "features": _named(*mean_weights(leaves), names, top),
        "trees": [
            {
                "tree": each.tree,
                "leaf": each.leaf,
                "depth": each.depth,
                "siblings": each.siblings,
                "bias": each.bias,
                "features": _named(each.features, each.weights, names, top),
            }
            for each in leaves
        ],
    }


def _named(
    features: NDArray[np.int32], weights: NDArray[np.float32], names: FeatureNames | None, top: int
) -> list[dict[str, Any]]:
    """Return the strongest weights with the names of their features."""
    return [
        {
            "feature": str(features[i]) if names is None else names.name(int(features[i])),
            "weight": float(weights[i]),
        }
        for i in strongest(weights, top).tolist()
    ]
