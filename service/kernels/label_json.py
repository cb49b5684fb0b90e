"""The JSON of predicted labels, written without the interpreter's lock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.jit import inlined, kernel
from service.kernels.digits import TEXT_BYTES_MAX, write_float32, write_integer

_LABEL = np.frombuffer(b'{"label":"', np.uint8)
_ID = np.frombuffer(b'","id":', np.uint8)
_SCORE = np.frombuffer(b',"score":', np.uint8)
_FIXED = len(_LABEL) + len(_ID) + len(_SCORE) + 10 + TEXT_BYTES_MAX + len("},")
_QUOTE, _BACKSLASH = 34, 92
_OPEN_LIST, _CLOSE_LIST, _CLOSE, _COMMA = 91, 93, 125, 44


@inlined
def _copy(text: NDArray[np.uint8], out: NDArray[np.uint8], at: int) -> int:
    for i in range(len(text)):
        out[at + i] = text[i]
    return at + len(text)


@inlined
def _write_name(utf8: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8], at: int) -> int:
    """Write a name as the inside of a JSON string: names have no control characters (NameTable)."""
    for i in range(start, end):
        if utf8[i] == _QUOTE or utf8[i] == _BACKSLASH:
            out[at] = _BACKSLASH
            at += 1
        out[at] = utf8[i]
        at += 1
    return at


@kernel
def write_labels(
    ptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    scores: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    utf8: NDArray[np.uint8],
    out: NDArray[np.uint8],
    ends_out: NDArray[np.int64],
) -> bool:
    """Write `[{"label":"a","id":3,"score":0.5},...]` for each row; return whether there was room.

    Parameters: ptr int64[n + 1]; labels int32[ptr[n]]; scores uint32[ptr[n]], the bits of float32, finite and
    not below 0; offsets, utf8 as in NameTable; out uint8[..]; ends_out int64[n], where each row's text ends.
    Deterministic; some 50 nanoseconds a label.
    """
    at = 0
    for row in range(len(ptr) - 1):
        first, last = ptr[row], ptr[row + 1]
        if at + 2 > len(out):
            return False
        out[at] = _OPEN_LIST
        at += 1
        for i in range(first, last):
            start, end = offsets[labels[i]], offsets[labels[i] + 1]
            if at + _FIXED + 2 * (end - start) > len(out):
                return False
            at = _write_name(utf8, start, end, out, _copy(_LABEL, out, at))
            at = write_integer(np.int64(labels[i]), out, _copy(_ID, out, at))
            at = write_float32(scores[i], out, _copy(_SCORE, out, at))
            out[at], out[at + 1] = _CLOSE, _COMMA
            at += 2 if i + 1 < last else 1
        out[at] = _CLOSE_LIST
        at += 1
        ends_out[row] = at
    return True
