"""Answers of the Open Inference Protocol: their tensors as JSON, and as binary data behind it.

What is asked for is a `form`, int64[FORM_SIZE], which the reader of a request fills in and the
writer of the answer reads: PLACES of a row, N_OUTPUTS, and of each output, from FIRST_OUTPUT on,
twice its place in OUTPUTS and 1 if it comes as binary data. IDENTITY and IDENTITY_END say where in
the request its id is, both 0 for none. The writer says where the answer's JSON and its binary data
end: JSON_END and BINARY_END.
"""

from typing import TypeAlias

import numpy as np

from xylem.engine.kernels.text.digits import TEXT_BYTES_MAX, write_float32, write_integer
from xylem.engine.kernels.text.prediction_json import copy_text, pack, write_name
from xylem_store import F32, I32, I64, U8, U32, inlined, kernel

OUTPUTS = {
    "labels": "BYTES",
    "label_ids": "INT32",
    "scores": "FP32",
    "lengths": "INT32",
    "exact": "BOOL",
}
"""The tensors of an answer, and their types."""

PLACES, IDENTITY, IDENTITY_END, JSON_END, BINARY_END, N_OUTPUTS, FIRST_OUTPUT = range(7)
N_ALL = len(OUTPUTS)
FORM_SIZE = FIRST_OUTPUT + N_ALL

