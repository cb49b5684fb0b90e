"""Character n-grams within words, as scikit-learn's analyzer `char_wb` finds them.

A word is what stands between two blanks; one blank before and one after it belong to it. Its
n-grams have the given lengths; a word that is too short for any of them, blanks included, is one
n-gram. Deviation: control characters are blanks.

Short n-grams are looked up with one read of memory. A table of names is larger than a processor's
near caches, and a look-up in a NameTable takes three reads that wait for each other: of the slot,
the offset and the bytes. In the table here a slot holds the bytes themselves, and the id.
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

# The most bytes of a name that is its own key.
SHORT_BYTES = 8

SLOTS_A_NAME = 2  # half of the slots are empty, so that most searches end at the first slot
_8 = np.uint64(8)
_32 = np.uint64(32)
_48 = np.uint64(48)
_NONE = np.uint64(0)
_LONG = np.uint64(0xFF << 56)
_HASH_BITS = np.uint64((1 << 48) - 1)
_LENGTH_MAX = 0xFF


@inlined
def key_and_byte(key: np.uint64, n_bytes: int, byte: np.uint8) -> np.uint64:
    """Return the key of the name to which `byte` has been appended.

    The key of the empty name is 0; no other name has this key, because names have no zero bytes.

    key      the key of the name before `byte` is appended
    n_bytes  the length of that name in bytes, less than SHORT_BYTES
    """
    return key | np.uint64(byte) << (_8 * np.uint64(n_bytes))


@inlined
def long_key(utf8: U8, start: int, end: int, seed: int) -> np.uint64:
    """Return the key of a name of more than SHORT_BYTES bytes: its length, up to 255, and bits of
    its hash.

    Several long names may have the same key, but no short name has it: its first byte is 0xFF,
    which does not occur in UTF-8.
    """
    length = np.uint64(min(end - start, _LENGTH_MAX))
    return _LONG | length << _48 | seeded_hash(utf8, start, end, seed) & _HASH_BITS


@inlined
def is_long(key: np.uint64) -> bool:
    """Return whether a key is that of a long name."""
    return bool(key >= _LONG)


@inlined
def first_slot(key: np.uint64, n_slots: int, seed: int) -> np.int64:
    """Return the slot at which the search for a key begins."""
    in_both_halves = np.uint64(seed) << _32 | np.uint64(seed)
    return slot_start(hash_end(key ^ in_both_halves) >> _32, n_slots)


def short_names(names: NameTable, seed: int) -> U64:
    """Return a hash table of these names, uint64[n_slots, 2]: (key, id of the name); key 0: empty.

    seed  as `new_seed` makes it; searches need the same seed

    The table takes 32 bytes a name. Linear: 10 milliseconds for 180,000 names.
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
    """Return the first slot from `slot` on that holds this key or is empty."""
    while table[slot, 0] != key and table[slot, 0] != _NONE:
        slot = slot_next(slot, len(table))
    return slot


@inlined
def long_slot(
    table: U64, slot: np.int64, offsets: I64, utf8: U8, query: U8, start: int
) -> np.int64:
    """Return the first slot from `slot` on that holds the name at query[start:] or is empty.

    slot           a slot that holds the key of that name, which has up to 254 bytes, or is empty
    offsets, utf8  the fields of the NameTable
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

_ID_BITS = 28  # N_FEATURES_MAX
_ID = np.int32((1 << _ID_BITS) - 1)

# The bit of an n-gram of the first words, above the bits of its id.
_LEAD = np.int32(1 << _ID_BITS)


@kernel
def pad_words(utf8: U8, text_ptr: I64, of_classes: U8) -> tuple[U8, I64]:
    """Return texts with exactly one blank before, between and after words.

    The result is (padded uint8[..], ptr int64[n + 1]): text i is padded[ptr[i]:ptr[i + 1]], which
    is empty if it has no words.

    utf8, text_ptr  the texts, as `encoded` returns them
    of_classes      the classes of characters
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
    """Return the end of the word that begins with the blank at `start`, behind its second blank."""
    end = start + 1
    while padded[end] != _BLANK:
        end += 1
    return end + 1


def ngrams_a_character(shortest: int, longest: int) -> int:
    """Return the greatest number of n-grams that can begin at a character, or at a blank beside a
    word.

    The blank between two words belongs to both, so as an n-gram of one character it counts twice.
    """
    return longest - shortest + (2 if shortest == 1 else 1)


