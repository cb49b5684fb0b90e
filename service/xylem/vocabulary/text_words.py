"""Number the words of a text: kernels."""

from typing import NamedTuple

import numpy as np

from xylem.vocabulary.trie import NameTrie
from xylem_store import (
    F32,
    I32,
    I64,
    U8,
    hash_byte,
    hash_end,
    hash_start,
    id_by_hash,
    id_of,
    inlined,
    nonallocating_inlined as reading,
    slot_start,
)

# The least number of characters of the name that a compound begins with, and of the rest behind it.
PART_CHARACTERS_MIN, REST_CHARACTERS_MIN = 5, 2

_LOW_32 = np.uint64(0xFFFFFFFF)


class TextWords(NamedTuple):
    """A text of n words, of which d distinct words are words of names.

    ids         int32[n]      the number of each word in the table of words, -1 if no name has it
    words       int32[d]      the numbers of the distinct words, in the order of the text
    places_ptr  int32[d + 1]
    places      int32[..]     the positions of distinct word j are places_ptr[j] .. places_ptr[j +
                1] - 1, ascending
    slots       int32[2^i + 1]  hash table from the number of a word to its index among the distinct
                words, read by `slot_of`; -1 where empty; the last entry is the seed
    parts       int32[n]      for a word that is not a name itself, the longest name of one word
                that begins it; -1 if there is none
    shares      float32[n]    bytes of the part / bytes of the word
    """

    ids: I32
    words: I32
    places_ptr: I32
    places: I32
    slots: I32
    parts: I32
    shares: F32


@inlined
def empty_slots(n: int, seed: int) -> I32:
    """Return an empty hash table for n keys, of which at least half stays empty.

    Its size is a power of two. The seed, from `new_seed`, stands behind the last slot.
    """
    size = 2
    while size < 2 * n:
        size *= 2
    slots = np.full(size + 1, np.int32(-1), np.int32)
    slots[size] = seed
    return slots


@reading
def slot_of(slots: I32, keys: I32, key: int) -> int:
    """Return the slot that holds the index of a key in `keys`, or the empty slot for that key."""
    mask = len(slots) - 2
    mixed = (np.uint64(key) * np.uint64(slots[mask + 1])) & _LOW_32
    slot = slot_start(mixed, mask + 1)
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + 1) & mask
    return int(slot)


@inlined
def number_words(trie: NameTrie, utf8: U8, start: I64, end: I64, seed: int) -> TextWords:
    """Return the words of a text; word i is utf8[start[i]:end[i]]."""
    n, d = len(start), 0
    ids = np.empty(n, np.int32)
    local = np.empty(n, np.int32)
    words = np.empty(n, np.int32)
    slots = empty_slots(n, seed)
    parts = np.empty(n, np.int32)
    shares = np.zeros(n, np.float32)
    for i in range(n):
        word = int(id_of(trie.offsets, trie.utf8, trie.slots, utf8, start[i], end[i]))
        ids[i] = word
        local[i] = -1
        parts[i] = -1
        if word < 0 or trie.word_name[word] < 0:
            parts[i], size = _part_of(trie, utf8, start[i], end[i])
            shares[i] = np.float32(size) / np.float32(end[i] - start[i])
        if word >= 0:
            slot = slot_of(slots, words, int(word))
            if slots[slot] < 0:
                slots[slot], words[d] = d, word
                d += 1
            local[i] = slots[slot]
    places_ptr, places = np.zeros(d + 1, np.int32), np.empty(n, np.int32)
    for i in range(n):
        if local[i] >= 0:
            places_ptr[local[i] + 1] += 1
    for j in range(d):
        places_ptr[j + 1] += places_ptr[j]
    next_place = places_ptr.copy()
    for i in range(n):
        if local[i] >= 0:
            places[next_place[local[i]]] = i
            next_place[local[i]] += 1
    return TextWords(ids, words[:d], places_ptr, places, slots, parts, shares)


@reading
def _part_of(trie: NameTrie, utf8: U8, start: int, end: int) -> tuple[int, int]:
    """Return (part, its bytes) of the word utf8[start:end], or (-1, 0) if it has no part.

    A part is a name of one word that begins the word; the longest one is returned.
    """
    last, n = end, 0
    while last > start and n < REST_CHARACTERS_MIN:
        last -= 1
        n += int(utf8[last] & 0xC0 != 0x80)
    part = -1
    size = 0
    h = hash_start()
    n = 0
    for i in range(start, last):
        h = hash_byte(h, utf8[i])
        n += int(utf8[i] & 0xC0 != 0x80)
        if n >= PART_CHARACTERS_MIN and (i + 1 == last or utf8[i + 1] & 0xC0 != 0x80):
            word = id_by_hash(trie.offsets, trie.utf8, trie.slots, utf8, start, i + 1, hash_end(h))
            if word >= 0 and trie.word_name[word] >= 0:
                part, size = int(word), i + 1 - start
    return part, size


@reading
def local_word(text: TextWords, word: int) -> int:
    """Return the index of a word among the distinct words of a text, -1 if the text lacks it."""
    return int(text.slots[slot_of(text.slots, text.words, word)])


@reading
def n_places(text: TextWords, local: int) -> int:
    """Return how often a distinct word stands in a text."""
    return int(text.places_ptr[local + 1] - text.places_ptr[local])
