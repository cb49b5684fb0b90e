"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from model_store.names import NameTable, name_of
from service.api.served import Served
from service.api.wire import (
    ExplainedLeaf,
    ExplainedTree,
    FeatureContribution,
    LabelExplanation,
    RoutedLabelExplanation,
    RoutedNode,
    dump,
)
from service.inference.answering import Predictions
from service.inference.explain import FeatureShare, PathNode, ReachedLeaf, RoutedExplanation
from service.inference.label_json import labels_json
from service.rows import SparseRows


def write_predictions(
    found: Predictions, ids: Sequence[str], served: Served, explanations: Sequence[bytes] | None = None
) -> list[bytes]:
    """Return the JSON of a Prediction for each row; `explanations` has that of each of its labels."""
    lists = (
        labels_json(served.labels, found.ptr, found.labels, found.scores)
        if explanations is None
        else _explained(found, served, explanations)
    )
    exact = b"true" if found.exact else b"false"
    predictions = [
        b'{"labels":%b,"prediction_id":"%b","exact":%b}' % (labels, identity.encode(), exact)
        for labels, identity in zip(lists, ids, strict=True)
    ]
    if len(found.costs):
        predictions = [
            b'%b,"statistics":{"nodes":%d,"weight_bytes":%d}}' % (prediction[:-1], nodes, weight_bytes)
            for prediction, (nodes, weight_bytes) in zip(predictions, found.costs.tolist(), strict=True)
        ]
    return predictions


def write_answer(served: Served, epoch: int, predictions: Sequence[bytes]) -> bytes:
    """Return the JSON of a PredictAnswer."""
    head = b'{"model":"%b","version":%d,"threshold_epoch":%b,"predictions":[%b]}'
    shown = b"%d" % epoch if epoch else b"null"
    return head % (served.name.encode(), served.version, shown, b",".join(predictions))


def _explained(found: Predictions, served: Served, explanations: Sequence[bytes]) -> list[bytes]:
    """Return the JSON list of each row's labels with their explanations."""
    singles = labels_json(served.labels, np.arange(len(found.labels) + 1), found.labels, found.scores)
    objects = [
        b'%b,"explanation":%b}' % (single[1:-2], explanation)
        for single, explanation in zip(singles, explanations, strict=True)
    ]
    ends = found.ptr.tolist()
    return [b"[%b]" % b",".join(objects[start:end]) for start, end in itertools.pairwise(ends)]


def explain_labels(found: Predictions, rows: SparseRows, served: Served) -> list[bytes]:
    """Return the JSON of the explanation of each label that was found for `rows`."""
    explanations = []
    for row, (start, end) in enumerate(itertools.pairwise(found.ptr.tolist())):
        for label in found.labels[start:end].tolist():
            why = served.predictor.explain(rows, row, label)
            if isinstance(why, RoutedExplanation):
                leaves = [_leaf(leaf, served.features) for leaf in why.leaves]
                explanations.append(dump(RoutedLabelExplanation(leaves=leaves)))
            else:
                trees = [_tree(path, served.features) for path in why.trees]
                explanations.append(dump(LabelExplanation(trees=trees)))
    return explanations


def _leaf(leaf: ReachedLeaf, names: NameTable | None) -> ExplainedLeaf:
    path: list[RoutedNode] = [
        {"node": node.node, "margin": node.margin, "features": _features(node.features, names)}
        for node in leaf.path
    ]
    return {
        "tree": leaf.tree,
        "leaf": leaf.leaf,
        "value": leaf.value,
        "weight": leaf.weight,
        "path": path,
    }


def _tree(path: list[PathNode], names: NameTable | None) -> ExplainedTree:
    return {
        "path": [
            {
                "node": node.node,
                "probability": node.probability,
                "score": node.score,
                "features": _features(node.features, names),
            }
            for node in path
        ]
    }


def _features(shares: list[FeatureShare], names: NameTable | None) -> list[FeatureContribution]:
    return [
        {
            "feature": str(share.feature) if names is None else name_of(names, share.feature),
            "contribution": share.contribution,
        }
        for share in shares
    ]
