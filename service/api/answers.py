"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

from __future__ import annotations

import itertools
import os

from model_store.names import NameTable, name_of
from service.api.served import Served
from service.api.wire import ExplainedTree, LabelExplanation, NamedLabel, Prediction
from service.inference.explain import PathNode
from service.inference.predictor import Predictions
from service.rows import SparseRows

_PROCESS = os.urandom(8).hex()
_SERIAL = itertools.count(1)


def new_prediction_id() -> str:
    """Return an identity that no other prediction has, of this process or another. Opaque to clients."""
    return f"{_PROCESS}-{next(_SERIAL):x}"


def name_labels(found: Predictions, names: NameTable) -> list[Prediction]:
    """Return a prediction a row of `found`."""
    ids = found.labels
    starts, ends = names.offsets[ids].tolist(), names.offsets[ids + 1].tolist()
    utf8 = names.utf8.data
    labels: list[NamedLabel] = [
        {"label": str(utf8[start:end], "utf-8"), "id": label, "score": score}
        for start, end, label, score in zip(starts, ends, ids.tolist(), found.scores, strict=True)
    ]
    return [
        {"labels": labels[start:end], "prediction_id": new_prediction_id(), "exact": found.exact}
        for start, end in itertools.pairwise(found.ptr.tolist())
    ]


def explain_labels(predictions: list[Prediction], rows: SparseRows, served: Served) -> None:
    """Add to each label of the predictions, one a row of `rows`, its explanation."""
    for row, prediction in enumerate(predictions):
        for label in prediction["labels"]:
            trees = served.predictor.explain(rows, row, label["id"]).trees
            label["explanation"] = LabelExplanation(trees=[_tree(path, served.features) for path in trees])


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
