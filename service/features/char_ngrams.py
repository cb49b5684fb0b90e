"""Texts to character n-grams within words, as scikit-learn's analyzer `char_wb` finds them.

What stands between two blanks is a word, with a blank before and after it. Its n-grams are of the lengths
asked for; a word too short for one, blanks and all, counts as a whole. Deviation: control characters are
blanks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from model_store.hashing import slot_start
from model_store.names import hash_byte, hash_end, hash_start, probe_hash
from service.features.characters import SPACE, code_at, size_at

_BLANK = 32
_32 = np.uint64(32)
_DIGIT_BITS = 9
_DIGITS = 1 << _DIGIT_BITS


@kernel
def pad_words(
    utf8: NDArray[np.uint8], text_ptr: NDArray[np.int64], of_classes: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (padded uint8[..], ptr int64[n + 1]): the texts with one blank before, between and after words.

    A text without words is empty. Parameters: what `encoded` returned, and the classes of characters.
    """
    n_texts, at = len(text_ptr) - 1, 0
    padded, ptr = np.empty(len(utf8) + 2 * n_texts, np.uint8), np.zeros(n_texts + 1, np.int64)
    for text in range(n_texts):
        i, inside = text_ptr[text], False
        while i < text_ptr[text + 1]:
            size = size_at(utf8, i)
            is_space = of_classes[code_at(utf8, i, size)] & SPACE != 0
            if not is_space:
                if not inside:
                    padded[at] = _BLANK
                    at += 1
                for k in range(i, i + size):
                    padded[at] = utf8[k]
                    at += 1
            inside = not is_space
            i += size
        if at > ptr[text]:
            padded[at] = _BLANK
            at += 1
        ptr[text + 1] = at
    return padded[:at], ptr


@inlined
def _padded_end(padded: NDArray[np.uint8], start: int) -> int:
    """Return the end of the word that begins at `start`, both its blanks counted."""
    end = start + 1
    while padded[end] != _BLANK:
        end += 1
    return end + 1


@inlined
def _room(n_bytes: int, shortest: int, longest: int) -> int:
    """Return how many n-grams so many padded bytes have at most.

    The blank between two words is of both, and so counted twice as an n-gram of one character.
    """
    return n_bytes * (longest - shortest + (2 if shortest == 1 else 1))


@kernel
def char_spans(
    padded: NDArray[np.uint8], ptr: NDArray[np.int64], shortest: int, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return (row_ptr, start, end) of the n-grams of `shortest` to `longest` characters, as NgramSpans."""
    n_texts, n = len(ptr) - 1, 0
    room = _room(len(padded), shortest, longest)
    row_ptr, starts, ends = (
        np.zeros(n_texts + 1, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    for text in range(n_texts):
        start = ptr[text]
        while start + 1 < ptr[text + 1]:
            end = _padded_end(padded, start)
            i = start
            while i < end:
                j, length = i, 0
                while j < end and length < longest:
                    j += size_at(padded, j)
                    length += 1
                    if length >= shortest or (i == start and j == end):
                        starts[n], ends[n] = i, j
                        n += 1
                i += size_at(padded, i)
            start = end - 1
        row_ptr[text + 1] = n
    return row_ptr, starts[:n], ends[:n]


@kernel
def char_counts(
    offsets: NDArray[np.int64],
    names: NDArray[np.uint8],
    slots: NDArray[np.int32],
    padded: NDArray[np.uint8],
    ptr: NDArray[np.int64],
    lengths: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return rows of counts of the n-grams that are names: (indptr int64[n + 1], ids ascending, counts).

    The n-grams are those of `char_spans`, of lengths[0] to lengths[1] characters; those that begin at the
    same character share the work of hashing. Linear.
    """
    shortest, longest = lengths
    n_texts, most = len(ptr) - 1, 0
    for text in range(n_texts):
        most = max(most, ptr[text + 1] - ptr[text])
    found = np.empty(_room(most, shortest, longest), np.int32)
    spare, fetched = np.empty(len(found), np.int32), np.empty(len(found), np.int64)
    hashes, spans = np.empty(len(found), np.uint64), np.empty((len(found), 2), np.int64)
    indptr = np.zeros(n_texts + 1, np.int64)
    ids = np.empty(_room(len(padded), shortest, longest), np.int32)
    counts = np.empty(len(ids), np.float32)
    out = 0
    for text in range(n_texts):
        n_hashes = 0
        if len(names):
            n_hashes = _hash_all(padded, ptr[text], ptr[text + 1], shortest, longest, hashes, spans)
            _fetch(offsets, names, slots, hashes, n_hashes, fetched)
        n = 0
        for k in range(n_hashes):
            name = slots[probe_hash(offsets, names, slots, padded, spans[k, 0], spans[k, 1], hashes[k])]
            if name >= 0:
                found[n] = name
                n += 1
        _sort(found, spare, n, len(offsets) - 1)
        for i in range(n):
            if i and found[i] == found[i - 1]:
                counts[out - 1] += np.float32(1)
            else:
                ids[out], counts[out] = found[i], np.float32(1)
                out += 1
        indptr[text + 1] = out
    return indptr, ids[:out], counts[:out]


@inlined
def _hash_all(
    padded: NDArray[np.uint8],
    start: int,
    stop: int,
    shortest: int,
    longest: int,
    hashes_out: NDArray[np.uint64],
    spans_out: NDArray[np.int64],
) -> int:
    """Write the hash, start and end of each n-gram of padded[start:stop]; return how many."""
    n = 0
    while start + 1 < stop:
        end = _padded_end(padded, start)
        i = start
        while i < end:
            j, length, h = i, 0, hash_start()
            while j < end and length < longest:
                for _ in range(size_at(padded, j)):
                    h = hash_byte(h, padded[j])
                    j += 1
                length += 1
                if length >= shortest or (i == start and j == end):
                    hashes_out[n] = hash_end(h)
                    spans_out[n, 0], spans_out[n, 1] = i, j
                    n += 1
            i += size_at(padded, i)
        start = end - 1
    return n


@inlined
def _fetch(
    offsets: NDArray[np.int64],
    names: NDArray[np.uint8],
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    n: int,
    spare: NDArray[np.int64],
) -> None:
    """Read what the look-ups of hashes[:n] will read, in loops whose reads do not wait for each other.

    The table of a vocabulary is larger than a processor's near caches: look-ups one after the other wait for
    memory each time.
    """
    n_slots = len(slots)
    for k in range(n):
        spare[k] = max(np.int64(slots[slot_start(hashes[k] >> _32, n_slots)]), np.int64(0))
    for k in range(n):
        spare[k] = offsets[spare[k]]
    for k in range(n):
        spare[k] = names[spare[k]]


@inlined
def _sort(ids: NDArray[np.int32], spare: NDArray[np.int32], n: int, n_ids: int) -> None:
    """Sort ids[:n], all below n_ids, in place, by counting digit after digit."""
    places = np.empty(_DIGITS + 1, np.int64)
    shift = 0
    while (n_ids - 1) >> shift > 0:
        places[:] = 0
        for i in range(n):
            places[((ids[i] >> shift) & (_DIGITS - 1)) + 1] += 1
        for digit in range(_DIGITS):
            places[digit + 1] += places[digit]
        for i in range(n):
            digit = (ids[i] >> shift) & (_DIGITS - 1)
            spare[places[digit]] = ids[i]
            places[digit] += 1
        for i in range(n):
            ids[i] = spare[i]
        shift += _DIGIT_BITS
