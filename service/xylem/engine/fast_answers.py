"""The parts of requests that one kernel answers: versions, thresholds, rows and answers."""

from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from xylem.base import SparseRows, StageTimes
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.request_bodies import BodyForms, BodyQuery
from xylem.engine.kernels.search.fast_request import FastLimits as FastLimits
from xylem.engine.kernels.search.fast_request import FastPresent
from xylem.engine.kernels.text.prediction_json import Seal
from xylem.engine.options import ALL_ALLOWED, NodeThresholds
from xylem_store import F32, U8, Model, Uncopyable, handle_of

_NO_THRESHOLDS = np.empty(0, np.float32)


class FastForms(NamedTuple):
    """The limits of requests, and the limits and defaults of bodies."""

    limits: FastLimits
    bodies: BodyForms


class FastVersion(NamedTuple):
    """The opened version that answers requests, and its featurizer.

    stages   counts how long reading, searching and writing take
    mask     the labels that answers may have, as `Searcher.label_mask` prepared it; None: all
    """

    model: Model
    featurizer: Featurizer
    forms: FastForms
    stages: StageTimes
    mask: U8 | None


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
        log_threshold = _NO_THRESHOLDS if tuned is None else tuned
        signing = seal.keyed, seal.model, seal.version, seal.expiry
        self.handle = handle_of(
            FastPresent(thresholds, log_threshold, limit or len(thresholds), *signing)
        )

    def seal_at(self, epoch: int) -> Seal:
        """Return the seal for predictions that are made while the thresholds have this epoch."""
        return self.seal._replace(epoch=epoch)


Signed: TypeAlias = tuple[Present, int, int]
"""(the Present that signs predictions, the epoch of its thresholds, the first serial number)."""


class RowsRead(Struct, frozen=True):
    """Rows that have been read already, and the query for them.

    number  the threshold, if it is one number for all labels, between 0 and 1
    """

    rows: SparseRows
    query: BodyQuery
    number: float


class FastAnswer(Struct, frozen=True):
    """The predictions of an answer; the caller writes the JSON object around them.

    n_rows    the number of rows
    json      the predictions, separated by commas
    is_tuned  whether the labels are those that reach tuned thresholds
    """

    n_rows: int
    json: bytes
    is_tuned: bool


class PackedOutputs(NamedTuple):
    """Tensors of an answer, as binary data one behind the other.

    ends   where each of them ends
    """

    data: bytes
    ends: list[int]
