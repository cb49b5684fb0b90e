"""prediction_id: what an answer gives so that feedback to it can come later, to any replica."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import numpy as np

from service.inference.answering import Predictions
from service.inference.predictor import NodeThresholds, PredictOptions
from service.thresholds.live import LiveThresholds
from service.thresholds.tokens import Tokens, model_hash

_PROCESS = os.urandom(8).hex()
_SERIAL = itertools.count(1)


class PredictionIds:
    """Makes the ids of one served version's predictions.

    A token tells which labels were predicted: of an answer at tuned thresholds all of them, of any other
    those whose score reaches the threshold that is in force, or would be at the first feedback.
    Without a key (`tokens` returns None: the database has not answered yet) an id is unique and says nothing.
    """

    def __init__(self, live: LiveThresholds, tokens: Callable[[], Tokens | None]) -> None:
        self._live = live
        self._tokens = tokens
        self._model = model_hash(live.model)

    def of(self, found: Predictions, options: PredictOptions, epoch: int) -> list[str]:
        """Return an id for each prediction; `epoch` is that of the thresholds before they were made."""
        tokens = self._tokens()
        if tokens is None:
            return [f"{_PROCESS}-{next(_SERIAL):x}" for _ in range(len(found.ptr) - 1)]
        labels, ptr = found.labels, found.ptr
        if not isinstance(options.threshold, NodeThresholds):
            passes = found.scores >= self._live.thresholds[labels]
            labels = labels[passes]
            # of one row it is the number of those that pass, at a third of the cost
            ptr = np.array([0, len(labels)]) if len(ptr) == 2 else np.append(0, passes.cumsum())[ptr]
        data = labels.astype("<i4", copy=False).tobytes()
        ends = (4 * ptr[1:]).tolist()
        return tokens.sign(self._model, self._live.version, epoch, data, ends)
