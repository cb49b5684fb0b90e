"""What sparse requests are taken, and what is answered to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.inference.tensors_json import Tensors
from service.kernels.search.sparse_request import SparseLimits as SparseLimits
from service.kernels.text.tensors import IDENTITY, IDENTITY_END
from service.stages import READ, StageTimes


class SparseForms(NamedTuple):
    """What bodies are taken, and what they mean.

    rows_max, values_max  the most rows of a body, and values of all of them
    top_r, beam_width     what a body means that does not say them
    """

    limits: SparseLimits
    rows_max: int
    values_max: int
    top_r: int
    beam_width: int


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


def begin_at(began: int, times: NDArray[np.int64], stages: StageTimes) -> None:
    """Let an answer whose rows were read before its call have begun then."""
    times[0] = began
    stages.count_one(READ, int(times[1]) - began)
