"""prediction_id: what an answer gives so that feedback to it can come later, to any replica."""

from __future__ import annotations

import functools
import os
import time
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.inference.prediction_json import Seal
from service.inference.predictor import NodeThresholds, PredictOptions
from service.thresholds.live.served import ServedThresholds
from service.thresholds.live.tokens import Tokens, model_hash

_SEAL_SECONDS = 1.0
_NONE = np.empty(0, np.float32)


class _Kept(NamedTuple):
    """A seal, whose it is, and until when it is used, by time.monotonic."""

    tokens: Tokens
    seal: Seal
    until: float


class KeyHolder(Protocol):
    """What knows the key that signs prediction ids, in time."""

    @property
    def tokens(self) -> Tokens | None:
        """Return what signs them; None: the key is not known yet."""


class _NoKey(NamedTuple):
    tokens: None = None


NO_KEY: KeyHolder = _NoKey()
"""The holder of a command that serves nobody."""


class PredictionIds:
    """Makes the ids of one served version's predictions.

    A token tells which labels were predicted: of an answer at tuned thresholds all of them, of any other
    those whose score reaches the threshold that is in force, or would be at the first feedback.
    While the holder has no key (the database has not answered yet) an id is unique, and forged.
    """

    def __init__(self, live: ServedThresholds, holder: KeyHolder) -> None:
        self._live = live
        self._holder = holder
        self._model = model_hash(live.model)
        self._kept: _Kept | None = None

    def thresholds_for(self, options: PredictOptions) -> NDArray[np.float32]:
        """Return the thresholds, float32[K], that a predicted label's score must reach; [0]: it need not."""
        return _NONE if isinstance(options.threshold, NodeThresholds) else self._live.thresholds

    def seal(self, epoch: int, n: int) -> tuple[Seal, int]:
        """Return what signs the ids of n predictions, and the serial number of the first.

        The thresholds had this epoch before the predictions were made. Seals are kept for a second; threads
        may make one at once, and each is good.
        """
        tokens = self._holder.tokens or _unknown()
        kept = self._kept
        now = time.monotonic()
        if kept is None or kept.tokens is not tokens or kept.seal.epoch != epoch or kept.until < now:
            seal = tokens.seal(self._model, self._live.version, epoch)
            kept = self._kept = _Kept(tokens, seal, now + _SEAL_SECONDS)
        return kept.seal, tokens.serials(n)


@functools.cache
def _unknown() -> Tokens:
    """Return what signs with a key that nobody will know."""
    return Tokens([os.urandom(32)], 0)
