"""Count the n-grams of blocks of texts, add up the counts, and choose a vocabulary."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData
from xylem.engine.features.parameters import CharsParameters, TfidfParameters
from xylem.engine.features.rows import idf_of
from xylem.engine.features.words import NgramSpans, texts_between
from xylem_store import (
    F32,
    I32,
    I64,
    N_NAMES_MAX,
    NAME_BYTES_MAX,
    U8,
    Bools,
    NameTable,
    build_names,
    kernel,
    new_seed,
    probe,
    seeded_hash,
)


class Vocabulary:
    """Distinct byte strings, numbered in the order of their first appearance.

    n  the number of strings

    They are in arrays that grow to twice the size when they are full.
    """

    def __init__(self) -> None:
        self.n = 0
        self._offsets = np.zeros(1 << 10, np.int64)
        self._utf8 = np.empty(1 << 14, np.uint8)
        self._slots = np.full(1 << 11, -1, np.int32)
        self._seed = new_seed()

    def add(self, utf8: U8, start: I64, end: I64) -> I32:
        """Return the id of each string utf8[start[i]:end[i]]; new strings are added.

        A string of more than NAME_BYTES_MAX bytes is not added, and has the id -1. Raises BadData
        if there could be more than N_NAMES_MAX strings.
        """
        n_spans = len(start)
        if self.n + n_spans > N_NAMES_MAX:
            raise BadData(f"expected at most {N_NAMES_MAX} distinct n-grams, found more")
        self._reserve(n_spans, int(np.minimum(end - start, NAME_BYTES_MAX).sum()))
        ids = np.empty(n_spans, np.int32)
        self.n = _add(
            self._offsets, self._utf8, self._slots, self._seed, self.n, utf8, start, end, ids
        )
        return ids

    def names(self, ids: I64) -> list[str]:
        """Return the strings that have these ids."""
        return texts_between(self._utf8, self._offsets[ids], self._offsets[ids + 1])

    def table(self) -> tuple[U8, I64]:
        """Return copies of (utf8, ptr): string i is utf8[ptr[i]:ptr[i + 1]]."""
        ptr = self._offsets[: self.n + 1].copy()
        return self._utf8[: ptr[-1]].copy(), ptr

    def _reserve(self, n_new: int, new_bytes: int) -> None:
        """Make room for n_new new strings of new_bytes bytes in all."""
        n = self.n + n_new
        used = int(self._offsets[self.n]) + new_bytes
        if n + 1 > len(self._offsets):
            self._offsets.resize(2 * n, refcheck=False)
        if used > len(self._utf8):
            self._utf8.resize(2 * used, refcheck=False)
        if 3 * n > 2 * len(self._slots):
            self._slots = np.full(3 * n, -1, np.int32)
            old_n = self.n  # adds all strings again: each gets its id, and overwrites itself
            self.n = 0
            self.add(self._utf8, self._offsets[:old_n], self._offsets[1 : old_n + 1])


def rows_of_bound(bound: int | float, n_rows: float) -> float:
    """Return the number of rows of a bound: an integer itself, a float as a share of n_rows."""
    return bound if isinstance(bound, int) else bound * n_rows


@kernel
def _add(
    offsets: I64,
    utf8: U8,
    slots: I32,
    seed: int,
    n: int,
    query: U8,
    start: I64,
    end: I64,
    ids_out: I32,
) -> int:
    """Find or append every span, and write its id; return the new number of strings."""
    for q in range(len(start)):
        length = end[q] - start[q]
        if length > NAME_BYTES_MAX:
            ids_out[q] = -1
            continue
        h = seeded_hash(query, start[q], end[q], seed)
        # a third of the slots is empty, so that the search ends
        slot = probe(offsets, utf8, slots, query, start[q], end[q], h, len(slots))
        if slots[slot] < 0:
            slots[slot] = n
            utf8[offsets[n] : offsets[n] + length] = query[start[q] : end[q]]
            offsets[n + 1] = offsets[n] + length
            n += 1
        ids_out[q] = slots[slot]
    return n


class NgramCounts(NamedTuple):
    """The distinct n-grams of some texts: n-gram i is utf8[ptr[i]:ptr[i + 1]].

    utf8       uint8[..]
    ptr        int64[n + 1]
    frequency  int64[n]  the number of texts that have the n-gram
    totals     int64[n]  the number of times that it occurs in all of them

    The numbers are float64 if texts have weights: a text of weight k counts as k texts.
    """

    utf8: U8
    ptr: I64
    frequency: NDArray[Any]
    totals: NDArray[Any]


def counts_of(utf8: U8, spans: NgramSpans, weights: F32 | None = None) -> tuple[NgramCounts, I32]:
    """Return the counts of the n-grams of texts, and for each span the number of its n-gram.

    weights  of the texts; None: all are 1

    The numbers are int32[spans], -1 for an n-gram that is longer than a name may be.
    """
    vocabulary = Vocabulary()
    ids = vocabulary.add(utf8, spans.start, spans.end)
    at_spans = ids, spans.row_ptr, vocabulary.n
    counts = count_ids(*at_spans) if weights is None else _count_weighted(*at_spans, weights)
    return NgramCounts(*vocabulary.table(), *counts), ids


@kernel
def count_ids(ids: I32, row_ptr: I64, n: int) -> tuple[I64, I64]:
    """Return (frequency, totals) of n ids: in how many rows each occurs, and how often in all.

    Ids below 0 are ignored.
    """
    frequency = np.zeros(n, np.int64)
    totals = np.zeros(n, np.int64)
    last_row = np.full(n, -1, np.int64)
    for row in range(len(row_ptr) - 1):
        for i in range(row_ptr[row], row_ptr[row + 1]):
            if ids[i] >= 0:
                totals[ids[i]] += 1
                if last_row[ids[i]] != row:
                    last_row[ids[i]] = row
                    frequency[ids[i]] += 1
    return frequency, totals


def _count_weighted(
    ids: I32, row_ptr: I64, n: int, weights: F32
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what `count_ids` does, for rows with weights."""
    row = np.repeat(np.arange(len(weights)), np.diff(row_ptr))[ids >= 0]
    row_of_pair, id_of_pair = np.divmod(np.unique(row * n + ids[ids >= 0]), n)
    frequency = np.bincount(id_of_pair, weights[row_of_pair], n)
    return frequency, np.bincount(ids[ids >= 0], weights[row], n)


