"""The thresholds and the seal of now, as kernels that write predictions need them."""

from typing import TypeAlias

import numpy as np

from xylem.engine import ALL_ALLOWED, NodeThresholds
from xylem.serving.kernels.seals import FastPresent, Seal
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


Signed: TypeAlias = tuple[Present, int, int]
"""(the Present that signs predictions, the epoch of its thresholds, the first serial number)."""
