"""Find the concepts whose names a text has, and compute the features of each: kernels."""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import RowArrays
from xylem.vocabulary.search import (
    ADJACENT,
    COUNT,
    FIRST,
    LAST,
    N_WORDS,
    NODE,
    PART,
    SEQUENCE,
    SPAN,
    Matches,
    count_inside,
    find_matches,
)
from xylem.vocabulary.text_words import TextWords, empty_slots, local_word, number_words, slot_of
from xylem.vocabulary.trie import NameTrie
from xylem_store import (
    F32,
    I32,
    I64,
    U8,
    Handle,
    inlined,
    kernel,
    nonallocating_inlined as reading,
    struct_at,
)

# The features of a concept in a text that has names of it; finite, and none is negative.
#
# A text has a concept in one of two ways. The text has all words of one of its names, with at most
# FAR_GAP other words between them. Or a name of one word begins a longer word of the text (a
# compound) that is not a name itself: then the first nine features are 0, unless the text has other
# names of the concept as well.
#
# preferred, alternative, hidden  closeness of the closest name of this kind; 0 if there is none
# names        ln(1 + number of the concept's names that the text has)
# words        number of distinct words of the best name: the name with the largest product of words
#              and closeness; among equals the one whose kind comes first
# closeness    of the best name: its distinct words / words of the text from its first to its last
#              one
# adjacent     ln(1 + how often a name stands in the text as it is, its words one after the other)
# occurrences  ln(1 + how often the words of a name stand near each other)
# share        share of the words of the text that belong to these occurrences, at most 1
# first, last, spread  positions of the first and of the last occurrence or compound, from 0 to 1,
#              and their difference
# idf_mean, idf_max  inverse document frequency of the best name's words
# inside       share of the best name's positions that are inside a longer name which stands there
#              as it is
# qualified    1 if words in brackets follow the best name in the vocabulary
# qualifier    share of these words that the text has
# concepts     ln(number of concepts with a name of the same set of words)
# broader, narrower, related  ln(1 + number of such neighbours of which the text has names)
# parts        ln(1 + number of words of the text that a name begins; of several names that begin a
#              word the longest counts)
# part         the largest share of its word's bytes that such a name has, to thousandths
# text_words   ln(1 + words of the text)
NameFeatures = namedtuple(
    "NameFeatures",
    "preferred alternative hidden names words closeness adjacent occurrences share first last "
    "spread idf_mean idf_max inside qualified qualifier concepts broader narrower related parts "
    "part text_words",
)

NAME_FEATURES = NameFeatures._fields
_N = len(NAME_FEATURES)
_F = NameFeatures(*range(_N))


class _Candidates(NamedTuple):
    """The c concepts of a text.

    concepts  int32[c]
    features  float32[c, F]
    best      int64[c, 2]  the best name: the index of its match, and the number of the name
    slots     int32[2^i + 1]  hash table from a concept to its index, read by `slot_of`; the last
              entry is the seed
    """

    concepts: I32
    features: F32
    best: I64
    slots: I32


@kernel
def name_rows(
    utf8: U8, word_ptr: I64, start: I64, end: I64, trie_at: Handle, seed: int
) -> RowArrays:
    """Return a row of features for each text: (indptr, indices, values).

    Feature f of concept c is in column c * F + f.

    utf8, word_ptr, start, end  the words of the texts, as in Words
    trie_at  handle of a NameTrie
    seed     of the hash tables, from `new_seed`; no row depends on it

    The time is linear in the words of a text, but for a logarithm.
    """
    trie = struct_at(NameTrie, trie_at)
    n_texts = len(word_ptr) - 1
    n = 0
    indptr = np.zeros(n_texts + 1, np.int64)
    indices = np.empty(1 << 12, np.int32)
    values = np.empty(1 << 12, np.float32)
    for i in range(n_texts):
        first = word_ptr[i]
        last = word_ptr[i + 1]
        text = number_words(trie, utf8, start[first:last], end[first:last], seed)
        matches = find_matches(trie, text)
        candidates = _candidates(trie, text, matches)
        _add_best(trie, text, matches, candidates)
        _add_neighbours(trie, candidates)
        room = n + candidates.features.size
        if room > len(indices):
            indices = _grown(indices, n, 2 * room)
            values = _grown(values, n, 2 * room)
        n = _write(candidates, indices, values, n)
        indptr[i + 1] = n
    return indptr, indices[:n], values[:n]


@inlined
def _grown(array: NDArray[Any], n: int, room: int) -> NDArray[Any]:
    larger = np.empty(room, array.dtype)
    larger[:n] = array[:n]
    return larger


@reading
def _closeness(match: I32) -> float:
    return float(match[N_WORDS] / match[SPAN])


