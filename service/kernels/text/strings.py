"""Strings of JSON, character by character: UTF-8 that is checked, and escapes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined

QUOTE, _BACKSLASH, _BLANK, _U = 34, 92, 32, 117
_ESCAPED = np.frombuffer(b'"\\/bfnrt', np.uint8)
_MEANT = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)

UTF8_A_CHARACTER = 4
"""Bytes of a character, at most."""

NO_CODE = -2
"""In place of a code point: what stands here is no character of a string."""

_NOT_ASCII = 0x80
_HIGH_SURROGATE, _LOW_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xDC00, 0xE000
_PLANE_1, _CODES = 0x10000, 0x110000


@inlined
def _at(data: NDArray[np.uint8], i: int) -> int:
    """Return the byte at data[i] as an integer of 64 bits."""
    return int(np.int64(data[i]))


@inlined
def size_of(code: int) -> int:
    """Return how many bytes of UTF-8 a code point has."""
    return 1 if code < 0x80 else (2 if code < 0x800 else (3 if code < _PLANE_1 else 4))


@inlined
def encode(code: int, utf8: NDArray[np.uint8], at: int) -> int:
    """Write a code point as UTF-8 to utf8[at:]; return where it ends."""
    size = size_of(code)
    if size == 1:
        utf8[at] = code
        return at + 1
    for k in range(size - 1, 0, -1):
        utf8[at + k] = 0x80 | (code & 0x3F)
        code >>= 6
    utf8[at] = ((0xF00 >> size) & 0xFF) | code
    return at + size


@inlined
def next_code(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Return (the place after it, the code point) of the character at data[i], NO_CODE: there is none.

    The data end with a control character.
    """
    byte = _at(data, i)
    if byte == _BACKSLASH:
        return _escaped(data, i)
    return code_of(data, i) if byte >= _BLANK else (i, NO_CODE)


@inlined
def code_of(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Return (the place after it, the code point) of the UTF-8 at data[i], NO_CODE: not well formed.

    That is what is longer than need be, a surrogate, or beyond the last character.
    """
    byte = _at(data, i)
    if byte < _NOT_ASCII:
        return i + 1, byte
    size = 2 if 0xC2 <= byte < 0xE0 else (3 if 0xE0 <= byte < 0xF0 else (4 if 0xF0 <= byte < 0xF5 else 0))
    if size == 0:
        return i, NO_CODE
    code = byte & (0x7F >> size)
    for k in range(1, size):
        more = _at(data, i + k)
        if more & 0xC0 != 0x80:
            return i, NO_CODE
        code = code << 6 | more & 0x3F
    if size_of(code) != size or _HIGH_SURROGATE <= code < _AFTER_SURROGATES or code >= _CODES:
        return i, NO_CODE
    return i + size, code


@inlined
def _escaped(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Return (the place after it, the code point) of the escape at data[i]; NO_CODE if it is not right."""
    letter = data[i + 1]
    for k in range(len(_ESCAPED)):
        if letter == _ESCAPED[k]:
            return i + 2, _at(_MEANT, k)
    if letter != _U:
        return i, NO_CODE
    code = _hex(data, i + 2)
    i += 6 if code >= 0 else 0
    if not _HIGH_SURROGATE <= code < _AFTER_SURROGATES:
        return i, code
    if code >= _LOW_SURROGATE or data[i] != _BACKSLASH or data[i + 1] != _U:
        return i, NO_CODE
    low = _hex(data, i + 2)
    if not _LOW_SURROGATE <= low < _AFTER_SURROGATES:
        return i, NO_CODE
    return i + 6, _PLANE_1 + ((code - _HIGH_SURROGATE) << 10) + (low - _LOW_SURROGATE)


@inlined
def _hex(data: NDArray[np.uint8], i: int) -> int:
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
