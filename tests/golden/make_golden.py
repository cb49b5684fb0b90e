"""Writes the golden versions of a schema: once for a release, never again for a released schema.

python -m tests.golden.make_golden N: makes tests/golden/schema-N/*.tar and answers.json beside this file.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from model_store.report import REPORT, report_array
from model_store.store import Store
from model_store.version import Draft, Model
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.rows import SparseRows
from tests.small_models import random_rerank, small_draft, softmax_draft

HERE = Path(__file__).resolve().parent

SCHEMA_1: dict[str, dict[str, Any]] = {
    "label-tree-float32": {"n_labels": 7, "arity": 3, "share": 0.1},
    "label-tree-bfloat16": {"n_labels": 20, "arity": 17, "weights": "bfloat16", "link": "logistic"},
    "label-tree-int8": {"n_labels": 20, "arity": 17, "weights": "int8", "link": "hinge3"},
    "decision-tree-float32": {"n_labels": 6, "kind": "decision-tree", "n_features": 40},
    "decision-tree-tail": {
        "n_labels": 6,
        "kind": "decision-tree",
        "link": "argmax",
        "n_features": 40,
        "extra": {**random_rerank(1, 6, 40), REPORT: report_array({"splits": [1, 2]})},
    },
}

SCHEMA_2: dict[str, dict[str, Any]] = {
    "softmax-float32": {"n_labels": 11, "arity": 3},
    "softmax-bfloat16": {"n_labels": 30, "arity": 17, "dim": 40, "weights": "bfloat16"},
    "softmax-int8-window": {"n_labels": 7, "weights": "int8", "n_places": 3, "n_turned": 1},
    "softmax-matrices": {"n_labels": 5, "dim": 6, "n_places": 2, "n_turned": 6},
}
DRAFTS: dict[int, dict[str, Draft]] = {
    1: {name: small_draft(20, **changes) for name, changes in SCHEMA_1.items()},
    2: {name: softmax_draft(21, **changes) for name, changes in SCHEMA_2.items()},
}
"""The versions of each schema."""


def rows_of(n_features: int) -> SparseRows:
    """Two rows: every feature with a falling value, and every third one."""
    indices = [np.arange(n_features), np.arange(0, n_features, 3)]
    values = [1 / (1 + indices[0]), np.ones(len(indices[1]))]
    return SparseRows(
        np.cumsum([0, *map(len, indices)]),
        np.concatenate(indices).astype(np.int32),
        np.concatenate(values).astype(np.float32),
        n_features,
    )


def answers(model: Model) -> dict[str, Any]:
    """What the model says of the rows, exactly."""
    predictor = make_predictor(model)
    found = predictor.predict(rows_of(predictor.n_features), PredictOptions(top_r=4, exact=True))
    return {"ptr": found.ptr.tolist(), "labels": found.labels.tolist(), "scores": found.scores.tolist()}


def main(schema: int) -> None:
    directory = HERE / f"schema-{schema}"
    directory.mkdir(exist_ok=True)
    expected = {}
    with tempfile.TemporaryDirectory() as root:
        store = Store(Path(root))
        for name, draft in DRAFTS[schema].items():
            store.publish(name, draft)
            file = io.BytesIO()
            store.export(name, 1, file)
            (directory / f"{name}.tar").write_bytes(file.getvalue())
            expected[name] = answers(store.open(name))
    (directory / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
