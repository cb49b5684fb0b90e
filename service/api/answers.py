"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

from __future__ import annotations

import itertools
import os

from model_store.names import NameTable
from service.api.wire import NamedLabel, Prediction
from service.inference.predictor import Predictions

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
