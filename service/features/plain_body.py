"""Bodies of predict requests that are sparse instances, a number of labels and a beam width, nothing else.

Such a body becomes rows of the model by one call of a kernel: to parse it, check each number and bring the
rows into their form costs more than to predict them. As with plain lines, what is not plain, or not right, is
left to the general way, which says what is wrong with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.jit import inlined, kernel
from service.datasets.decimals import is_digit, parse_id
from service.features.featurizer import Featurizer
from service.features.plain_json import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    END,
    OPEN,
    OPEN_LIST,
    after,
    after_key,
    read_instance,
    skip_blanks,
)
from service.features.weights import NORM_CODES, normalise_rows
from service.kernels.tidy import tidy_rows
from service.rows import SparseRows

_INSTANCES = np.frombuffer(b'"instances"', np.uint8)
_TOP_R = np.frombuffer(b'"top_r"', np.uint8)
_BEAM_WIDTH = np.frombuffer(b'"beam_width"', np.uint8)
_QUOTE, _ZERO, _I, _T = 34, 48, 105, 116
_COUNT_LIMIT = 1 << 31
_TOP_R_PLACE, _BEAM_PLACE = 0, 1


class PlainQuery(NamedTuple):
    """What a plain body asks for. The rows live until the next body is read."""

    rows: SparseRows
    top_r: int
    beam_width: int


class PlainBodies:
    """Reads bodies into buffers of its own: one thread at a time.

    rows_max, features_max   the most instances of a body that it takes, and features of all of them
    top_r, beam_width        what a body means that does not say them
    """

    def __init__(self, rows_max: int, features_max: int, top_r: int, beam_width: int) -> None:
        self._defaults = np.array([top_r, beam_width], np.int64)
        self._asked = self._defaults.copy()
        self._indptr = np.zeros(rows_max + 1, np.int64)
        self._indices = np.empty(features_max, np.int32)
        self._values = np.empty(features_max, np.float32)

    def read(self, message: bytes, start: int, featurizer: Featurizer) -> PlainQuery | None:
        """Return the query that message[start:] is, its rows checked and in their form; None: not plain.

        The counts that it asks for are not checked against the limits. About a nanosecond a byte.
        """
        asked = self._asked
        asked[:] = self._defaults
        n_rows = _read(
            np.frombuffer(message + b"\n\0", np.uint8),
            start,
            featurizer.n_features,
            NORM_CODES[featurizer.parameters.norm],
            asked,
            self._indptr,
            self._indices,
            self._values,
        )
        if n_rows == 0:
            return None
        indptr = self._indptr[: n_rows + 1]
        n = indptr.item(n_rows)
        rows = SparseRows(indptr, self._indices[:n], self._values[:n], featurizer.n_features)
        return PlainQuery(rows, asked.item(_TOP_R_PLACE), asked.item(_BEAM_PLACE))


@kernel
def _read(
    data: NDArray[np.uint8],
    start: int,
    n_features: int,
    norm: int,
    asked_out: NDArray[np.int64],
    indptr_out: NDArray[np.int64],
    indices_out: NDArray[np.int32],
    values_out: NDArray[np.float32],
) -> int:
    """Read a body into rows that are sorted, summed and normalised; return their number, 0: not plain."""
    i, n_rows = after(data, start, OPEN), 0
    while True:
        i = skip_blanks(data, i)
        letter = data[i + 1] if data[i] == _QUOTE else np.uint8(0)
        if letter == _I and n_rows == 0:
            i = after(data, after_key(data, i, _INSTANCES), COLON)
            i, n_rows = _read_instances(
                data, after(data, i, OPEN_LIST), n_features, indptr_out, indices_out, values_out
            )
        elif letter == _T:
            i = _read_count(data, after_key(data, i, _TOP_R), asked_out, _TOP_R_PLACE)
        else:
            i = _read_count(data, after_key(data, i, _BEAM_WIDTH), asked_out, _BEAM_PLACE)
        i = skip_blanks(data, i)
        if data[i] != COMMA:
            break
        i += 1
    i = skip_blanks(data, after(data, i, CLOSE))
    if data[i] != END or i != len(data) - 2 or n_rows == 0:
        return 0
    _, bad = tidy_rows(indptr_out[: n_rows + 1], indices_out, values_out)
    if bad >= 0:
        return 0
    normalise_rows(indptr_out[: n_rows + 1], values_out, norm)
    return n_rows


@inlined
def _read_instances(
    data: NDArray[np.uint8],
    i: int,
    n_features: int,
    indptr_out: NDArray[np.int64],
    indices_out: NDArray[np.int32],
    values_out: NDArray[np.float32],
) -> tuple[int, int]:
    """Read instances from after the bracket to after its fellow; return (that place, how many)."""
    n_rows = 0
    while n_rows + 1 < len(indptr_out):
        i, indptr_out[n_rows + 1] = read_instance(
            data, i, n_features, indices_out, values_out, indptr_out[n_rows]
        )
        n_rows += 1
        i = skip_blanks(data, i)
        if data[i] == CLOSE_LIST:
            return i + 1, n_rows
        i = after(data, i, COMMA)
    return len(data) - 1, 0


@inlined
def _read_count(data: NDArray[np.uint8], i: int, counts_out: NDArray[np.int64], place: int) -> int:
    """Read the integer, 1 at least, that follows a key; return the place after it."""
    i = skip_blanks(data, after(data, i, COLON))
    number, end = parse_id(data, i, _COUNT_LIMIT)
    if not is_digit(data[i]) or data[i] == _ZERO:
        return len(data) - 1
    counts_out[place] = number
    return end
