"""Texts of requests: strings of JSON made ready for features, and
the rows that a kernel makes of them.

It is a part of what JSON allows, as in `xylem.engine.kernels.text.sparse_json`: what is not as
expected, and characters that Python must look at, lead to the last place of the data.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from xylem.base import RowArrays
from xylem.engine.kernels.text.sparse_json import (
    CLOSE,
    COLON,
    END,
    OPEN,
    after,
    after_key,
    skip_blanks,
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
"""Bytes of a character, at most."""

LINE_END = -2
"""In place of what a character becomes: the character, but after a hyphen the text is
for Python.
"""

_LOW_SURROGATE = 0xDC00


@inlined
def _at(data: U8, i: int) -> int:
    """Return the byte at data[i] as an integer of 64 bits."""
    return int(np.int64(data[i]))


@inlined
def encode(code: int, utf8: U8, position: int) -> int:
    """Write a code point as UTF-8 to utf8[at:]; return where it ends."""
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
    """Return (the place after it, the code point) of the character
    at data[i], NO_CODE: there is none.

    The data end with a control character.
    """
    byte = _at(data, i)
    if byte == _BACKSLASH:
        return _escaped(data, i)
    return code_of(data, i) if byte >= _BLANK else (i, NO_CODE)


@inlined
def _escaped(data: U8, i: int) -> tuple[int, int]:
    """Return (the place after it, the code point) of the escape at
    data[i]; NO_CODE if it is not right.
    """
    letter = data[i + 1]
    for k in range(len(_ESCAPED)):
        if letter == _ESCAPED[k]:
            return i + 2, _at(_MEANT, k)
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
    """Return the number of the four hexadecimal digits at data[i], NO_CODE if they are others."""
    code = 0
    for k in range(4):
        byte = _at(data, i + k)
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
"""What kernels return that make rows of texts (`xylem.engine.features.text_featurizer`)."""

_rows_by = caller(ROWS)

_TEXT = np.frombuffer(b'"text"', np.uint8)
TEXTS = -1
"""In place of a number of values that was read: the instances are
texts, whose rows are yet to be made.
"""

_LEFT = -1


@handle
class BodyTexts(NamedTuple):
    """What a kernel needs to read the texts of a body, and to make their rows.

    rows_by         the address of the kernel that makes them, for kernels that call it; table: what
                    it takes
    ready           int32[codes]  what a character becomes, or LINE_END; -1: that is for Python, as
                    are codes from here on; [0]: no texts are read
    utf8            uint8[..]     where the texts are made ready, UTF8_A_CHARACTER bytes a character
    text_ptr        int64[n + 1]  where they begin and end
    characters_max  of all texts
    bytes_max       of a text as it is sent
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
    """Return whether an instance that begins here is a text."""
    return bool(after_key(data, after(data, i, OPEN), _TEXT) < len(data) - 1)


@kernel
def read_text_lines(data: U8, texts_at: Handle) -> bool:
    """Read a text of each line of `data`, as many as there is room for;
    return whether all lines are texts.

    Every line ends with END, which nothing within a line is.
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
    """Read `{"text": "..."}`, the n-th; return (the place after it
    and blanks, how many characters now).

    The last place of all when it is none, has a character that is for Python, or there is no room.
    """
    i = after(data, after_key(data, after(data, i, OPEN), _TEXT), COLON)
    i, texts.text_ptr[n + 1], n_characters = read_string(
        data, i, texts, texts.text_ptr[n], n_characters
    )
    return skip_blanks(data, after(data, i, CLOSE)), n_characters


@inlined
def read_string(
    data: U8, i: int, texts: BodyTexts, position: int, n_characters: int
) -> tuple[int, int, int]:
    """Read a string and write it, made ready, to utf8[at:].

    Returns (the place after it, where it ends, how many characters there are now).
    """
    i = after(data, i, QUOTE)
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
    """Do as `read_string`, of data[i:stop], the UTF-8 of a text as it
    is; elsewhere than at `stop`: none.
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
    """Write what the n-th character becomes to utf8[at:]; return
    (where it ends, whether it is there).

    It is not when there is no room for so many, or what it becomes is for Python.
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
    """Return whether a hyphen, and maybe blanks, stand before utf8[at]."""
    while position > 0 and utf8[position - 1] <= _BLANK:
        position -= 1
    return bool(position > 0 and utf8[position - 1] == _HYPHEN)


@kernel
def write_rows(texts_at: Handle, n_texts: int, rows_out: RowArrays) -> int:
    """Make the rows of the texts that were read; return how many features they have.

    0: there is no room, or a text has none, which is told where Python answers.
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
