"""Number the words of a text, and find names in it by their sets of words: kernels."""

from typing import NamedTuple

import numpy as np

from xylem.vocabulary.text_words import TextWords, empty_slots, local_word, n_places, slot_of
from xylem.vocabulary.trie import NAME_WORDS_MAX, NameTrie
from xylem_store import (
    I32,
    inlined,
    nonallocating_inlined as reading,
)


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


# The most nodes and names that are visited for one distinct word of a text.
#
# The search then goes on with the next word.
VISITS_A_WORD = 4096

# The most positions of a word at which a name of several words is looked for: the first ones.
PLACES_MAX = 64

# The most other words that stand between two words of a name which are near each other.
NEAR_GAP = 10

# A name is not found if more other words than these stand between its words at every occurrence.
#
# Without this limit a long text would have every concept whose words it has somewhere. Of names so
# far apart 0.8% were right in 2,625 questions to libraries, and a ranker without them was as good.
FAR_GAP = 50

# Columns of a match.
#
# SEQUENCE, NODE  the sequence of words, and its node in the trie
# N_WORDS         its distinct words
# SPAN            the fewest words of the text from its first to its last word
# COUNT           how often its words are near each other, at least 1
# FIRST, LAST     the first and the last position of these occurrences
# ADJACENT        how often the sequence stands in the text as it is, one word after the other
# PART            0
#
# A match can also be a sequence of one word that is a part of longer words: then N_WORDS is 0, SPAN
# is 1, and PART is the largest share of a word's bytes that the part has, in thousandths.
SEQUENCE, NODE, N_WORDS, SPAN, COUNT, FIRST, LAST, ADJACENT, PART = range(9)

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
