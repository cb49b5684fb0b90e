"""Kernels that read simple bodies of predict requests: instances of one kind, and common options.

In Python, to parse a body, check each number and make the rows costs more than to predict them.
Bodies with other fields, and wrong ones, are left to the pydantic models of requests, which say
what is wrong.
"""

from typing import NamedTuple

import numpy as np

from xylem.base import RowArrays, SparseRows
from xylem.datasets import is_digit, parse_id
from xylem.engine import (
    NO_THRESHOLD,
    NUMBER,
    TUNED,
    BodyTexts,
    Featurizer,
    finish_rows,
    write_rows,
)
from xylem.serving.kernels.sparse_json import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    END,
    OPEN,
    OPEN_LIST,
    ZERO,
    read_instance,
    read_number,
    skip_blanks,
    skip_byte,
    skip_key,
)
from xylem.serving.kernels.text_json import QUOTE, is_text, read_text
from xylem_store import (
    F32,
    U8,
    Handle,
    Uncopyable,
    handle_of,
    kernel,
    nonallocating_inlined,
    struct_at,
)

_INSTANCES = np.frombuffer(b'"instances"', np.uint8)
_TOP_R = np.frombuffer(b'"top_r"', np.uint8)
_BEAM_WIDTH = np.frombuffer(b'"beam_width"', np.uint8)
_THRESHOLD = np.frombuffer(b'"threshold"', np.uint8)
_TUNED_WORD = np.frombuffer(b'"tuned"', np.uint8)
_EXACT = np.frombuffer(b'"exact"', np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_E = 101
_F = 102
_H = 104
_I = 105
_O = 111
_T = 116
COUNT_LIMIT = 1 << 31

# Stands for a number of values if the instances are texts whose rows have not been made yet.
TEXTS = -1


class BodyForms(NamedTuple):
    """The limits and the defaults of bodies that kernels read.

    rows_max, values_max            the most instances of a body, and features of all of them
    characters_max, text_bytes_max  the most characters of all its texts, and bytes of one text
    top_r, beam_width               the options of a body that does not have them
    """

    rows_max: int
    values_max: int
    characters_max: int
    text_bytes_max: int
    top_r: int
    beam_width: int


class BodyQuery(NamedTuple):
    """The query of a body. If n_rows is 0, the body is not for kernels, and no field is valid.

    n_rows     the number of instances
    n_values   the number of their features; TEXTS if they are texts whose rows are not made yet
    threshold  NO_THRESHOLD, TUNED or NUMBER
    is_exact   0 or 1: whether the answer must be proved to be right
    """

    n_rows: int
    n_values: int
    top_r: int
    beam_width: int
    threshold: int
    is_exact: int


class RequestBodies(Uncopyable):
    """Reads bodies for a model's featurizer into its own buffers. One thread at a time.

    constants  (features of the model, code of the norm, default top_r, default beam_width)
    arrays     (indptr, indices, values, number): the rows of the last body, whose size the arrays
               bound, and float32[2], whose first element is a numeric threshold; the second one is
               for kernels
    texts      the buffers of texts
    texts_at   the handle of `texts`
    """

    def __init__(self, forms: BodyForms, featurizer: Featurizer) -> None:
        self._featurizer = featurizer  # keeps alive the tables that the handles refer to
        self.constants = (
            featurizer.n_features,
            featurizer.norm_code,
            forms.top_r,
            forms.beam_width,
        )
        self.arrays = (
            np.zeros(forms.rows_max + 1, np.int64),
            np.empty(forms.values_max, np.int32),
            np.empty(forms.values_max, np.float32),
            np.zeros(2, np.float32),
        )
        self.texts = featurizer.request_texts(
            n_texts=forms.rows_max,
            values_max=forms.values_max,
            characters_max=forms.characters_max,
            bytes_max=forms.text_bytes_max,
        )
        self.texts_at = handle_of(self.texts)

    def read(self, message: bytes, start: int) -> BodyQuery:
        """Read the body message[start:]; return its query, and write its rows to `arrays`.

        The rows are checked, sorted and normalised. The counts that the query asks for are not
        checked against the limits. Cost: about a nanosecond a byte.
        """
        out = self.arrays[:3], self.arrays[3], self.texts_at
        return BodyQuery(*read_body(data_of(message), start, self.constants, *out))

    def rows_read(self, query: BodyQuery) -> tuple[SparseRows, BodyQuery, float] | None:
        """Return (rows, query, number): the rows in `arrays`, their query, and a numeric threshold.

        Rows of texts are made first. Return None if the query is not for kernels, if there is no
        room for the rows, or if a text has no features.
        """
        if query.n_rows == 0:
            return None
        indptr, indices, values, number = self.arrays
        if query.n_values == TEXTS:
            query = query._replace(
                n_values=write_rows(self.texts_at, query.n_rows, self.arrays[:3])
            )
            if query.n_values == 0:
                return None
        n_rows = query.n_rows
        n_values = query.n_values
        rows = SparseRows(
            indptr[: n_rows + 1], indices[:n_values], values[:n_values], self.constants[0]
        )
        return rows, query, number.item(0)


def data_of(message: bytes) -> U8:
    """Return a message as the data that `read_body` takes."""
    return np.frombuffer(message + b"\n\0", np.uint8)


@kernel
def read_body(
    data: U8,
    start: int,
    constants: tuple[int, int, int, int],
    rows_out: RowArrays,
    number_out: F32,
    texts_at: Handle,
) -> tuple[int, int, int, int, int, int]:
    """Read a body into rows that are sorted, summed and normalised; return the fields of BodyQuery.

    constants   features of the model, code of the norm, default top_r and beam_width
    rows_out    indptr, indices, values, whose lengths bound the rows
    number_out  receives a numeric threshold, which must lie strictly between 0 and 1; a threshold
                of 0 or 1, or one that rounds to them, is not read here
    texts_at    the handle of BodyTexts, into which instances are read if they are texts
    """
    n_features, norm, top_r, beam_width = constants
    i = skip_byte(data, start, OPEN)
    n_rows = 0
    are_texts = False
    options = top_r, beam_width, NO_THRESHOLD, 0
    while True:
        i = skip_blanks(data, i)
        if data[i] == QUOTE and data[i + 1] == _I and n_rows == 0:
            i = skip_byte(data, skip_byte(data, skip_key(data, i, _INSTANCES), COLON), OPEN_LIST)
            are_texts = is_text(data, i)
            i, n_rows = _read_instances(data, i, are_texts, n_features, rows_out, texts_at)
        else:
            i, options = read_option(data, i, options, number_out)
        i = skip_blanks(data, i)
        if data[i] != COMMA:
            break
        i += 1
    i = skip_blanks(data, skip_byte(data, i, CLOSE))
    if data[i] != END or i != len(data) - 2 or n_rows == 0:
        return 0, 0, 0, 0, 0, 0
    indptr, indices, values = rows_out
    n_values = TEXTS if are_texts else finish_rows(norm, indptr[: n_rows + 1], indices, values)
    if not are_texts and n_values < 0:
        return 0, 0, 0, 0, 0, 0
    return n_rows, n_values, options[0], options[1], options[2], options[3]


@nonallocating_inlined
def read_option(
    data: U8, i: int, options: tuple[int, int, int, int], number_out: F32
) -> tuple[int, tuple[int, int, int, int]]:
    """Read the key at data[i] and its value; return (the place after them, the new options).

    options  the last four fields of BodyQuery; a numeric threshold is written to `number_out`
    """
    top_r, beam_width, threshold, is_exact = options
    letter = data[i + 1] if data[i] == QUOTE else np.uint8(0)
    if letter == _T:
        letter = data[i + 2]
    if letter == _O:
        i, top_r = _read_count(data, skip_key(data, i, _TOP_R))
    elif letter == _H:
        i, threshold = _read_threshold(data, skip_key(data, i, _THRESHOLD), number_out)
    elif letter == _E:
        i, is_exact = read_truth(data, skip_key(data, i, _EXACT))
    else:
        i, beam_width = _read_count(data, skip_key(data, i, _BEAM_WIDTH))
    return i, (top_r, beam_width, threshold, is_exact)


@nonallocating_inlined
def _read_instances(
    data: U8, i: int, are_texts: bool, n_features: int, rows_out: RowArrays, texts_at: Handle
) -> tuple[int, int]:
    """Read the instances of a list, from after its opening bracket on.

    Return (the place after the closing bracket, the number of instances).
    """
    indptr, indices, values = rows_out
    texts = struct_at(BodyTexts, texts_at)
    if are_texts and len(texts.ready) == 0:
        return len(data) - 1, 0
    n_rows = 0
    n_characters = 0
    while n_rows + 1 < len(indptr):
        if are_texts:
            i, n_characters = read_text(data, i, texts, n_rows, n_characters)
        else:
            i, indptr[n_rows + 1] = read_instance(
                data, i, n_features, indices, values, indptr[n_rows]
            )
        n_rows += 1
        i = skip_blanks(data, i)
        if data[i] == CLOSE_LIST:
            return i + 1, n_rows
        i = skip_byte(data, i, COMMA)
        if i == len(data) - 1:
            break
    return len(data) - 1, 0


@nonallocating_inlined
def _read_count(data: U8, i: int) -> tuple[int, int]:
    """Read the integer >= 1 that follows a key; return (the place after it, the integer)."""
    i = skip_blanks(data, skip_byte(data, i, COLON))
    number, end = parse_id(data, i, COUNT_LIMIT)
    if not is_digit(data[i]) or data[i] == ZERO:
        return len(data) - 1, 0
    return end, number


@nonallocating_inlined
def _read_threshold(data: U8, i: int, number_out: F32) -> tuple[int, int]:
    """Read the threshold that follows a key; return (the place after it, TUNED or NUMBER)."""
    i = skip_blanks(data, skip_byte(data, i, COLON))
    if data[i] == QUOTE:
        return skip_key(data, i, _TUNED_WORD), TUNED
    number, i = read_number(data, i)
    number_out[0] = number
    return i if np.float32(0.0) < number < np.float32(1.0) else len(data) - 1, NUMBER


@nonallocating_inlined
def read_truth(data: U8, i: int) -> tuple[int, int]:
    """Read the `true` or `false` that follows a key; return (the place after it, 1 or 0)."""
    i = skip_blanks(data, skip_byte(data, i, COLON))
    if data[i] == _F:
        return skip_key(data, i, _FALSE), 0
    return skip_key(data, i, _TRUE), 1
