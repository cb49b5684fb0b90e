"""Number the words of a text, and find names in it by their sets of words: kernels."""

from typing import NamedTuple

import numpy as np

from xylem.vocabulary.trie import NAME_WORDS_MAX, NameTrie
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
    slot_start,
)
from xylem_store import nonallocating_inlined as reading

PART_CHARACTERS_MIN, REST_CHARACTERS_MIN = 5, 2
"""A compound begins with a name of at least so many characters, and at least so many follow it."""

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


@reading
def nearest_place(text: TextWords, local: int, place: int) -> int:
    """Return the position of a distinct word that is nearest to `place`.

    Of two that are equally near it is the first. The time is logarithmic.
    """
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
    following = int(text.places[low])
    if low == first:
        return following
    preceding = int(text.places[low - 1])
    return preceding if place - preceding <= following - place else following


VISITS_A_WORD = 4096
"""For one distinct word of a text at most so many nodes and names are visited.

The search then goes on with the next word.
"""

PLACES_MAX = 64
"""A name of several words is looked for at the first so many positions of a word."""

NEAR_GAP = 10
"""The words of a name are near each other if at most so many other words stand between them."""

FAR_GAP = 50
"""A name is not found if more other words than these stand between its words at every occurrence.

Without this limit a long text would have every concept whose words it has somewhere. Of names so
far apart 0.8% were right in 2,625 questions to libraries, and a ranker without them was as good.
"""

SEQUENCE, NODE, N_WORDS, SPAN, COUNT, FIRST, LAST, ADJACENT, PART = range(9)
"""Columns of a match.

SEQUENCE, NODE  the sequence of words, and its node in the trie
N_WORDS         its distinct words
SPAN            the fewest words of the text from its first to its last word
COUNT           how often its words are near each other, at least 1
FIRST, LAST     the first and the last position of these occurrences
ADJACENT        how often the sequence stands in the text as it is, one word after the other
PART            0

A match can also be a sequence of one word that is a part of longer words: then N_WORDS is 0, SPAN
is 1, and PART is the largest share of a word's bytes that the part has, in thousandths.
"""

_N_COLUMNS = 9


class Matches(NamedTuple):
    """The sequences of words that a text has.

    rows    int32[m, 9]  a row for each, with the columns SEQUENCE to PART; parts of words come last
    cover   int32[n]     for each word the length of the longest sequence of two or more words that
            stands over it; 0 if there is none
    """

    rows: I32
    cover: I32


@inlined
def find_matches(trie: NameTrie, text: TextWords) -> Matches:
    """Return all sequences of a trie whose words a text has.

    They are ordered by the position of their rarest word, within the limits FAR_GAP and
    VISITS_A_WORD.
    """
    matches, n = np.empty((64, _N_COLUMNS), np.int32), 0
    cover = np.zeros(len(text.ids), np.int32)
    n_distinct = len(text.words)
    stack = np.empty((NAME_WORDS_MAX * n_distinct + 1, 3), np.int32)
    path = np.empty(NAME_WORDS_MAX, np.int32)
    for root in range(n_distinct):
        n_visits, top = 0, 0
        if trie.word_node[text.words[root]] >= 0:
            stack[0, 0] = trie.word_node[text.words[root]]
            stack[0, 1] = root
            stack[0, 2] = 0
            top = 1
        while top > 0 and n_visits < VISITS_A_WORD:
            top -= 1
            node, depth = stack[top, 0], stack[top, 2]
            path[depth] = stack[top, 1]
            first, last = trie.sequence_ptr[node], trie.sequence_ptr[node + 1]
            while n + last - first > len(matches):
                larger = np.empty((2 * len(matches), _N_COLUMNS), np.int32)
                larger[:n] = matches[:n]
                matches = larger
            if first < last:
                matches[n, PART] = 0
                _measure(text, path, depth + 1, matches[n])
            is_far = first < last and matches[n, SPAN] > depth + 1 + FAR_GAP
            for sequence in range(last if is_far else first, last):
                matches[n] = matches[n + first - sequence]
                matches[n, SEQUENCE], matches[n, NODE] = sequence, node
                matches[n, ADJACENT] = _count_adjacent(trie, text, sequence, cover)
                n_visits += trie.name_ptr[sequence + 1] - trie.name_ptr[sequence]
                n += 1
            if depth + 1 < NAME_WORDS_MAX:
                top, n_looks = _push_children(trie, text, node, depth + 1, stack, top)
                n_visits += n_looks
    return Matches(_with_parts(trie, text, matches[:n]), cover)


@inlined
def _with_parts(trie: NameTrie, text: TextWords, matches: I32) -> I32:
    """Return the matches, and after them the names that are parts of words.

    The parts are in the order of the text.
    """
    n, m = 0, len(matches)
    for i in range(len(text.parts)):
        n += int(text.parts[i] >= 0)
    parts, slots = np.empty(n, np.int32), empty_slots(n, text.slots[-1])
    all_matches = np.zeros((m + n, _N_COLUMNS), np.int32)
    all_matches[:m] = matches
    n = 0
    for i in range(len(text.parts)):
        part = text.parts[i]
        if part < 0:
            continue
        slot = slot_of(slots, parts, part)
        if slots[slot] < 0:
            slots[slot], parts[n] = n, part
            all_matches[m + n, SEQUENCE], all_matches[m + n, NODE] = (
                trie.word_name[part],
                trie.word_node[part],
            )
            all_matches[m + n, SPAN], all_matches[m + n, FIRST] = 1, i
            n += 1
        match = all_matches[m + slots[slot]]
        match[COUNT] += 1
        match[LAST] = i
        match[PART] = max(match[PART], np.int32(1000 * text.shares[i]))
    return all_matches[: m + n]


