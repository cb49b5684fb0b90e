"""prediction_ids as answers carry them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from model_store.names import build_names
from service.inference.prediction_json import Spans, predictions_json
from service.thresholds.live.tokens import Tokens, model_hash


def signed(tokens: Tokens, model: str, version: int, epoch: int, labels: Sequence[int]) -> str:
    """Return an id of a prediction of these labels."""
    names = build_names([f"l{i}" for i in range(max(labels, default=0) + 1)])
    scores = np.ones(len(labels), np.float32)
    spans = Spans(
        np.array([0]), np.array([len(labels)]), np.array(labels, np.int32), scores, np.zeros(1, np.uint8)
    )
    seal = tokens.seal(model_hash(model), version, epoch)
    (prediction,) = predictions_json(names, np.empty(0, np.float32), seal, tokens.serials(1), spans)
    identity: str = orjson.loads(prediction)["prediction_id"]
    return identity
