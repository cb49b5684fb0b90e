"""Tensors as binary data: rows of a request are read, and outputs of an answer are written.

A `form`, int64[FORM_SIZE], describes a request: where its tensors begin in the data, the options of
the prediction, and which outputs the answer has. The writer adds where each output ends. In the
Open Inference Protocol these facts are JSON, which kernels do not read.
"""

from typing import TypeAlias

import numpy as np

from xylem.base import RowArrays
from xylem.engine import BodyTexts, put_character
from xylem.serving.dialects.predict.kernels.prediction_json import copy_text, pack
from xylem_store import F32, I32, I64, U8, U32, code_of, kernel, nonallocating_inlined

# Places of a form: how many rows, values and bytes; where the data of each tensor begin, -1 for one
# that is not there; the fields of a BodyQuery; how many outputs, and from OUTPUT on each of them.
(
    N_ROWS,
    N_VALUES,
    N_BYTES,
    INDPTR,
    INDICES,
    VALUES,
    TEXT,
    TOP_R,
    BEAM_WIDTH,
    THRESHOLD,
    IS_EXACT,
    N_OUTPUTS,
    OUTPUT,
) = range(13)

# The outputs.
LABELS, LABEL_IDS, SCORES, LENGTHS, EXACT = range(5)

N_ALL = 5

# From here on the form says where each output ends.
END = OUTPUT + N_ALL

FORM_SIZE = END + N_ALL

_LENGTH_BYTES = 4  # an element of texts begins with its length
_ELEMENT_BYTES = 4  # of each number, and of the length of a name; more than a truth value has

# Starts, ends, labels, the bits of their scores, and whether rows are exact.
_Spans: TypeAlias = tuple[I64, I64, I32, U32, U8]


@nonallocating_inlined
def unpack(data: U8, start: int, n_bytes: int) -> int:
    """Return the integer of n_bytes bytes at data[start], little-endian.

    It can be negative only if n_bytes is 8.
    """
    number = np.int64(0)
    for k in range(n_bytes):
        number |= np.int64(data[start + k]) << (8 * k)
    return int(number)


@nonallocating_inlined
def copy_rows(data: U8, start: int, n_features: int, form: I64, rows: RowArrays) -> int:
    """Copy compressed sparse rows from data[start:]; return how many, 0 if they are not right.

    The ends of the rows must ascend from 0 to the number of values.
    """
    indptr, indices, values = rows
    n_rows = form[N_ROWS]
    n = form[N_VALUES]
    if n_rows < 1 or n_rows >= len(indptr) or n > len(indices):
        return 0
    position = start + form[INDPTR]
    is_right = unpack(data, position, 8) == 0
    for row in range(1, n_rows + 1):
        indptr[row] = unpack(data, position + 8 * row, 8)
        is_right &= indptr[row] >= indptr[row - 1]
    if not is_right or indptr[n_rows] != n:
        return 0
    position = start + form[INDICES]
    for k in range(n):
        feature = unpack(data, position + 4 * k, 4)
        is_right &= feature < n_features
        indices[k] = feature
    position = start + form[VALUES]
    bits = values.view(np.uint32)
    for k in range(n):
        bits[k] = unpack(data, position + 4 * k, 4)
    return n_rows if is_right else 0


@nonallocating_inlined
def _read_text(
    data: U8, i: int, stop: int, texts: BodyTexts, position: int, n_characters: int
) -> tuple[int, int, int]:
    """Read the text data[i:stop], plain UTF-8, and write it, normalised, to utf8[position:].

    Return (the place after the text, its end in utf8, the number of characters so far). The text
    has been read if that place is `stop`.
    """
    if stop - i > texts.bytes_max:
        return len(data) - 1, position, n_characters
    while i < stop:
        i, code = code_of(data, i)
        n_characters += 1
        position, is_ready = put_character(code, texts, position, n_characters)
        if not is_ready:
            return len(data) - 1, position, n_characters
    return i, position, n_characters


@nonallocating_inlined
def copy_texts(data: U8, start: int, form: I64, texts: BodyTexts) -> bool:
    """Read texts, each behind its length, from data[start:]; return whether all are right."""
    n = form[N_ROWS]
    if n < 1 or n >= len(texts.text_ptr) or len(texts.ready) == 0:
        return False
    i = start + form[TEXT]
    end = start + form[N_BYTES]
    n_characters = 0
    for text in range(n):
        if end - i < _LENGTH_BYTES:
            return False
        length = unpack(data, i, _LENGTH_BYTES)
        i += _LENGTH_BYTES
        if length > end - i:
            return False
        stop = i + length
        i, texts.text_ptr[text + 1], n_characters = _read_text(
            data, i, stop, texts, texts.text_ptr[text], n_characters
        )
        if i != stop:
            return False
    return bool(i == end)


@nonallocating_inlined
def _name_bytes(starts: I64, ends: I64, labels: I32, offsets: I64) -> int:
    """Return the bytes of the names of all labels."""
    n_bytes = 0
    for row in range(len(starts)):
        for i in range(starts[row], ends[row]):
            n_bytes += offsets[labels[i] + 1] - offsets[labels[i]]
    return n_bytes


@nonallocating_inlined
def _pack_place(
    output: int, row: int, place: int, spans: _Spans, names: tuple[I64, U8], out: U8, position: int
) -> int:
    """Write the element of an output at a place of a row; return where it ends."""
    starts, ends, labels, bits, exact = spans
    offsets, utf8 = names
    i = starts[row] + place
    has_label = i < ends[row]
    if output == LABELS:
        start = 0
        end = 0
        if has_label:
            start = int(offsets[labels[i]])
            end = int(offsets[labels[i] + 1])
        position = pack(end - start, 4, out, position)
        return copy_text(utf8[start:end], out, position)
    if output == SCORES:
        return pack(int(bits[i]) if has_label else 0, 4, out, position)
    if output == LENGTHS:
        return pack(ends[row] - starts[row], 4, out, position)
    if output == EXACT:
        return pack(np.int64(exact[row]), 1, out, position)
    return pack(int(labels[i]) if has_label else -1, 4, out, position)


@kernel
def pack_outputs(
    spans: tuple[I64, I64, I32, F32, U8], names: tuple[I64, U8], form: I64, out: U8
) -> bool:
    """Write the outputs of a form as binary data, one behind the other.

    Return whether there was room.

    spans, names  as `write_predictions` of the dialect of predict takes them
    form          int64[FORM_SIZE]; where each output ends is written to it
    out           uint8[..]

    A row has form[TOP_R] places; those without a label have an empty name, -1 and 0.
    """
    starts, ends, labels, scores, exact = spans
    n_rows = len(starts)
    n_places = form[TOP_R]
    name_bytes = _name_bytes(starts, ends, labels, names[0])
    n_elements = n_rows * (3 * n_places + 2)
    if name_bytes + _ELEMENT_BYTES * n_elements > len(out):
        return False
    packed_spans = starts, ends, labels, scores.view(np.uint32), exact
    position = 0
    for k in range(form[N_OUTPUTS]):
        output = form[OUTPUT + k]
        for row in range(n_rows):
            for place in range(n_places if output <= SCORES else 1):
                position = _pack_place(output, row, place, packed_spans, names, out, position)
        form[END + k] = position
    return True