@inlined
def _candidates(trie: NameTrie, text: TextWords, matches: Matches) -> _Candidates:
    """Return the concepts of the matches, with the features that add up over their names."""
    room = 0
    for m in range(len(matches.rows)):
        sequence = matches.rows[m, SEQUENCE]
        room += trie.name_ptr[sequence + 1] - trie.name_ptr[sequence]
    concepts = np.empty(room, np.int32)
    best = np.empty((room, 2), np.int64)
    features = np.zeros((room, _N), np.float32)
    slots = empty_slots(room, text.slots[-1])
    n = 0
    n_words = np.float32(len(text.ids))
    for m in range(len(matches.rows)):
        match = matches.rows[m]
        for name in range(trie.name_ptr[match[SEQUENCE]], trie.name_ptr[match[SEQUENCE] + 1]):
            slot = slot_of(slots, concepts, trie.concepts[name])
            if slots[slot] < 0:
                slots[slot] = n
                concepts[n] = trie.concepts[name]
                features[n, _F.first] = np.float32(1)
                best[n, 0] = m
                best[n, 1] = name
                n += 1
            index = slots[slot]
            row = features[index]
            row[_F.first] = min(row[_F.first], np.float32(match[FIRST]) / n_words)
            row[_F.last] = max(row[_F.last], np.float32(match[LAST]) / n_words)
            if match[PART] > 0:
                row[_F.parts] += np.float32(match[COUNT])
                row[_F.part] = max(row[_F.part], np.float32(match[PART]) / np.float32(1000))
                continue
            closeness = np.float32(_closeness(match))
            kind = trie.kinds[name]
            row[kind] = max(row[kind], closeness)
            row[_F.names] += np.float32(1)
            row[_F.adjacent] += np.float32(match[ADJACENT])
            row[_F.occurrences] += np.float32(match[COUNT])
            row[_F.share] += np.float32(match[COUNT] * match[N_WORDS]) / n_words
            if _is_better(trie, matches, m, name, best[index]):
                best[index, 0] = m
                best[index, 1] = name
    return _Candidates(concepts[:n], features[:n], best[:n], slots)


@reading
def _is_better(trie: NameTrie, matches: Matches, m: int, name: int, best: I64) -> bool:
    """Return whether a name is better than the best one so far.

    The product of words and closeness decides, then the kind, then the smaller number.
    """
    match = matches.rows[m]
    best_match = matches.rows[best[0]]
    gain = match[N_WORDS] * _closeness(match) - best_match[N_WORDS] * _closeness(best_match)
    if gain != 0:
        return bool(gain > 0)
    kind = trie.kinds[name]
    other_kind = trie.kinds[best[1]]
    return bool(kind < other_kind or (kind == other_kind and name < best[1]))


@reading
def _add_best(trie: NameTrie, text: TextWords, matches: Matches, candidates: _Candidates) -> None:
    """Write the features of each concept's best name, and replace counts by their logarithms."""
    text_words = np.float32(np.log1p(len(text.ids)))
    for c in range(len(candidates.concepts)):
        match = matches.rows[candidates.best[c, 0]]
        name = candidates.best[c, 1]
        row = candidates.features[c]
        sequence = match[SEQUENCE]
        row[_F.names], row[_F.adjacent] = np.log1p(row[_F.names]), np.log1p(row[_F.adjacent])
        row[_F.parts] = np.log1p(row[_F.parts])
        row[_F.occurrences], row[_F.share] = (
            np.log1p(row[_F.occurrences]),
            min(np.float32(1), row[_F.share]),
        )
        row[_F.spread] = row[_F.last] - row[_F.first]
        row[_F.words], row[_F.closeness] = match[N_WORDS], _closeness(match)
        begin = trie.sequence_words_ptr[sequence]
        stop = trie.sequence_words_ptr[sequence + 1]
        for i in range(begin, stop):
            idf = trie.idf[trie.sequence_words[i]]
            row[_F.idf_mean] += idf / np.float32(stop - begin)
            row[_F.idf_max] = max(row[_F.idf_max], idf)
        if match[PART] == 0:
            inside, n_places = count_inside(trie, text, sequence, matches.cover)
            row[_F.inside] = np.float32(inside) / np.float32(max(1, n_places))
        row[_F.qualified] = trie.is_qualified[name]
        begin = trie.qualifier_ptr[name]
        stop = trie.qualifier_ptr[name + 1]
        for i in range(begin, stop):
            if local_word(text, trie.qualifiers[i]) >= 0:
                row[_F.qualifier] += np.float32(1) / np.float32(stop - begin)
        row[_F.concepts] = np.log(np.float32(trie.node_concepts[match[NODE]]))
        row[_F.text_words] = text_words


@reading
def _add_neighbours(trie: NameTrie, candidates: _Candidates) -> None:
    """Write ln(1 + the number of each concept's neighbours that are concepts of the text too)."""
    features = candidates.features
    for c in range(len(candidates.concepts)):
        concept = candidates.concepts[c]
        for i in range(trie.broader_ptr[concept], trie.broader_ptr[concept + 1]):
            other = candidates.slots[
                slot_of(candidates.slots, candidates.concepts, trie.broader[i])
            ]
            if other >= 0:
                features[c, _F.broader] += np.float32(1)
                features[other, _F.narrower] += np.float32(1)
        for i in range(trie.related_ptr[concept], trie.related_ptr[concept + 1]):
            if (
                candidates.slots[slot_of(candidates.slots, candidates.concepts, trie.related[i])]
                >= 0
            ):
                features[c, _F.related] += np.float32(1)
    for c in range(len(candidates.concepts)):
        for feature in range(_F.broader, _F.related + 1):
            features[c, feature] = np.log1p(features[c, feature])


@inlined
def _write(candidates: _Candidates, indices_out: I32, values_out: F32, n: int) -> int:
    """Write the features that are not 0, concepts ascending; return the index after them."""
    keys = np.empty(len(candidates.concepts), np.int64)
    for c in range(len(keys)):
        keys[c] = np.int64(candidates.concepts[c]) << 32 | c
    keys.sort()
    for key in keys:
        concept = key >> 32
        row = candidates.features[key & 0xFFFFFFFF]
        for feature in range(_N):
            value = row[feature]
            if value != 0:
                indices_out[n] = concept * _N + feature
                values_out[n] = value
                n += 1
    return n
