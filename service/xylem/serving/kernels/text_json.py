"""Read the texts of requests in kernels: strings of JSON become texts, their characters ready.

Only a subset of JSON is read, as in `xylem.serving.kernels.sparse_json`: if something is not
expected, or a character must be normalised in Python, functions return the last place of the data.
"""

import numpy as np

from xylem.engine import BodyTexts, put_character
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
    NO_CODE,
    PLANE_1,
    U8,
    Handle,
    code_of,
    kernel,
    nonallocating_inlined,
    size_of,
    struct_at,
)

QUOTE = 34
BACKSLASH = 92
_BLANK = 32
LETTER_U = 117
_ESCAPED = np.frombuffer(b'"\\/bfnrt', np.uint8)
_MEANT = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)
_TEXT = np.frombuffer(b'"text"', np.uint8)
_LOW_SURROGATE = 0xDC00


@nonallocating_inlined
def _byte_at(data: U8, i: int) -> int:
    """Return the byte at data[i] as an integer of 64 bits."""
    return int(np.int64(data[i]))


@nonallocating_inlined
def next_code(data: U8, i: int) -> tuple[int, int]:
    """Return (the place after the character at data[i], its code point).

    The code point is NO_CODE if no character of a string begins there. The data end with a control
    character.
    """
    byte = _byte_at(data, i)
    if byte == BACKSLASH:
        return _escaped(data, i)
    return code_of(data, i) if byte >= _BLANK else (i, NO_CODE)


@nonallocating_inlined
def _escaped(data: U8, i: int) -> tuple[int, int]:
    """Return (the place after the escape at data[i], its code point), NO_CODE if it is wrong."""
    letter = data[i + 1]
    for k in range(len(_ESCAPED)):
        if letter == _ESCAPED[k]:
            return i + 2, _byte_at(_MEANT, k)
    if letter != LETTER_U:
        return i, NO_CODE
    code = _hex(data, i + 2)
    i += 6 if code >= 0 else 0
    if not HIGH_SURROGATE <= code < AFTER_SURROGATES:
        return i, code
    if code >= _LOW_SURROGATE or data[i] != BACKSLASH or data[i + 1] != LETTER_U:
        return i, NO_CODE
    low = _hex(data, i + 2)
    if not _LOW_SURROGATE <= low < AFTER_SURROGATES:
        return i, NO_CODE
    return i + 6, PLANE_1 + ((code - HIGH_SURROGATE) << 10) + (low - _LOW_SURROGATE)


@nonallocating_inlined
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


@nonallocating_inlined
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


@nonallocating_inlined
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


@nonallocating_inlined
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
        position, is_ready = put_character(code, texts, position, n_characters)
        if not is_ready or n_bytes > texts.bytes_max:
            return len(data) - 1, position, n_characters
    return i + 1, position, n_characters