_ngrams_a_character = inlined(ngrams_a_character)


@inlined
def _room(n_bytes: int, shortest: int, longest: int) -> int:
    """Return a bound on the number of n-grams in n_bytes padded bytes."""
    return n_bytes * _ngrams_a_character(shortest, longest)


@kernel
def char_spans(padded: U8, ptr: I64, shortest: int, longest: int) -> tuple[I64, I64, I64]:
    """Return the fields of NgramSpans, (row_ptr, start, end), for the n-grams of `shortest` to
    `longest` characters.
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
    offsets: I64,
    names: U8,
    table: U64,
    seed: int,
    padded: U8,
    ptr: I64,
    lengths: tuple[int, int],
    leads: tuple[int, int],
) -> tuple[I64, I32, F32]:
    """Return rows of counts of the n-grams that are in a vocabulary.

    The result is (indptr int64[n + 1], ids int32[..] ascending in each row, counts float32[..]).
    The n-grams are those of `char_spans`, of lengths[0] to lengths[1] characters. Linear.

    offsets, names  the fields of the vocabulary, a NameTable
    table, seed     the table that `short_names` made of the vocabulary, and its seed
    padded, ptr     the texts, as `pad_words` returns them
    leads           (lead, lead_weight): the n-grams of a text's first `lead` words count
                    lead_weight times, the others once
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
        sizes = _write_keys(padded, ptr[text], ptr[text + 1], lengths, leads[0], seed, keys, starts)
        n = _look_up(
            offsets,
            names,
            table,
            seed,
            padded,
            keys,
            starts,
            sizes,
            (slots, first_keys),
            name_ids,
        )
        ordered = _sort(name_ids, spare, n, len(offsets) - 1)
        for i in range(n):
            count = np.float32(leads[1]) if ordered[i] & _LEAD else np.float32(1)
            if i and ordered[i] & _ID == ordered[i - 1] & _ID:
                counts[out - 1] += count
            else:
                ids[out], counts[out] = ordered[i] & _ID, count
                out += 1
        indptr[text + 1] = out
    return indptr, ids[:out], counts[:out]


@inlined
def _write_keys(
    padded: U8,
    start: int,
    stop: int,
    lengths: tuple[int, int],
    lead: int,
    seed: int,
    keys_out: U64,
    starts_out: I64,
) -> tuple[int, int]:
    """Write the key and the start of each n-gram of padded[start:stop].

    Return how many there are, and how many of them are of the first `lead` words.
    """
    shortest, longest = lengths
    n = 0
    n_lead = 0
    n_words = 0
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
        n_words += 1
        if n_words <= lead:
            n_lead = n
    return n, n_lead


@inlined
def _look_up(
    offsets: I64,
    names: U8,
    table: U64,
    seed: int,
    padded: U8,
    keys: U64,
    starts: I64,
    sizes: tuple[int, int],
    spare: tuple[I64, U64],
    ids_out: I32,
) -> int:
    """Look up n-grams, and write the ids of those that are names; return how many.

    The ids of n-grams of the first words have the bit _LEAD.

    sizes  what `_write_keys` returns: the number of n-grams, and of those of the first words

    The first slots are read in a loop of their own, in which no read waits for another read or for
    a comparison.
    """
    n, n_lead = sizes
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
        ids_out[n_found] = np.int32(table[slot, 1]) | (_LEAD if k < n_lead else np.int32(0))
        n_found += int(table[slot, 0] != np.uint64(0))
    return n_found


@inlined
def _sort(ids: I32, spare: I32, n: int, n_ids: int) -> I32:
    """Sort ids[:n] by a radix sort; return the array that holds the result.

    Only the bits _ID count, which are below n_ids. The result is `ids` or `spare`; both are
    overwritten.
    """
    places = np.empty(_DIGITS, np.int64)
    shift = 0
    while (n_ids - 1) >> shift > 0:
        places[:] = 0
        for i in range(n):
            places[((ids[i] & _ID) >> shift) & (_DIGITS - 1)] += 1
        place = 0
        for digit in range(_DIGITS):
            place, places[digit] = place + places[digit], place
        for i in range(n):
            digit = ((ids[i] & _ID) >> shift) & (_DIGITS - 1)
            spare[places[digit]] = ids[i]
            places[digit] += 1
        ids, spare = spare, ids
        shift += _DIGIT_BITS
    return ids
