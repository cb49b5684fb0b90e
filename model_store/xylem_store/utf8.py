"""UTF-8 in kernels: code points of bytes, and sequences that are not well formed."""

import numpy as np

from xylem_store.compiled.decorators import nonallocating_inlined
from xylem_store.compiled.handles import U8

NO_CODE = -2  # returned instead of a code point for bytes that are no character

HIGH_SURROGATE = 0xD800
AFTER_SURROGATES = 0xE000
PLANE_1 = 0x10000
_CODES = 0x110000


@nonallocating_inlined
def size_of(code: int) -> int:
    """Return the number of bytes of a code point in UTF-8."""
    return 1 if code < 0x80 else (2 if code < 0x800 else (3 if code < PLANE_1 else 4))


@nonallocating_inlined
def code_of(data: U8, i: int) -> tuple[int, int]:
    """Return (the index after it, the code point) of the UTF-8 sequence at data[i].

    Return (i, NO_CODE) if it is not well formed: longer than necessary, a surrogate, or beyond the
    last character.
    """
    byte = int(np.int64(data[i]))
    if byte < 0x80:
        return i + 1, byte
    size = (
        2
        if 0xC2 <= byte < 0xE0
        else (3 if 0xE0 <= byte < 0xF0 else (4 if 0xF0 <= byte < 0xF5 else 0))
    )
    if size == 0 or i + size > len(data):
        return i, NO_CODE
    code = byte & (0x7F >> size)
    for k in range(1, size):
        continuation = int(np.int64(data[i + k]))
        if continuation & 0xC0 != 0x80:
            return i, NO_CODE
        code = code << 6 | continuation & 0x3F
    if size_of(code) != size or HIGH_SURROGATE <= code < AFTER_SURROGATES or code >= _CODES:
        return i, NO_CODE
    return i + size, code
