"""prediction_id: what an answer gives so that feedback to it can come later, to any replica."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xylem.engine import Present, Signed
from xylem.thresholds import ServedThresholds, Tokens, model_hash

if TYPE_CHECKING:
    from xylem.serving.learning import OnlineLearning

_SEAL_SECONDS = 1.0


class PredictionIds:
    """Makes the ids of one served version's predictions, and tells what answers are given under.

    A token tells which labels were predicted: of an answer at tuned thresholds all of them, of any
    other those whose score reaches the threshold that is in force, or would be at the first
    feedback. While the holder has no key (the database has not answered yet) an id is unique, and
    forged.
    """

    def __init__(
        self, live: ServedThresholds, holder: OnlineLearning | None, unlearned: NDArray[np.uint8]
    ) -> None:
        """Take the thresholds, what knows the key, if any, and which
        labels are not learned (see Present).
        """
        self._unlearned = unlearned
        self._live = live
        self._holder = holder
        self._model = model_hash(live.model)
        unknown = _unknown()
        seal = unknown.seal(self._model, live.version, 0)
        present = Present(live.thresholds, None, seal, unlearned)
        self._present: tuple[Present, Tokens, float] = present, unknown, 0.0
        """What answers are given under, whose seal it is, and until
        when it is used, by time.monotonic.
        """

    def sign(self, epoch: int, n: int) -> Signed:
        """Return what n predictions are signed with; the tuned
        thresholds are None if they may be old.

        That is kept for a second; threads may make it at once, and each is good.

        epoch   that of the thresholds before the predictions were made
        """
        holder = self._holder
        live = self._live
        now = time.monotonic()
        tokens = (holder.tokens if holder is not None else None) or _unknown()
        thresholds = live.thresholds
        tuned = live.prepared if now <= live.fresh_until else None
        present, sealed_by, until = self._present
        is_same = present.thresholds is thresholds and present.tuned is tuned
        if not is_same or sealed_by is not tokens or now > until:
            seal = tokens.seal(self._model, live.version, 0)
            present = Present(thresholds, tuned, seal, self._unlearned)
            self._present = present, tokens, now + _SEAL_SECONDS
        return present, epoch, tokens.serials(n)


@functools.cache
def _unknown() -> Tokens:
    """Return what signs with a key that nobody will know."""
    return Tokens([os.urandom(32)], 0)
