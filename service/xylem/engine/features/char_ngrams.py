"""Texts to character n-grams within words, as scikit-learn's analyzer `char_wb` finds them.

What stands between two blanks is a word, with a blank before and after it. Its n-grams are of the
lengths asked for; a word too short for one, blanks and all, counts as a whole. Deviation: control
characters are blanks.

Names of a few bytes are found by one read of memory. A table of names is larger than a processor's
near caches. To find a name in a NameTable takes three reads that wait for each other: of its slot,
its offset and its bytes. Here a slot holds the bytes, and the id.
"""

import numpy as np

from xylem.engine.features.characters import SPACE, code_at, size_at
from xylem_store import (
    F32,
    I32,
    I64,
    U8,
    U64,
    NameTable,
    hash_end,
    inlined,
    kernel,
    seeded_hash,
    slot_next,
    slot_start,
)

SHORT_BYTES = 8
"""A name of so many bytes at most is its own key."""

SLOTS_A_NAME = 2  # half of the slots are empty, so that most searches end at the first one
_8 = np.uint64(8)
_32 = np.uint64(32)
_48 = np.uint64(48)
_NONE = np.uint64(0)
_LONG = np.uint64(0xFF << 56)
_HASH_BITS = np.uint64((1 << 48) - 1)
_LENGTH_MAX = 0xFF


@inlined
def key_and_byte(key: np.uint64, n_bytes: int, byte: np.uint8) -> np.uint64:
    """Return the key of `n_bytes` bytes, whose key this is, and
    one more: SHORT_BYTES in all at most.

    The key of no bytes is 0. None has it else: no name has a byte of 0.
    """
    return key | np.uint64(byte) << (_8 * np.uint64(n_bytes))


@inlined
def long_key(utf8: U8, start: int, end: int, seed: int) -> np.uint64:
    """Return the key of a name of more than SHORT_BYTES bytes: its
    length, up to 255, and bits of its hash.

    Long names may share one, but no short one has it, as no byte of UTF-8 is 0xFF.
    """
    length = np.uint64(min(end - start, _LENGTH_MAX))
    return _LONG | length << _48 | seeded_hash(utf8, start, end, seed) & _HASH_BITS


@inlined
def is_long(key: np.uint64) -> bool:
    """Return whether a key is one of `long_key`."""
    return bool(key >= _LONG)


@inlined
def first_slot(key: np.uint64, n_slots: int, seed: int) -> np.int64:
    """Return the slot in which the search for a key begins."""
    in_both_halves = np.uint64(seed) << _32 | np.uint64(seed)
    return slot_start(hash_end(key ^ in_both_halves) >> _32, n_slots)


def short_names(names: NameTable, seed: int) -> U64:
    """Return the table of these names, uint64[n_slots, 2]: a key, or
    0 for none, and the id of the name.

    seed  as `new_seed` makes it; searches are given the same

    It takes 32 bytes a name. Linear: 10 milliseconds for 180,000 names.
    """
    return _fill(names.offsets, names.utf8, seed)


@kernel
def _fill(offsets: I64, utf8: U8, seed: int) -> U64:
    n_names = len(offsets) - 1
    table = np.zeros((SLOTS_A_NAME * n_names + 1, 2), np.uint64)
    for name in range(n_names):
        start = offsets[name]
        end = offsets[name + 1]
        key = np.uint64(0)
        if end - start > SHORT_BYTES:
            key = long_key(utf8, start, end, seed)
        else:
            for i in range(start, end):
                key = key_and_byte(key, i - start, utf8[i])
        slot = first_slot(key, len(table), seed)
        while table[slot, 0] != _NONE:
            slot = slot_next(slot, len(table))
        table[slot, 0] = key
        table[slot, 1] = name
    return table


@inlined
def key_slot(table: U64, slot: np.int64, key: np.uint64) -> np.int64:
    """Return the first slot from `slot` on that holds a key, or is empty."""
    while table[slot, 0] != key and table[slot, 0] != _NONE:
        slot = slot_next(slot, len(table))
    return slot


@inlined
def long_slot(
    table: U64, slot: np.int64, offsets: I64, utf8: U8, query: U8, start: int
) -> np.int64:
    """Return the first slot from `slot` on that holds the name at `start` of `query`, or is empty.

    slot           holds the key of that name, which has up to 254 bytes, or is empty
    offsets, utf8  of the NameTable
    """
    key = table[slot, 0]
    while table[slot, 0] != _NONE:
        if table[slot, 0] == key:
            name = np.int64(table[slot, 1])
            i = 0
            length = offsets[name + 1] - offsets[name]
            while i < length and utf8[offsets[name] + i] == query[start + i]:
                i += 1
            if i == length:
                break
        slot = slot_next(slot, len(table))
    return slot


_BLANK = 32
_DIGIT_BITS = 9
_DIGITS = 1 << _DIGIT_BITS


@kernel
def pad_words(utf8: U8, text_ptr: I64, of_classes: U8) -> tuple[U8, I64]:
    """Return (padded uint8[..], ptr int64[n + 1]): the texts with one
    blank before, between and after words.

    A text without words is empty. Parameters: what `encoded` returned, and the classes of
    characters.
    """
    n_texts = len(text_ptr) - 1
    end = 0
    padded = np.empty(len(utf8) + 2 * n_texts, np.uint8)
    ptr = np.zeros(n_texts + 1, np.int64)
    for text in range(n_texts):
        i = text_ptr[text]
        inside = False
        while i < text_ptr[text + 1]:
            size = size_at(utf8, i)
            is_space = of_classes[code_at(utf8, i, size)] & SPACE != 0
            if not is_space:
                if not inside:
                    padded[end] = _BLANK
                    end += 1
                for k in range(i, i + size):
                    padded[end] = utf8[k]
                    end += 1
            inside = not is_space
            i += size
        if end > ptr[text]:
            padded[end] = _BLANK
            end += 1
        ptr[text + 1] = end
    return padded[:end], ptr


