"""The part of CBOR (RFC 8949) that omikuji's files are in, read strictly.

Items are maps with text keys, arrays, text, integers from 0, and floats, all of definite length. An array of
numbers becomes a numpy array: a model is tens of millions of them. Nothing is allocated before its size was
held against the bytes that are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.importers.files import ModelFile

NESTED_MAX = 300
"""How deep arrays and maps may stand in each other."""

_UINT, _TEXT, _ARRAY, _MAP, _FLOAT = 0, 3, 4, 5, 7


@kernel
def _read_integers(data: NDArray[np.uint8], at: int, out: NDArray[np.int64]) -> int:
    """Fill `out` with integers from data[at:]; return where they end, -1 when one is none or cut off."""
    for i in range(len(out)):
        if at >= len(data):
            return -1
        first = data[at]
        at += 1
        if first < 24:
            out[i] = first
            continue
        if first > 27:
            return -1
        n_bytes = 1 << (first - 24)
        if at + n_bytes > len(data):
            return -1
        value = np.int64(0)
        for _ in range(n_bytes):
            value = (value << 8) | np.int64(data[at])
            at += 1
        if value < 0:
            return -1
        out[i] = value
    return at


@kernel
def _read_floats(data: NDArray[np.uint8], at: int, bits_out: NDArray[np.uint32]) -> int:
    """Fill `bits_out` with the bits of float32 from data[at:]; return where they end, -1 as above.

    Floats are of 16 or 32 bits: a writer shortens those that lose nothing by it.
    """
    for i in range(len(bits_out)):
        if at >= len(data):
            return -1
        n_bytes = 2 if data[at] == 0xF9 else 4
        if (n_bytes == 4 and data[at] != 0xFA) or at + n_bytes >= len(data):
            return -1
        at += 1
        bits = np.uint32(0)
        for _ in range(n_bytes):
            bits = (bits << np.uint32(8)) | np.uint32(data[at])
            at += 1
        bits_out[i] = _widen(bits) if n_bytes == 2 else bits
    return at


@kernel
def _widen(half: np.uint32) -> np.uint32:
    """Return the bits of the float32 that equals the float16 of these bits."""
    sign = (half & np.uint32(0x8000)) << np.uint32(16)
    exponent = (half >> np.uint32(10)) & np.uint32(31)
    fraction = half & np.uint32(0x3FF)
    if exponent == 31:
        return np.uint32(sign | np.uint32(0x7F800000) | (fraction << np.uint32(13)))
    if exponent == 0:
        if fraction == 0:
            return np.uint32(sign)
        exponent = np.uint32(1)
        while fraction < 0x400:
            fraction = fraction << np.uint32(1)
            exponent = exponent - np.uint32(1)
        fraction = fraction & np.uint32(0x3FF)
    return np.uint32(sign | ((exponent + np.uint32(112)) << np.uint32(23)) | (fraction << np.uint32(13)))


def read_cbor(file: ModelFile) -> Any:
    """Return the one item in a file: dict, list, str, int, float, or an array of int64 or float32.

    Raises BadModel for other CBOR, for bytes that are none, and for any that follow.
    """
    reader = _Reader(file)
    found = reader.item(0)
    file.expect(reader.at == len(file.data), "one CBOR item", f"more behind byte {reader.at}")
    return found


class _Reader:
    """Reads items one after the other; `at` is where the next one begins."""

    def __init__(self, file: ModelFile) -> None:
        self.at = 0
        self._file = file
        self._data = np.frombuffer(file.data, np.uint8)

    def item(self, nested: int) -> Any:
        """Return the item at `at`."""
        self._file.expect(nested <= NESTED_MAX, f"at most {NESTED_MAX} levels", "more")
        self._file.expect(self.at < len(self._data), "more bytes", f"the end at byte {self.at}")
        major = int(self._data[self.at]) >> 5
        if major == _FLOAT:
            return float(self._floats(1)[0])
        size = self._head()
        if major == _UINT:
            return size
        if major == _TEXT:
            return self._text(size)
        if major == _ARRAY:
            return self._array(size, nested)
        self._file.expect(major == _MAP, "maps, arrays, text and numbers", f"type {major} at byte {self.at}")
        self._check_left(2 * size)
        found: dict[str, Any] = {}
        for _ in range(size):
            key = self.item(nested + 1)
            new = type(key) is str and key not in found
            self._file.expect(new, "keys of text, each once", f"another before byte {self.at}")
            found[key] = self.item(nested + 1)
        return found

    def _head(self) -> int:
        """Return the argument of the item at `at`, and go behind it."""
        head = self._data[self.at : self.at + 9].copy()
        head[0] &= 31  # the upper bits are the type
        out = np.empty(1, np.int64)
        end = _read_integers(head, 0, out)
        self._file.expect(end > 0, "an item of definite length", f"another at byte {self.at}")
        self.at += end
        return int(out[0])

    def _check_left(self, n_bytes: int) -> None:
        left = len(self._data) - self.at
        self._file.expect(n_bytes <= left, f"{n_bytes} bytes behind byte {self.at}", left)

    def _text(self, size: int) -> str:
        self._check_left(size)
        text = self._file.data[self.at : self.at + size]
        self.at += size
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise self._file.fault("text in UTF-8", error) from error

    def _array(self, size: int, nested: int) -> Any:
        """Return an array: of numbers when its first item is one."""
        self._check_left(size)
        major = int(self._data[self.at]) >> 5 if size else None
        if major == _FLOAT:
            return self._floats(size)
        if major == _UINT:
            out = np.empty(size, np.int64)
            self._go(_read_integers(self._data, self.at, out))
            return out
        return [self.item(nested + 1) for _ in range(size)]

    def _floats(self, size: int) -> NDArray[np.float32]:
        bits = np.empty(size, np.uint32)
        self._go(_read_floats(self._data, self.at, bits))
        return bits.view(np.float32)

    def _go(self, end: int) -> None:
        self._file.expect(end >= 0, "numbers of one kind", f"others, or the end, behind byte {self.at}")
        self.at = end