@reading
def _push_children(
    trie: NameTrie, text: TextWords, node: int, depth: int, stack: I32, top: int
) -> tuple[int, int]:
    """Push the children whose words the text has; return the stack's size and the look-ups made."""
    first, last = trie.child_ptr[node], trie.child_ptr[node + 1]
    n_distinct = len(text.words)
    if last - first <= 4 * n_distinct:
        for child in range(first, last):
            local = local_word(text, trie.node_word[child])
            if local >= 0:
                stack[top, 0] = child
                stack[top, 1] = local
                stack[top, 2] = depth
                top += 1
        return top, last - first + 1
    for local in range(n_distinct):
        low, high = first, last
        while low < high:
            middle = (low + high) // 2
            if trie.node_word[middle] < text.words[local]:
                low = middle + 1
            else:
                high = middle
        if low < last and trie.node_word[low] == text.words[local]:
            stack[top, 0] = low
            stack[top, 1] = local
            stack[top, 2] = depth
            top += 1
    return top, n_distinct + 1


@reading
def _measure(text: TextWords, path: I32, k: int, match_out: I32) -> None:
    """Write how near each other the k distinct words of a path stand in a text.

    These are the columns N_WORDS, SPAN, COUNT, FIRST and LAST of a match.
    """
    anchor = path[0]
    for i in range(1, k):
        if n_places(text, path[i]) < n_places(text, anchor):
            anchor = path[i]
    begin, stop = text.places_ptr[anchor], text.places_ptr[anchor + 1]
    match_out[N_WORDS] = k
    if k == 1:
        match_out[SPAN], match_out[COUNT] = 1, stop - begin
        match_out[FIRST], match_out[LAST] = text.places[begin], text.places[stop - 1]
        return
    span = len(text.ids) + 1
    count = 0
    first = 0
    last = 0
    for occurrence in range(begin, min(stop, begin + PLACES_MAX)):
        low = high = int(text.places[occurrence])
        for i in range(k):
            place = nearest_place(text, path[i], text.places[occurrence])
            low, high = min(low, place), max(high, place)
        width = high - low + 1
        is_near = width <= k + NEAR_GAP
        if (is_near and count == 0) or (count == 0 and width < span):
            first, last = low, high
        if is_near:
            last = high
            count += 1
        span = min(span, width)
    match_out[SPAN] = span
    match_out[COUNT] = max(1, count)
    match_out[FIRST] = first
    match_out[LAST] = last


@reading
def _anchor_of(trie: NameTrie, text: TextWords, sequence: int) -> tuple[int, int, int, int]:
    """Return the length of a sequence, and where its word that is rarest in the text stands.

    The parts are: the length, the offset of that word in the sequence, and the bounds of its
    positions in `text.places`.
    """
    first, last = trie.sequence_words_ptr[sequence], trie.sequence_words_ptr[sequence + 1]
    offset, anchor = 0, -1
    for i in range(first, last):
        local = local_word(text, trie.sequence_words[i])
        if anchor < 0 or n_places(text, local) < n_places(text, anchor):
            offset, anchor = i - first, local
    return last - first, offset, text.places_ptr[anchor], text.places_ptr[anchor + 1]


@reading
def _stands_at(trie: NameTrie, text: TextWords, sequence: int, place: int) -> bool:
    """Return whether the words of a sequence stand one after the other from a position on."""
    begin = trie.sequence_words_ptr[sequence]
    length = trie.sequence_words_ptr[sequence + 1] - begin
    if place < 0 or place + length > len(text.ids):
        return False
    i = 0
    while i < length and text.ids[place + i] == trie.sequence_words[begin + i]:
        i += 1
    return bool(i == length)


@reading
def _count_adjacent(trie: NameTrie, text: TextWords, sequence: int, cover: I32) -> int:
    """Return how often a sequence stands in the text as it is, one word after the other.

    Its length is written to `cover` where it stands, if it has two words or more.
    """
    length, offset, begin, stop = _anchor_of(trie, text, sequence)
    if length == 1:
        return int(stop - begin)
    count = 0
    for i in range(begin, min(stop, begin + PLACES_MAX)):
        place = text.places[i] - offset
        if _stands_at(trie, text, sequence, place):
            count += 1
            for j in range(place, place + length):
                cover[j] = max(cover[j], length)
    return count


@reading
def count_inside(trie: NameTrie, text: TextWords, sequence: int, cover: I32) -> tuple[int, int]:
    """Return how many positions of a sequence are in a longer one, and how many were checked."""
    length, offset, begin, stop = _anchor_of(trie, text, sequence)
    inside, n = 0, 0
    for i in range(begin, min(stop, begin + PLACES_MAX)):
        place = text.places[i] - offset
        if length == 1 or _stands_at(trie, text, sequence, place):
            n += 1
            inside += int(cover[place] > length)
    return inside, n