_LABELS, _IDS, _SCORES, _LENGTHS = range(4)
_BEGINS = [f'{{"name":"{name}","shape":['.encode() for name in OUTPUTS]
_MIDDLES = [f'],"datatype":"{datatype}",'.encode() for datatype in OUTPUTS.values()]
_TEXT = np.frombuffer(b"".join([*_BEGINS, *_MIDDLES]), np.uint8)
_PTR = np.cumsum([0, *map(len, [*_BEGINS, *_MIDDLES])])
_DATA = np.frombuffer(b'"data":[', np.uint8)
_SIZE = np.frombuffer(b'"parameters":{"binary_data_size":', np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_AROUND = len(_TEXT) + N_ALL * (len(_SIZE) + 64)
_A_PLACE = len('"",') + len("2147483647,") + TEXT_BYTES_MAX + len(",") + 12
"""Bytes of a place besides its label's name: in JSON, and the binary data of three tensors."""
_A_ROW = len("2147483647,") + len("false,") + 5
_QUOTE = 34
_MINUS = 45
_ONE = 49
_COMMA = 44
_CLOSE_LIST = 93
_CLOSE = 125

_Spans: TypeAlias = tuple[I64, I64, I32, U32, U8]
"""Starts, ends, labels, the bits of their scores, and whether rows are exact."""


@inlined
def _name_bytes(starts: I64, ends: I64, labels: I32, offsets: I64) -> int:
    """Return the bytes of the names of all labels found."""
    n_bytes = 0
    for row in range(len(starts)):
        for i in range(starts[row], ends[row]):
            n_bytes += offsets[labels[i] + 1] - offsets[labels[i]]
    return n_bytes


@inlined
def _binary_bytes(output: int, n_rows: int, n_places: int, name_bytes: int) -> int:
    """Return the size of an output as binary data."""
    if output > _SCORES:
        return n_rows * (4 if output == _LENGTHS else 1)
    return 4 * n_rows * n_places + (name_bytes if output == _LABELS else 0)


@inlined
def _write_element(
    output: int, row: int, place: int, spans: _Spans, names: tuple[I64, U8], out: U8, at: int
) -> int:
    """Write the element of an output at a place of a row as JSON; return its end."""
    starts, ends, labels, bits, exact = spans
    offsets, utf8 = names
    i = starts[row] + place
    is_there = i < ends[row]
    if output == _LABELS:
        out[at] = _QUOTE
        at += 1
        if is_there:
            at = write_name(utf8, offsets[labels[i]], offsets[labels[i] + 1], out, at)
        out[at] = _QUOTE
        return at + 1
    if output == _SCORES:
        return write_float32(bits[i] if is_there else np.uint32(0), out, at)
    if output == _LENGTHS:
        return write_integer(np.int64(ends[row] - starts[row]), out, at)
    if output > _LENGTHS:
        return copy_text(_TRUE if exact[row] else _FALSE, out, at)
    if is_there:
        return write_integer(np.int64(labels[i]), out, at)
    out[at] = _MINUS
    out[at + 1] = _ONE
    return at + 2


@inlined
def _pack_element(
    output: int, row: int, place: int, spans: _Spans, names: tuple[I64, U8], out: U8, at: int
) -> int:
    """Write the element of an output at a place of a row as binary data; return its end."""
    starts, ends, labels, bits, exact = spans
    offsets, utf8 = names
    i = starts[row] + place
    is_there = i < ends[row]
    if output == _LABELS:
        start = 0
        end = 0
        if is_there:
            start = int(offsets[labels[i]])
            end = int(offsets[labels[i] + 1])
        at = pack(end - start, 4, out, at)
        return copy_text(utf8[start:end], out, at)
    if output == _SCORES:
        return pack(int(bits[i]) if is_there else 0, 4, out, at)
    if output == _LENGTHS:
        return pack(ends[row] - starts[row], 4, out, at)
    if output > _LENGTHS:
        return pack(np.int64(exact[row]), 1, out, at)
    return pack(int(labels[i]) if is_there else -1, 4, out, at)


@inlined
def _write_elements(
    output: int,
    is_binary: bool,
    n_places: int,
    spans: _Spans,
    names: tuple[I64, U8],
    out: U8,
    at: int,
) -> int:
    """Write all elements of an output, as binary data, or as JSON
    and a comma each; return their end.
    """
    for row in range(len(spans[0])):
        for place in range(n_places if output <= _SCORES else 1):
            if is_binary:
                at = _pack_element(output, row, place, spans, names, out, at)
            else:
                at = _write_element(output, row, place, spans, names, out, at)
                out[at] = _COMMA
                at += 1
    return at


@kernel
def write_tensors(
    spans: tuple[I64, I64, I32, F32, U8], names: tuple[I64, U8], form: I64, out: U8
) -> bool:
    """Write the outputs that are asked for as JSON, commas between them, and then the binary data.

    spans, names  as `xylem.engine.kernels.text.prediction_json.write_predictions` takes them
    form          int64[FORM_SIZE]; the two ends are written
    out           uint8[..]

    The JSON is orjson's, byte for byte. Places of a row without a label are filled up: with an
    empty name, -1 and 0. Returns whether there was room. Deterministic; some 40 nanoseconds a
    place.
    """
    starts, ends, labels, scores, exact = spans
    n_rows = len(starts)
    n_places = form[PLACES]
    name_bytes = _name_bytes(starts, ends, labels, names[0])
    if _AROUND + n_rows * (_A_ROW + n_places * _A_PLACE) + 3 * name_bytes > len(out):
        return False
    found = starts, ends, labels, scores.view(np.uint32), exact
    at = 0
    for k in range(form[N_OUTPUTS]):
        output = form[FIRST_OUTPUT + k] >> 1
        is_binary = form[FIRST_OUTPUT + k] & 1
        if k > 0:
            out[at] = _COMMA
            at += 1
        at = write_integer(
            np.int64(n_rows), out, copy_text(_TEXT[_PTR[output] : _PTR[output + 1]], out, at)
        )
        if output <= _SCORES:
            out[at] = _COMMA
            at = write_integer(n_places, out, at + 1)
        middle = output + N_ALL
        at = copy_text(_TEXT[_PTR[middle] : _PTR[middle + 1]], out, at)
        if is_binary:
            size = _binary_bytes(output, n_rows, n_places, name_bytes)
            at = write_integer(np.int64(size), out, copy_text(_SIZE, out, at))
            out[at] = _CLOSE
        else:
            at = (
                _write_elements(
                    output, False, n_places, found, names, out, copy_text(_DATA, out, at)
                )
                - 1
            )
            out[at] = _CLOSE_LIST
        out[at + 1] = _CLOSE
        at += 2
    form[JSON_END] = at
    for k in range(form[N_OUTPUTS]):
        output = form[FIRST_OUTPUT + k] >> 1
        is_binary = form[FIRST_OUTPUT + k] & 1
        if is_binary:
            at = _write_elements(output, True, n_places, found, names, out, at)
    form[BINARY_END] = at
    return True
