"""The parts of requests that one kernel answers: versions, rows and answers."""

from typing import NamedTuple

from msgspec import Struct

from xylem.base import SparseRows, StageTimes
from xylem.engine import Featurizer
from xylem.serving.dialects.predict.kernels.fast_request import FastLimits
from xylem.serving.dialects.predict.kernels.request_bodies import BodyForms, BodyQuery
from xylem_store import U8, Model


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


class PackedOutputs(Struct, frozen=True):
    """Tensors of an answer, as binary data one behind the other.

    ends   where each of them ends
    """

    data: bytes
    ends: list[int]
