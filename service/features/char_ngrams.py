"""Texts to character n-grams within words, as scikit-learn's analyzer `char_wb` finds them.

What stands between two blanks is a word, with a blank before and after it. Its n-grams are of the lengths
asked for; a word too short for one, blanks and all, counts as a whole. Deviation: control characters are
blanks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.features.characters import SPACE, code_at, size_at
from service.features.short_names import (
    SHORT_BYTES,
    first_slot,
    is_long,
    key_and_byte,
    key_slot,
    long_key,
    long_slot,
)

_BLANK = 32
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


def ngrams_a_character(shortest: int, longest: int) -> int:
    """Return how many n-grams a character begins at most, blanks beside words counted as characters.

    The blank between two words is of both, and so counted twice as an n-gram of one character.
    """
    return longest - shortest + (2 if shortest == 1 else 1)


_ngrams_a_character = inlined(ngrams_a_character)


@inlined
def _room(n_bytes: int, shortest: int, longest: int) -> int:
    """Return how many n-grams so many padded bytes have at most."""
    return n_bytes * _ngrams_a_character(shortest, longest)


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
    table: NDArray[np.uint64],
    padded: NDArray[np.uint8],
    ptr: NDArray[np.int64],
    lengths: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return rows of counts of the n-grams that are names: (indptr int64[n + 1], ids ascending, counts).

    offsets, names  of the vocabulary (NameTable), of which `short_names` made the table

    The n-grams are those of `char_spans`, of lengths[0] to lengths[1] characters. Linear.
    """
    n_texts, most = len(ptr) - 1, 0
    for text in range(n_texts):
        most = max(most, ptr[text + 1] - ptr[text])
    room = _room(most, lengths[0], lengths[1])
    keys, slots, starts = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    found, spare, held = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint64)
    indptr = np.zeros(n_texts + 1, np.int64)
    ids = np.empty(_room(len(padded), lengths[0], lengths[1]), np.int32)
    counts = np.empty(len(ids), np.float32)
    out = 0
    for text in range(n_texts):
        n = _write_keys(padded, ptr[text], ptr[text + 1], lengths, keys, starts)
        n = _look_up(offsets, names, table, padded, keys, starts, n, (slots, held), found)
        ordered = _sort(found, spare, n, len(offsets) - 1)
        for i in range(n):
            if i and ordered[i] == ordered[i - 1]:
                counts[out - 1] += np.float32(1)
            else:
                ids[out], counts[out] = ordered[i], np.float32(1)
                out += 1
        indptr[text + 1] = out
    return indptr, ids[:out], counts[:out]


@inlined
def _write_keys(
    padded: NDArray[np.uint8],
    start: int,
    stop: int,
    lengths: tuple[int, int],
    keys_out: NDArray[np.uint64],
    starts_out: NDArray[np.int64],
) -> int:
    """Write key and start of each n-gram of padded[start:stop]; return how many."""
    shortest, longest = lengths
    n = 0
    while start + 1 < stop:
        end = _padded_end(padded, start)
        i = start
        while i < end:
            j, length, key = i, 0, np.uint64(0)
            while j < end and length < longest:
                for _ in range(size_at(padded, j)):
                    if j - i < SHORT_BYTES:
                        key = key_and_byte(key, j - i, padded[j])
                    j += 1
                length += 1
                if length >= shortest or (i == start and j == end):
                    keys_out[n] = key if j - i <= SHORT_BYTES else long_key(padded, i, j)
                    starts_out[n] = i
                    n += 1
            i += size_at(padded, i)
        start = end - 1
    return n


@inlined
def _look_up(
    offsets: NDArray[np.int64],
    names: NDArray[np.uint8],
    table: NDArray[np.uint64],
    padded: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    starts: NDArray[np.int64],
    n: int,
    spare: tuple[NDArray[np.int64], NDArray[np.uint64]],
    ids_out: NDArray[np.int32],
) -> int:
    """Write the ids of the first n n-grams that are names; return how many.

    First slots are read in a loop of its own, where no read waits for another or for a comparison.
    """
    slots, held = spare
    for k in range(n):
        slots[k] = first_slot(keys[k], len(table))
        held[k] = table[slots[k], 0]
    n_found = 0
    for k in range(n):
        slot = slots[k]
        if held[k] != keys[k]:
            slot = key_slot(table, slot, keys[k])
        if is_long(keys[k]):
            slot = long_slot(table, slot, offsets, names, padded, starts[k])
        ids_out[n_found] = np.int32(table[slot, 1])
        n_found += int(table[slot, 0] != np.uint64(0))
    return n_found


@inlined
def _sort(ids: NDArray[np.int32], spare: NDArray[np.int32], n: int, n_ids: int) -> NDArray[np.int32]:
    """Return ids[:n], all below n_ids, sorted by counting digit after digit: in `ids` or in `spare`."""
    places = np.empty(_DIGITS, np.int64)
    shift = 0
    while (n_ids - 1) >> shift > 0:
        places[:] = 0
        for i in range(n):
            places[(ids[i] >> shift) & (_DIGITS - 1)] += 1
        place = 0
        for digit in range(_DIGITS):
            place, places[digit] = place + places[digit], place
        for i in range(n):
            digit = (ids[i] >> shift) & (_DIGITS - 1)
            spare[places[digit]] = ids[i]
            places[digit] += 1
        ids, spare = spare, ids
        shift += _DIGIT_BITS
    return ids