@inlined
def _padded_end(padded: U8, start: int) -> int:
    """Return the end of the word that begins at `start`, both its blanks counted."""
    end = start + 1
    while padded[end] != _BLANK:
        end += 1
    return end + 1


def ngrams_a_character(shortest: int, longest: int) -> int:
    """Return how many n-grams a character begins at most, blanks
    beside words counted as characters.

    The blank between two words is of both, and so counted twice as an n-gram of one character.
    """
    return longest - shortest + (2 if shortest == 1 else 1)


_ngrams_a_character = inlined(ngrams_a_character)


@inlined
def _room(n_bytes: int, shortest: int, longest: int) -> int:
    """Return how many n-grams so many padded bytes have at most."""
    return n_bytes * _ngrams_a_character(shortest, longest)


@kernel
def char_spans(padded: U8, ptr: I64, shortest: int, longest: int) -> tuple[I64, I64, I64]:
    """Return (row_ptr, start, end) of the n-grams of `shortest` to
    `longest` characters, as NgramSpans.
    """
    n_texts = len(ptr) - 1
    n = 0
    room = _room(len(padded), shortest, longest)
    row_ptr = np.zeros(n_texts + 1, np.int64)
    starts = np.empty(room, np.int64)
    ends = np.empty(room, np.int64)
    for text in range(n_texts):
        start = ptr[text]
        while start + 1 < ptr[text + 1]:
            end = _padded_end(padded, start)
            i = start
            while i < end:
                j = i
                length = 0
                while j < end and length < longest:
                    j += size_at(padded, j)
                    length += 1
                    if length >= shortest or (i == start and j == end):
                        starts[n] = i
                        ends[n] = j
                        n += 1
                i += size_at(padded, i)
            start = end - 1
        row_ptr[text + 1] = n
    return row_ptr, starts[:n], ends[:n]


@kernel
def char_counts(
    offsets: I64, names: U8, table: U64, seed: int, padded: U8, ptr: I64, lengths: tuple[int, int]
) -> tuple[I64, I32, F32]:
    """Return rows of counts of the n-grams that are names: (indptr
    int64[n + 1], ids ascending, counts).

    offsets, names  of the vocabulary (NameTable), of which `short_names` made the table with the
                    seed

    The n-grams are those of `char_spans`, of lengths[0] to lengths[1] characters. Linear.
    """
    n_texts = len(ptr) - 1
    longest = 0
    for text in range(n_texts):
        longest = max(longest, ptr[text + 1] - ptr[text])
    room = _room(longest, lengths[0], lengths[1])
    keys = np.empty(room, np.uint64)
    slots = np.empty(room, np.int64)
    starts = np.empty(room, np.int64)
    name_ids = np.empty(room, np.int32)
    spare = np.empty(room, np.int32)
    first_keys = np.empty(room, np.uint64)
    indptr = np.zeros(n_texts + 1, np.int64)
    ids = np.empty(_room(len(padded), lengths[0], lengths[1]), np.int32)
    counts = np.empty(len(ids), np.float32)
    out = 0
    for text in range(n_texts):
        n = _write_keys(padded, ptr[text], ptr[text + 1], lengths, seed, keys, starts)
        n = _look_up(
            offsets, names, table, seed, padded, keys, starts, n, (slots, first_keys), name_ids
        )
        ordered = _sort(name_ids, spare, n, len(offsets) - 1)
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
    padded: U8,
    start: int,
    stop: int,
    lengths: tuple[int, int],
    seed: int,
    keys_out: U64,
    starts_out: I64,
) -> int:
    """Write key and start of each n-gram of padded[start:stop]; return how many."""
    shortest, longest = lengths
    n = 0
    while start + 1 < stop:
        end = _padded_end(padded, start)
        i = start
        while i < end:
            j = i
            length = 0
            key = np.uint64(0)
            while j < end and length < longest:
                for _ in range(size_at(padded, j)):
                    if j - i < SHORT_BYTES:
                        key = key_and_byte(key, j - i, padded[j])
                    j += 1
                length += 1
                if length >= shortest or (i == start and j == end):
                    keys_out[n] = key if j - i <= SHORT_BYTES else long_key(padded, i, j, seed)
                    starts_out[n] = i
                    n += 1
            i += size_at(padded, i)
        start = end - 1
    return n


@inlined
def _look_up(
    offsets: I64,
    names: U8,
    table: U64,
    seed: int,
    padded: U8,
    keys: U64,
    starts: I64,
    n: int,
    spare: tuple[I64, U64],
    ids_out: I32,
) -> int:
    """Write the ids of the first n n-grams that are names; return how many.

    First slots are read in a loop of its own, where no read waits for another or for a comparison.
    """
    slots, first_keys = spare
    for k in range(n):
        slots[k] = first_slot(keys[k], len(table), seed)
        first_keys[k] = table[slots[k], 0]
    n_found = 0
    for k in range(n):
        slot = slots[k]
        if first_keys[k] != keys[k]:
            slot = key_slot(table, slot, keys[k])
        if is_long(keys[k]):
            slot = long_slot(table, slot, offsets, names, padded, starts[k])
        ids_out[n_found] = np.int32(table[slot, 1])
        n_found += int(table[slot, 0] != np.uint64(0))
    return n_found


@inlined
def _sort(ids: I32, spare: I32, n: int, n_ids: int) -> I32:
    """Return ids[:n], all below n_ids, sorted by counting digit
    after digit: in `ids` or in `spare`.
    """
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
