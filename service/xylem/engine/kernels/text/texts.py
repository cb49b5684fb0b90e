"""Read the texts of requests in kernels: normalise strings of JSON, and make the rows of them.

Only a subset of JSON is read, as in `xylem.serving.kernels.sparse_json`: if something is not
expected, or a character must be normalised in Python, functions return the last place of the data.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from xylem.base import RowArrays
from xylem.serving.kernels.sparse_json import (
    CLOSE,
    COLON,
    END,
    OPEN,
    skip_blanks,
    skip_byte,
    skip_key,
)
from xylem_store import (
    AFTER_SURROGATES,
    HIGH_SURROGATE,
    I32_1,
    I64_1,
    NO_CODE,
    PLANE_1,
    U8,
    U8_1,
    Handle,
    caller,
    code_of,
    handle,
    inlined,
    kernel,
    size_of,
    struct_at,
)

QUOTE = 34
_BACKSLASH = 92
_BLANK = 32
_HYPHEN = 45
_U = 117
_ESCAPED = np.frombuffer(b'"\\/bfnrt', np.uint8)
_MEANT = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)

UTF8_A_CHARACTER = 4
"""The most bytes of a character."""

LINE_END = -2
"""A value in `BodyTexts.ready`: the character stays, but after a hyphen the text is left to Python.
"""

_LOW_SURROGATE = 0xDC00


@inlined
def _byte_at(data: U8, i: int) -> int:
    """Return the byte at data[i] as an integer of 64 bits."""
    return int(np.int64(data[i]))


@inlined
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


@inlined
def next_code(data: U8, i: int) -> tuple[int, int]:
    """Return (the place after the character at data[i], its code point).

    The code point is NO_CODE if no character of a string begins there. The data end with a control
    character.
    """
    byte = _byte_at(data, i)
    if byte == _BACKSLASH:
        return _escaped(data, i)
    return code_of(data, i) if byte >= _BLANK else (i, NO_CODE)


@inlined
def _escaped(data: U8, i: int) -> tuple[int, int]:
    """Return (the place after the escape at data[i], its code point), NO_CODE if it is wrong."""
    letter = data[i + 1]
    for k in range(len(_ESCAPED)):
        if letter == _ESCAPED[k]:
            return i + 2, _byte_at(_MEANT, k)
    if letter != _U:
        return i, NO_CODE
    code = _hex(data, i + 2)
    i += 6 if code >= 0 else 0
    if not HIGH_SURROGATE <= code < AFTER_SURROGATES:
        return i, code
    if code >= _LOW_SURROGATE or data[i] != _BACKSLASH or data[i + 1] != _U:
        return i, NO_CODE
    low = _hex(data, i + 2)
    if not _LOW_SURROGATE <= low < AFTER_SURROGATES:
        return i, NO_CODE
    return i + 6, PLANE_1 + ((code - HIGH_SURROGATE) << 10) + (low - _LOW_SURROGATE)


@inlined
def _hex(data: U8, i: int) -> int:
    """Return the number of four hexadecimal digits at data[i], NO_CODE if they are no digits."""
    code = 0
    for k in range(4):
        byte = _byte_at(data, i + k)
        if 48 <= byte < 58:
            digit = byte - 48
        elif 97 <= byte | 32 < 103:
            digit = (byte | 32) - 87
        else:
            return NO_CODE
        code = code << 4 | digit
    return int(code)


_Tuple: Any = types.Tuple
ROWS = _Tuple([types.int64[::1], types.int32[::1], types.float32[::1]])
"""The return type of kernels that make rows of texts (`xylem.engine.features.text_featurizer`)."""

_rows_by = caller(ROWS)

_TEXT = np.frombuffer(b'"text"', np.uint8)
TEXTS = -1
"""Stands for a number of values if the instances are texts whose rows have not been made yet."""

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


@inlined
def is_text(data: U8, i: int) -> bool:
    """Return whether the instance that begins at data[i] is a text."""
    return bool(skip_key(data, skip_byte(data, i, OPEN), _TEXT) < len(data) - 1)


@kernel
def read_text_lines(data: U8, texts_at: Handle) -> bool:
    """Read one text of each line of `data`; return whether all lines are texts.

    `text_ptr` says how many lines there are. Every line ends with END, a byte that does not occur
    within a line.
    """
    texts = struct_at(BodyTexts, texts_at)
    i = 0
    n_characters = 0
    for line in range(len(texts.text_ptr) - 1):
        i, n_characters = read_text(data, i, texts, line, n_characters)
        if data[i] != END:
            return False
        i += 1
    return True


@inlined
def read_text(data: U8, i: int, texts: BodyTexts, n: int, n_characters: int) -> tuple[int, int]:
    """Read the n-th instance `{"text": "..."}`.

    Return (the place after it and blanks, the number of characters of all texts so far). The place
    is the last one if it is no such instance, has a character that is left to Python, or there is
    no room.
    """
    i = skip_byte(data, skip_key(data, skip_byte(data, i, OPEN), _TEXT), COLON)
    i, texts.text_ptr[n + 1], n_characters = read_string(
        data, i, texts, texts.text_ptr[n], n_characters
    )
    return skip_blanks(data, skip_byte(data, i, CLOSE)), n_characters


@inlined
def read_string(
    data: U8, i: int, texts: BodyTexts, position: int, n_characters: int
) -> tuple[int, int, int]:
    """Read a string of JSON and write it, normalised, to utf8[position:].

    Return (the place after the string, its end in utf8, the number of characters so far).
    """
    i = skip_byte(data, i, QUOTE)
    n_bytes = 0
    while data[i] != QUOTE:
        i, code = next_code(data, i)
        n_bytes += size_of(code)
        n_characters += 1
        position, is_ready = _make_ready(code, texts, position, n_characters)
        if not is_ready or n_bytes > texts.bytes_max:
            return len(data) - 1, position, n_characters
    return i + 1, position, n_characters


@inlined
def read_bytes(
    data: U8, i: int, stop: int, texts: BodyTexts, position: int, n_characters: int
) -> tuple[int, int, int]:
    """Do as `read_string`, for data[i:stop], a text that is plain UTF-8 without quotes and escapes.

    The text has been read if the place that is returned is `stop`.
    """
    if stop - i > texts.bytes_max:
        return len(data) - 1, position, n_characters
    while i < stop:
        i, code = code_of(data, i)
        n_characters += 1
        position, is_ready = _make_ready(code, texts, position, n_characters)
        if not is_ready:
            return len(data) - 1, position, n_characters
    return i, position, n_characters


@inlined
def _make_ready(code: int, texts: BodyTexts, position: int, n_characters: int) -> tuple[int, bool]:
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


@inlined
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
