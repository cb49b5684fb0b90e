"""Long JSON texts: count what they contain before they are parsed, and parse them in pieces.

A JSON library holds the interpreter's lock while it parses a text: 8 ms for 1 MB of numbers, 70 ms
for 8 MB of names. Here kernels scan the text without the lock, and the library parses it piece by
piece.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import orjson

from xylem.serving.kernels.sparse_json import CLOSE, CLOSE_LIST, COLON, COMMA, OPEN, OPEN_LIST
from xylem.serving.kernels.text_json import BACKSLASH, LETTER_U, QUOTE
from xylem_store import I64, U8, inlined, kernel

# The least bytes of a piece. It has less than twice as many, if it can be cut.
PIECE_BYTES = 1 << 14

_DEPTH_MAX = 1024  # the JSON library refuses texts that are deeper


class JsonSize(NamedTuple):
    """The counts of a JSON text.

    containers    the number of arrays and objects
    depth         how deep containers are nested
    items         the most items of an array, or fields of an object within another; at least 1
    outer_fields  the fields of the outermost object; 0 if the text is no object
    string_bytes  a lower bound on the most bytes of a string or key as UTF-8: each escape counts as
                  one byte
    """

    containers: int
    depth: int
    items: int
    outer_fields: int
    string_bytes: int


def size_of(body: bytes) -> JsonSize:
    """Return the counts of a text, which need not be valid JSON.

    The scan ends where containers are nested 1,024 deep. It neither holds the interpreter's lock
    nor needs memory, and takes about a nanosecond a byte.
    """
    return JsonSize(*map(int, _size_of(np.frombuffer(body, np.uint8))))


def load_in_pieces(body: bytes, piece_bytes: int = PIECE_BYTES) -> Any:
    """Return the value of a JSON text, as orjson parses it. Raises orjson.JSONDecodeError.

    It recurses as deep as the text is nested, so check the depth with `size_of` first.
    """
    return _Pieces(body, piece_bytes).load(0, len(body))


class _Pieces:
    """A JSON text that is parsed in pieces of less than twice `piece_bytes`."""

    def __init__(self, body: bytes, piece_bytes: int) -> None:
        self._body = body
        self._data = np.frombuffer(body, np.uint8)
        self._piece_bytes = piece_bytes

    def load(self, start: int, end: int) -> Any:
        """Return the value of body[start:end]."""
        start = _past_blanks(self._data, start, end)
        first = self._body[start : start + 1]
        if not self._is_long(start, end) or first not in (b"[", b"{"):
            return self._read(start, end)
        cuts = _cuts_of(self._data, start, end, self._piece_bytes).tolist()
        is_list = first == b"["
        if not cuts or self._body[cuts[-1] : end].strip(b" \t\r\n") != (b"]" if is_list else b"}"):
            raise self._fault("an array or an object without its closing bracket", start)
        container: Any = [] if is_list else {}
        if _past_blanks(self._data, start + 1, end) == cuts[-1]:
            return container
        join, read = (
            (container.extend, self._items) if is_list else (container.update, self._fields)
        )
        for begin, stop in itertools.pairwise(cuts):
            if _past_blanks(self._data, begin + 1, stop) == stop:
                raise self._fault("a comma, or an opening bracket, that no item follows", begin)
            join(read(begin + 1, stop))
        return container

    def _items(self, start: int, end: int) -> Any:
        return (
            [self.load(start, end)]
            if self._is_long(start, end)
            else self._read(start, end, b"[", b"]")
        )

    def _fields(self, start: int, end: int) -> Any:
        if not self._is_long(start, end):
            return self._read(start, end, b"{", b"}")
        value = _value_at(self._data, start, end)
        return {key: self.load(value, end) for key in self._read(start, value, b"{", b"0}")}

    def _is_long(self, start: int, end: int) -> bool:
        return end - start > 2 * self._piece_bytes

    def _read(self, start: int, end: int, prefix: bytes = b"", suffix: bytes = b"") -> Any:
        """Return the value of `prefix` + body[start:end] + `suffix`, as orjson parses it."""
        try:
            return orjson.loads(prefix + self._body[start:end] + suffix)
        except orjson.JSONDecodeError as error:
            raise self._fault(error.msg, start + error.pos - len(prefix)) from None

    def _fault(self, message: str, place: int) -> orjson.JSONDecodeError:
        return orjson.JSONDecodeError(message, self._body[:place].decode("latin-1"), place)


@kernel
def _size_of(data: U8) -> tuple[int, int, int, int, int]:
    commas = np.zeros(_DEPTH_MAX, np.int64)
    items = 1
    n = deepest = outer = longest = depth = i = 0
    while i < len(data):
        byte = data[i]
        if byte == QUOTE:
            i, n_bytes = _past_string(data, i + 1)
            longest = max(longest, n_bytes)
        elif byte == COMMA:
            commas[depth] += 1
            if depth == 1 and outer > 0:
                outer = commas[1] + 1
            else:
                items = max(items, commas[depth] + 1)
        elif byte in (OPEN_LIST, OPEN):
            n += 1
            depth += 1
            deepest = max(deepest, depth)
            if depth == _DEPTH_MAX:
                break
            commas[depth] = 0
            outer = 1 if n == 1 and byte == OPEN else outer
        elif byte in (CLOSE_LIST, CLOSE) and depth > 0:
            depth -= 1
        i += 1
    return n, deepest, items, outer, longest


@kernel
def _cuts_of(data: U8, start: int, end: int, piece_bytes: int) -> I64:
    """Return the places to cut the container data[start:end]: its brackets, and commas between.

    A part between two places is less than twice as long as `piece_bytes`, unless it has only one
    item. The result is empty if the container does not end.
    """
    cuts = np.empty(2 * (end - start) // piece_bytes + 3, np.int64)
    cuts[0] = start
    n = 1
    depth = 0
    last = start
    i = start
    while i < end:
        byte = data[i]
        is_close = byte in (CLOSE_LIST, CLOSE)
        depth -= is_close
        if byte == QUOTE:
            i, _ = _past_string(data, i + 1)
        elif byte in (OPEN_LIST, OPEN):
            depth += 1
        elif (byte == COMMA and depth == 1) or (is_close and depth == 0):
            if i - last > piece_bytes and last > cuts[n - 1]:
                cuts[n] = last
                n = n + 1
            if i - cuts[n - 1] > piece_bytes or depth == 0:
                cuts[n] = i
                n = n + 1
            last = i
            if depth == 0:
                return cuts[:n]
        i += 1
    return cuts[:0]


@kernel
def _past_blanks(data: U8, i: int, end: int) -> int:
    """Return the first place from i on that has no blank, or `end`."""
    while i < end and (data[i] in (9, 10, 13, 32)):
        i += 1
    return i


@kernel
def _value_at(data: U8, start: int, end: int) -> int:
    """Return where the value of the field data[start:end] begins; `end` if there is none."""
    i = start
    while i < end and data[i] != QUOTE:
        i += 1
    i, _ = _past_string(data, i + 1)
    while i < end and data[i] != COLON:
        i += 1
    return min(i + 1, end)


@inlined
def _past_string(data: U8, i: int) -> tuple[int, int]:
    """Return the place of the quote that ends the string whose inside begins at i, and its bytes.

    An escape counts as one byte.
    """
    n_bytes = 0
    while i < len(data) and data[i] != QUOTE:
        if data[i] == BACKSLASH:
            i += 6 if i + 1 < len(data) and data[i + 1] == LETTER_U else 2
        else:
            i += 1
        n_bytes += 1
    return i, n_bytes
