"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import add

import orjson

from model_store.names import NameTable, name_of
from service.api.served import Served
from service.api.wire import (
    ExplainedLeaf,
    ExplainedTree,
    FeatureContribution,
    LabelExplanation,
    Prediction,
    RoutedLabelExplanation,
    RoutedNode,
    dump,
)
from service.inference.explain import FeatureShare, PathNode, ReachedLeaf, RoutedExplanation
from service.inference.predictor import Predictions
from service.rows import SparseRows


def name_labels(
    found: Predictions, ids: Sequence[str], served: Served, explanations: Sequence[bytes] | None = None
) -> list[Prediction]:
    """Return a prediction a row of `found`; `explanations` has the JSON of each of its labels."""
    scores = dump(found.scores)[1:-1].split(b",")
    begun = map(served.label_texts.__getitem__, found.labels.tolist())
    labels = list(map(add, begun, scores))
    if explanations is not None:
        labels = list(map(b'%b,"explanation":%b'.__mod__, zip(labels, explanations, strict=True)))
    predictions: list[Prediction] = [
        {
            "labels": orjson.Fragment(b"[%b}]" % b"},".join(labels[start:end]) if end > start else b"[]"),
            "prediction_id": identity,
            "exact": found.exact,
        }
        for identity, (start, end) in zip(ids, itertools.pairwise(found.ptr.tolist()), strict=True)
    ]
    for prediction, (nodes, weight_bytes) in zip(predictions, found.costs.tolist(), strict=False):
        prediction["statistics"] = {"nodes": nodes, "weight_bytes": weight_bytes}
    return predictions


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
