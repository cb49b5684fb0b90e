"""What requests are answered fast, under what, and what the answer is."""

from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from model_store.compiled.handles import F32, I64, U8, Uncopyable, handle_of
from model_store.version import Model
from service.base.rows import SparseRows
from service.base.stages import StageTimes
from service.features import Featurizer
from service.features.request_bodies import BodyForms, BodyQuery
from service.inference.options import ALL_ALLOWED, NodeThresholds
from service.inference.prediction_json import Seal
from service.kernels.search.fast_request import FastLimits as FastLimits
from service.kernels.search.fast_request import FastPresent

_NO_THRESHOLDS = np.empty(0, np.float32)
NO_FORM = np.empty(0, np.int64)
"""The form of an answer of predictions."""


class FastForms(NamedTuple):
    """What requests are taken, and what bodies are read."""

    limits: FastLimits
    bodies: BodyForms


class FastVersion(NamedTuple):
    """The opened version that answers requests, and what makes its rows.

    stages   where it is counted how long reading, searching and writing take
    mask     of the labels that all answers may have, as `Searcher.label_mask` prepared it; None: all
    """

    model: Model
    featurizer: Featurizer
    forms: FastForms
    stages: StageTimes
    mask: U8 | None


class Present(Uncopyable):
    """What answers are given under for a while: until the arrays change, or the seal is old. Immutable.

    thresholds  float32[K] that a label's score must reach to be named by its prediction's id; they may move
    tuned       the same, prepared for searches; None: requests for them are not answered
    seal        what signs the ids, at epoch 0
    unlearned   uint8[K], 1 of labels that are not learned; [0]: all are
    at          the handle of what kernels need of these
    """

    __slots__ = ("at", "seal", "thresholds", "tuned", "unlearned")

    def __init__(
        self, thresholds: F32, tuned: NodeThresholds | None, seal: Seal, unlearned: U8 = ALL_ALLOWED
    ) -> None:
        self.unlearned = unlearned
        self.thresholds, self.tuned, self.seal = thresholds, tuned, seal._replace(epoch=0)
        log_threshold = _NO_THRESHOLDS if tuned is None else tuned
        signing = seal.keyed, seal.model, seal.version, seal.expiry
        self.at = handle_of(FastPresent(thresholds, log_threshold, *signing))

    def seal_at(self, epoch: int) -> Seal:
        """Return what signs ids of predictions made when the thresholds had an epoch."""
        return self.seal._replace(epoch=epoch)


Signed: TypeAlias = tuple[Present, int, int]
"""What predictions are signed with, the epoch of their thresholds, and the first one's serial number."""


class RowsRead(Struct, frozen=True):
    """Rows that were read already, and what is asked for them.

    number  the threshold, if it is one for all labels, between 0 and 1
    form    what an answer of tensors has; [0]: it is one of predictions
    """

    rows: SparseRows
    asked: BodyQuery
    number: float
    form: I64 = NO_FORM


class FastAnswer(Struct, frozen=True):
    """An answer without what stands around it.

    json      of the predictions, or of the outputs, commas between
    is_tuned  whether it is at tuned thresholds
    binary    the outputs' binary data
    identity  the id of a request of tensors, which the answer repeats
    """

    n_rows: int
    json: bytes
    is_tuned: bool
    binary: bytes = b""
    identity: str | None = None
