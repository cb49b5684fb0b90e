"""A vocabulary that grows while texts are read."""

import numpy as np

from model_store.compiled.decorators import kernel
from model_store.compiled.handles import I32, I64, U8
from model_store.names import N_NAMES_MAX, NAME_BYTES_MAX, probe
from service.base.errors import BadData
from service.features.words import texts_between


class Vocabulary:
    """Distinct byte strings, numbered by first appearance, in arrays that double as they fill."""

    def __init__(self) -> None:
        self.n = 0
        self._offsets = np.zeros(1 << 10, np.int64)
        self._utf8 = np.empty(1 << 14, np.uint8)
        self._slots = np.full(1 << 11, -1, np.int32)

    def add(self, utf8: U8, start: I64, end: I64) -> I32:
        """Return the id of every utf8[start[i]:end[i]], new ones added; -1: more than NAME_BYTES_MAX bytes.

        Raises BadData when there would be more than N_NAMES_MAX.
        """
        more = len(start)
        if self.n + more > N_NAMES_MAX:
            raise BadData(f"expected at most {N_NAMES_MAX} distinct n-grams, found more")
        self._reserve(more, int(np.minimum(end - start, NAME_BYTES_MAX).sum()))
        ids = np.empty(more, np.int32)
        self.n = _add(self._offsets, self._utf8, self._slots, self.n, utf8, start, end, ids)
        return ids

    def names(self, ids: I64) -> list[str]:
        """Return the strings of some ids."""
        return texts_between(self._utf8, self._offsets[ids], self._offsets[ids + 1])

    def table(self) -> tuple[U8, I64]:
        """Return all strings, one after the other, and int64[n + 1], where each begins; copies."""
        ptr = self._offsets[: self.n + 1].copy()
        return self._utf8[: ptr[-1]].copy(), ptr

    def _reserve(self, more: int, more_bytes: int) -> None:
        """Make room for so many more strings, each of them new."""
        n, used = self.n + more, int(self._offsets[self.n]) + more_bytes
        if n + 1 > len(self._offsets):
            self._offsets.resize(2 * n, refcheck=False)
        if used > len(self._utf8):
            self._utf8.resize(2 * used, refcheck=False)
        if 3 * n > 2 * len(self._slots):
            self._slots = np.full(3 * n, -1, np.int32)
            _place(self._offsets, self._utf8, self._slots, self.n)


def rows_meant(bound: int | float, n_rows: int) -> float:
    """Return the number of rows that a bound means: an integer itself, a share of n_rows."""
    return bound if isinstance(bound, int) else bound * n_rows


@kernel
def _place(offsets: I64, utf8: U8, slots: I32, n: int) -> None:
    """Put the first n strings into an empty table."""
    for i in range(n):
        slots[probe(offsets, utf8, slots, utf8, offsets[i], offsets[i + 1])] = i


@kernel
def _add(offsets: I64, utf8: U8, slots: I32, n: int, query: U8, start: I64, end: I64, ids_out: I32) -> int:
    """Find or append every span; return the number of strings after."""
    for q in range(len(start)):
        length = end[q] - start[q]
        if length > NAME_BYTES_MAX:
            ids_out[q] = -1
            continue
        slot = probe(offsets, utf8, slots, query, start[q], end[q])
        if slots[slot] < 0:
            slots[slot] = n
            utf8[offsets[n] : offsets[n] + length] = query[start[q] : end[q]]
            offsets[n + 1] = offsets[n] + length
            n += 1
        ids_out[q] = slots[slot]
    return n
