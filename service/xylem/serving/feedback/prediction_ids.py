"""prediction_id: an id in each answer, to which feedback can refer later, at any replica."""

import functools
import os
import time
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from xylem.engine import ALL_ALLOWED, NodeThresholds
from xylem.serving.feedback.tokens import Tokens, model_hash
from xylem.serving.kernels.seals import FastPresent, Seal
from xylem.thresholds import ServedThresholds
from xylem_store import F32, U8, Uncopyable, handle_of

_NO_THRESHOLDS = np.empty(0, np.float32)


class Present(Uncopyable):
    """The thresholds and the seal that answers use at present.

    When the arrays of thresholds or the seal are replaced, a new Present is made. The object itself
    is immutable, but the values in its arrays of thresholds may change.

    thresholds  float32[K] that a label's score must reach to be listed in its prediction's id
    tuned       the same thresholds, prepared for searches; None: requests for tuned thresholds are
                not answered
    seal        signs the ids, at epoch 0
    unlearned   uint8[K], 1 for labels that are not learned; [0]: all are learned
    limit       the most labels of a row at the tuned thresholds; None: no limit
    handle      the handle of the fields that kernels need
    """

    __slots__ = ("handle", "limit", "seal", "thresholds", "tuned", "unlearned")

    def __init__(
        self,
        thresholds: F32,
        tuned: NodeThresholds | None,
        seal: Seal,
        unlearned: U8 = ALL_ALLOWED,
        limit: int | None = None,
    ) -> None:
        self.limit = limit
        self.unlearned = unlearned
        self.thresholds = thresholds
        self.tuned = tuned
        self.seal = seal._replace(epoch=0)
        self.handle = handle_of(
            FastPresent(
                thresholds=thresholds,
                log_threshold=_NO_THRESHOLDS if tuned is None else tuned,
                limit=limit or len(thresholds),
                keyed=seal.keyed,
                model=seal.model,
                version=seal.version,
                expiry=seal.expiry,
            )
        )

    def seal_at(self, epoch: int) -> Seal:
        """Return the seal for predictions that are made while the thresholds have this epoch."""
        return self.seal._replace(epoch=epoch)


# (the Present that signs predictions, the epoch of its thresholds, the first serial number).
Signed: TypeAlias = tuple[Present, int, int]


if TYPE_CHECKING:
    from xylem.serving.learning import OnlineLearning

_SEAL_SECONDS = 1.0


class PredictionIds:
    """Signs the ids of the predictions of one served version, which kernels write.

    An id is a token that contains the predicted labels: at tuned thresholds all labels of the
    answer, else those whose score reaches the threshold in force. For a version without thresholds,
    these are the thresholds that the first feedback would put in force. As long as `learning` has
    no key (the database has not answered yet), ids are unique, but will be refused as forged.
    """

    def __init__(
        self, live: ServedThresholds, learning: "OnlineLearning | None", unlearned: U8
    ) -> None:
        """Take the thresholds of the version.

        learning    has the key that signs; None: no feedback is possible
        unlearned   the labels that are not learned, as `Present` has them
        """
        self._unlearned = unlearned
        self._live = live
        self._learning = learning
        self._model = model_hash(live.model)
        unknown = _unknown()
        # the Present that answers are given under, the tokens that made its seal, and its expiry.
        # The expiry is in seconds of time.monotonic
        self._present: tuple[Present, Tokens, float] = (
            Present(live.thresholds, None, unknown.seal(self._model, live.version, 0), unlearned),
            unknown,
            0.0,
        )

    def sign(self, epoch: int, n: int) -> Signed:
        """Return (present, epoch, serial): what kernels need to sign n predictions.

        `serial` is the first of n serial numbers. `present` has no tuned thresholds if they may be
        outdated; it is cached for _SEAL_SECONDS. Several threads may make one at the same time;
        each is valid.

        epoch   the epoch of the thresholds, read before the predictions were made
        """
        learning = self._learning
        live = self._live
        now = time.monotonic()
        tokens = (None if learning is None else learning.tokens) or _unknown()
        thresholds = live.thresholds
        tuned = live.prepared if now <= live.fresh_until else None
        present, sealed_by, until = self._present
        limit = live.limit
        is_same = (
            present.thresholds is thresholds and present.tuned is tuned and present.limit == limit
        )
        if not is_same or sealed_by is not tokens or now > until:
            present = Present(
                thresholds, tuned, tokens.seal(self._model, live.version, 0), self._unlearned, limit
            )
            self._present = present, tokens, now + _SEAL_SECONDS
        return present, epoch, tokens.serials(n)


@functools.cache
def _unknown() -> Tokens:
    """Return tokens of a random key, which nobody will ever know."""
    return Tokens([os.urandom(32)], 0)
