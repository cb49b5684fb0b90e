"""What sparse requests are taken, and what is answered to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import handle_of
from model_store.compiled.uncopyable import Uncopyable
from service.features.sparse_request import BodyForms
from service.inference.options import NodeThresholds
from service.inference.prediction_json import Seal
from service.inference.tensors_json import Tensors
from service.kernels.search.sparse_request import SparseLimits as SparseLimits
from service.kernels.search.sparse_request import SparsePresent
from service.kernels.text.tensors import IDENTITY, IDENTITY_END
from service.stages import BEGAN, FEATURES, HAS_READ, MADE, READ, StageTimes


class SparseForms(NamedTuple):
    """What requests are taken, and what bodies are read."""

    limits: SparseLimits
    bodies: BodyForms


_NO_THRESHOLDS = np.empty(0, np.float32)


class Present(Uncopyable):
    """What answers are given under for a while: until the arrays change, or the seal is old. Immutable.

    thresholds  float32[K] that a label's score must reach to be named by its prediction's id; they may move
    tuned       the same, prepared for searches; None: requests for them are not answered
    seal        what signs the ids, at epoch 0
    at          the handle of these, for kernels
    """

    __slots__ = ("at", "seal", "thresholds", "tuned")

    def __init__(self, thresholds: NDArray[np.float32], tuned: NodeThresholds | None, seal: Seal) -> None:
        self.thresholds, self.tuned, self.seal = thresholds, tuned, seal._replace(epoch=0)
        log_threshold = _NO_THRESHOLDS if tuned is None else tuned.log
        signing = seal.keyed, seal.model, seal.version, seal.expiry
        self.at = handle_of(SparsePresent(thresholds, log_threshold, *signing))

    def seal_at(self, epoch: int) -> Seal:
        """Return what signs ids of predictions made when the thresholds had an epoch."""
        return self.seal._replace(epoch=epoch)


class SparseAnswer(NamedTuple):
    """Rows, the JSON of their predictions with commas between, and whether they are at tuned thresholds."""

    n_rows: int
    predictions: bytes
    is_tuned: bool


class TensorsAnswer(NamedTuple):
    """Rows, the outputs that are asked for, where in the request its id is, and as `SparseAnswer`.

    identity  where it begins and ends; 0, 0: there is none
    """

    n_rows: int
    tensors: Tensors
    identity: tuple[int, int]
    is_tuned: bool


def identity_of(form: NDArray[np.int64]) -> tuple[int, int]:
    """Return where in a request its id begins and ends."""
    return form.item(IDENTITY), form.item(IDENTITY_END)


def begin_at(began: int, read: int | None, times: NDArray[np.int64], stages: StageTimes) -> None:
    """Let an answer whose rows were read before its call have begun then.

    read   when its texts had been read, whose rows were made from then on; None: it had none
    """
    made = times.item(MADE)
    times[BEGAN], times[HAS_READ] = began, made if read is None else read
    stages.count_one(READ, times.item(HAS_READ) - began)
    if read is not None:
        stages.count_one(FEATURES, made - read)
