"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import orjson

from model_store.names import NameTable, name_of
from service.api.served import Served
from service.api.wire import ExplainedTree, LabelExplanation, Prediction, dump
from service.inference.explain import PathNode
from service.inference.predictor import Predictions
from service.rows import SparseRows

_PROCESS = os.urandom(8).hex()
_SERIAL = itertools.count(1)


def new_prediction_id() -> str:
    """Return an identity that no other prediction has, of this process or another. Opaque to clients."""
    return f"{_PROCESS}-{next(_SERIAL):x}"


def name_labels(
    found: Predictions, served: Served, explanations: Sequence[bytes] | None = None
) -> list[Prediction]:
    """Return a prediction a row of `found`; `explanations` has the JSON of each of its labels."""
    scores = dump(found.scores)[1:-1].split(b",")
    begun = map(served.label_texts.__getitem__, found.labels.tolist())
    labels = [begin + score + b"}" for begin, score in zip(begun, scores, strict=False)]
    if explanations is not None:
        labels = [
            b'%b,"explanation":%b}' % (label[:-1], explanation)
            for label, explanation in zip(labels, explanations, strict=True)
        ]
    return [
        {
            "labels": orjson.Fragment(b"[%b]" % b",".join(labels[start:end])),
            "prediction_id": new_prediction_id(),
            "exact": found.exact,
        }
        for start, end in itertools.pairwise(found.ptr.tolist())
    ]


def explain_labels(found: Predictions, rows: SparseRows, served: Served) -> list[bytes]:
    """Return the JSON of the explanation of each label that was found for `rows`."""
    explanations = []
    for row, (start, end) in enumerate(itertools.pairwise(found.ptr.tolist())):
        for label in found.labels[start:end].tolist():
            trees = served.predictor.explain(rows, row, label).trees
            explanations.append(
                dump(LabelExplanation(trees=[_tree(path, served.features) for path in trees]))
            )
    return explanations


def _tree(path: list[PathNode], names: NameTable | None) -> ExplainedTree:
    return {
        "path": [
            {
                "node": node.node,
                "probability": node.probability,
                "score": node.score,
                "features": [
                    {
                        "feature": str(share.feature) if names is None else name_of(names, share.feature),
                        "contribution": share.contribution,
                    }
                    for share in node.features
                ],
            }
            for node in path
        ]
    }