class NgramSums:
    """The n-grams of all texts, numbered in the order of their first appearance, and the sums of
    their counts.

    n_texts  how many texts will be counted
    weights  of the texts; None: all are 1
    """

    def __init__(self, n_texts: int, weights: F32 | None) -> None:
        self.vocabulary = Vocabulary()
        self.n_texts: float = n_texts if weights is None else weights.sum(dtype=np.float64)
        self._sums: NDArray[Any] = np.zeros(
            (2, 1 << 16), np.int64 if weights is None else np.float64
        )

    def add(self, counts: NgramCounts) -> I32:
        """Add the counts of some texts; return the vocabulary's id of each of their n-grams."""
        ids = self.vocabulary.add(counts.utf8, counts.ptr[:-1], counts.ptr[1:])
        room = self._sums.shape[1]
        if self.vocabulary.n > room:
            self._sums = np.pad(self._sums, ((0, 0), (0, 2 * self.vocabulary.n - room)))
        # the ids are distinct, so that no addition is lost
        self._sums[0, ids] += counts.frequency
        self._sums[1, ids] += counts.totals
        return ids

    def choose(
        self,
        eligible: Bools,
        n_max: int | None,
        parameters: CharsParameters | TfidfParameters,
    ) -> tuple[NameTable, F32, I64]:
        """Return (names, idf, old_ids): the chosen n-grams sorted by bytes, their weights, and the
        id of each in `vocabulary`.

        idf is empty if all weights are 1.

        eligible  bool[n]: the n-grams to choose from
        n_max     the most to choose, the most frequent ones; of two that are equally frequent the
                  one that is smaller by bytes; None: all
        """
        old_ids = np.flatnonzero(eligible)
        names = self.vocabulary.names(old_ids)
        order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        if n_max is not None and len(order) > n_max:
            order = order[
                np.sort(np.argsort(-self._sums[1, old_ids[order]], kind="stable")[:n_max])
            ]
        old_ids = old_ids[order]
        idf = (
            idf_of(self.frequency[old_ids], self.n_texts, parameters.smooth_idf)
            if parameters.use_idf
            else np.empty(0, np.float32)
        )
        return build_names([names[i] for i in order.tolist()]), idf, old_ids

    @property
    def frequency(self) -> NDArray[Any]:
        """Return in how many texts each n-gram occurs."""
        return self._sums[0, : self.vocabulary.n]

    def reach(self, bound: int | float) -> Bools:
        """Return which n-grams occur in as many texts as a bound of `rows_of_bound` says.

        The bound 1 is that an n-gram occurs at all, however small the weights of its texts are.
        """
        least = rows_of_bound(bound, self.n_texts)
        return (self.frequency >= least) | (least == 1)
