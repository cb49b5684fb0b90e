"""The words of a text as numbers, by which the places of each are found at once: kernels."""

from typing import NamedTuple

import numpy as np

from model_store.compiled.decorators import inlined
from model_store.compiled.decorators import nonallocating_inlined as reading
from model_store.compiled.handles import F32, I32, I64, U8
from model_store.names import hash_byte, hash_end, hash_start, probe, probe_hash
from service.vocabulary.trie import NameTrie

PART_CHARACTERS_MIN, REST_CHARACTERS_MIN = 5, 2
"""Characters that a name has at least that begins a compound, and that follow it."""

_MIX = np.int64(0x9E3779B1)
_SLOT_BITS = np.int64(0x7FFFFFFF)


class TextWords(NamedTuple):
    """A text of n words, d of them distinct words of names.

    ids         int32[n]      the number of each word in the table of words, -1: no name has it
    words       int32[d]      distinct numbers, in the order in which the text has them
    places_ptr  int32[d + 1]
    places      int32[..]     where distinct word j stands: places_ptr[j] .. places_ptr[j + 1] - 1, ascending
    slots       int32[2^i]    distinct words by `slot_of` their numbers, -1 where empty
    parts       int32[n]      of a word that is no name the longest one that is, and begins it; -1: none
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
def empty_slots(n: int) -> I32:
    """Return an empty hash table for n keys: half of it stays empty, its size is a power of two."""
    size = 2
    while size < 2 * n:
        size *= 2
    return np.full(size, np.int32(-1), np.int32)


@reading
def slot_of(slots: I32, keys: I32, key: int) -> int:
    """Return the slot that holds the place of a key among `keys`, or the empty one where it would stand."""
    mask = len(slots) - 1
    slot = (((np.int64(key) * _MIX) & _SLOT_BITS) >> 8) & mask
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + 1) & mask
    return int(slot)


@inlined
def number_words(trie: NameTrie, utf8: U8, start: I64, end: I64) -> TextWords:
    """Return the words of a text, word i of which is utf8[start[i]:end[i]]."""
    n, d = len(start), 0
    ids, local, words = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    slots, parts, shares = empty_slots(n), np.empty(n, np.int32), np.zeros(n, np.float32)
    for i in range(n):
        word = trie.slots[probe(trie.offsets, trie.utf8, trie.slots, utf8, start[i], end[i])]
        ids[i], local[i], parts[i] = word, -1, -1
        if word < 0 or trie.word_name[word] < 0:
            parts[i], size = _part_of(trie, utf8, start[i], end[i])
            shares[i] = np.float32(size) / np.float32(end[i] - start[i])
        if word >= 0:
            slot = slot_of(slots, words, word)
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
    at = places_ptr.copy()
    for i in range(n):
        if local[i] >= 0:
            places[at[local[i]]] = i
            at[local[i]] += 1
    return TextWords(ids, words[:d], places_ptr, places, slots, parts, shares)


@reading
def _part_of(trie: NameTrie, utf8: U8, start: int, end: int) -> tuple[int, int]:
    """Return (part, its bytes) of the word utf8[start:end]; (-1, 0): it has none."""
    last, n = end, 0
    while last > start and n < REST_CHARACTERS_MIN:
        last -= 1
        n += int(utf8[last] & 0xC0 != 0x80)
    part, size, h, n = -1, 0, hash_start(), 0
    for i in range(start, last):
        h = hash_byte(h, utf8[i])
        n += int(utf8[i] & 0xC0 != 0x80)
        if n >= PART_CHARACTERS_MIN and (i + 1 == last or utf8[i + 1] & 0xC0 != 0x80):
            at = probe_hash(trie.offsets, trie.utf8, trie.slots, utf8, start, i + 1, hash_end(h))
            word = trie.slots[at]
            if word >= 0 and trie.word_name[word] >= 0:
                part, size = int(word), i + 1 - start
    return part, size


@reading
def local_word(text: TextWords, word: int) -> int:
    """Return the place of a word among the distinct ones of a text, -1 where the text lacks it."""
    return int(text.slots[slot_of(text.slots, text.words, word)])


@reading
def n_places(text: TextWords, local: int) -> int:
    """Return how often a distinct word stands in a text."""
    return int(text.places_ptr[local + 1] - text.places_ptr[local])


@reading
def nearest_place(text: TextWords, local: int, place: int) -> int:
    """Return the place of a distinct word that is nearest to one; of two as near the first. Logarithmic."""
    low, high = text.places_ptr[local], text.places_ptr[local + 1]
    first, end = low, high
    while low < high:
        middle = (low + high) // 2
        if text.places[middle] < place:
            low = middle + 1
        else:
            high = middle
    if low == end:
        return int(text.places[end - 1])
    after = int(text.places[low])
    if low == first:
        return after
    before = int(text.places[low - 1])
    return before if place - before <= after - place else after
