"""Writes the golden versions of the present schema: once for a release, never again for a released schema.

python -m tests.golden.make_golden: makes tests/golden/schema-N/*.tar and answers.json beside this file.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from model_store.manifest import SCHEMA_VERSION
from model_store.report import REPORT, report_array
from model_store.store import Store
from model_store.version import Model
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.rows import SparseRows
from tests.small_models import random_rerank, small_draft

HERE = Path(__file__).resolve().parent

DRAFTS: dict[str, dict[str, Any]] = {
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


def main() -> None:
    directory = HERE / f"schema-{SCHEMA_VERSION}"
    directory.mkdir(exist_ok=True)
    expected = {}
    with tempfile.TemporaryDirectory() as root:
        store = Store(Path(root))
        for name, changes in DRAFTS.items():
            store.publish(name, small_draft(20, **changes))
            file = io.BytesIO()
            store.export(name, 1, file)
            (directory / f"{name}.tar").write_bytes(file.getvalue())
            expected[name] = answers(store.open(name))
    (directory / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
