"""Texts that kernels read: their characters are made ready one by one, and rows are made of them.

Who reads them, from JSON or from binary data, gives each character to `put_character`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from xylem.base import RowArrays
from xylem_store import (
    I32_1,
    I64_1,
    U8,
    U8_1,
    Handle,
    caller,
    handle,
    kernel,
    nonallocating_inlined,
    size_of,
    struct_at,
)

_BLANK = 32
_HYPHEN = 45

# The most bytes of a character.
UTF8_A_CHARACTER = 4

# A value in `BodyTexts.ready`: the character stays, but after a hyphen the text is left to Python.
LINE_END = -2


@nonallocating_inlined
def encode(code: int, utf8: U8, position: int) -> int:
    """Write a code point as UTF-8 to utf8[position:]; return where it ends."""
    size = size_of(code)
    if size == 1:
        utf8[position] = code
        return position + 1
    for k in range(size - 1, 0, -1):
        utf8[position + k] = 0x80 | (code & 0x3F)
        code >>= 6
    utf8[position] = ((0xF00 >> size) & 0xFF) | code
    return position + size


_Tuple: Any = types.Tuple

# The return type of kernels that make rows of texts (`xylem.engine.features.featurizer`).
ROWS = _Tuple([types.int64[::1], types.int32[::1], types.float32[::1]])

_rows_by = caller(ROWS)

_LEFT = -1


@handle
class BodyTexts(NamedTuple):
    """The fields that a kernel needs to read the texts of a body, and to make their rows.

    rows_by         the address of the kernel that makes the rows
    table           the handle of that kernel's struct
    ready           int32[codes]: the code point that each code point becomes, or LINE_END, or -1 if
                    the text is left to Python, as with code points beyond the array; [0]: no texts
                    are read
    utf8            uint8[..]: the normalised texts, with room for UTF8_A_CHARACTER bytes a
                    character
    text_ptr        int64[n + 1]: text i is utf8[text_ptr[i] : text_ptr[i + 1]]
    characters_max  the most characters of all texts
    bytes_max       the most bytes of a text as UTF-8, as it is sent
    """

    rows_by: int
    table: Handle
    ready: I32_1
    utf8: U8_1
    text_ptr: I64_1
    characters_max: int
    bytes_max: int


def no_texts() -> BodyTexts:
    """Return buffers without room, into which no texts are read."""
    empty = np.empty(0, np.int64)
    return BodyTexts(
        rows_by=0,
        table=empty,
        ready=np.empty(0, np.int32),
        utf8=np.empty(0, np.uint8),
        text_ptr=empty,
        characters_max=0,
        bytes_max=0,
    )


@nonallocating_inlined
def put_character(
    code: int, texts: BodyTexts, position: int, n_characters: int
) -> tuple[int, bool]:
    """Write what a character becomes to utf8[position:]; return (where it ends, whether it is
    written).

    It is not written if there is no room for n_characters characters, or if the character is left
    to Python.
    """
    ready = int(np.int64(texts.ready[code])) if 0 <= code < len(texts.ready) else _LEFT
    if n_characters > texts.characters_max:
        return position, False
    if ready < 0:
        if ready != LINE_END or _ends_in_hyphen(texts.utf8, position):
            return position, False
        ready = code
    return encode(ready, texts.utf8, position), True


@nonallocating_inlined
def _ends_in_hyphen(utf8: U8, position: int) -> bool:
    """Return whether there is a hyphen before utf8[position], maybe with blanks between."""
    while position > 0 and utf8[position - 1] <= _BLANK:
        position -= 1
    return bool(position > 0 and utf8[position - 1] == _HYPHEN)


@kernel
def write_rows(texts_at: Handle, n_texts: int, rows_out: RowArrays) -> int:
    """Make the rows of the texts that have been read; return the number of their features.

    Return 0 if there is no room, or a text has no features: Python answers these requests, and
    reports such texts.
    """
    texts = struct_at(BodyTexts, texts_at)
    indptr, indices, values = rows_out
    text_ptr = texts.text_ptr[: n_texts + 1]
    ptr, ids, weights = _rows_by(
        texts.rows_by, (texts.utf8[: text_ptr[n_texts]], text_ptr, texts.table)
    )
    n = len(ids)
    if n > len(indices):
        return 0
    for row in range(n_texts):
        indptr[row + 1] = ptr[row + 1]
        if ptr[row + 1] == ptr[row]:
            n = 0
    for i in range(n):
        indices[i] = ids[i]
        values[i] = weights[i]
    return n
