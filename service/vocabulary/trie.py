"""Sequences of word ids -> a trie over sets of words, as arrays.

A name is found by its set of words, the rarest first: edges of the trie are words, and a node is the set of
the words on its path. The order of words ids is that of the edges, so that the search for names in a text
looks at those names alone whose rarest word the text has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import F32_1, I32_1, I64_1, U8_1, handle
from service.base.rows import offsets

NAME_WORDS_MAX = 16
"""A name of more words is left out: it would stand in no text."""

CONCEPTS_A_NAME_MAX = 64
"""A name that more concepts share says nothing, and is left out."""

NONE = np.iinfo(np.int32).max
"""What stands behind the last word of a sequence that is shorter than others."""


@handle
class NameTrie(NamedTuple):
    """n names of w words, as kernels read them; v nodes, and s sequences of words, of one name or more each.

    offsets, utf8, slots  the table of words, a NameTable
    idf                 float32[w]      inverse document frequency of each word
    word_node           int32[w]        the node of the set that is just this word, -1: no name's rarest word
    child_ptr           int64[v + 1]    below node i: nodes child_ptr[i] .. child_ptr[i + 1] - 1, all above i
    node_word           int32[v]        the word that leads to a node; ascending below one node, and on a path
    node_concepts       int32[v]        concepts with a name that is this set of words
    sequence_ptr        int64[v + 1]    sequences of a node: its words in some order, some more than once
    sequence_words_ptr  int64[s + 1]
    sequence_words      int32[..]       words of sequence j, NAME_WORDS_MAX at most
    name_ptr            int64[s + 1]    names that are a sequence; a concept has one of them at most
    concepts            int32[n]        ascending within a sequence
    kinds               uint8[n]        PREFERRED, ALTERNATIVE or HIDDEN
    is_qualified        uint8[n]        1: words in brackets stand behind the name, which say what is meant
    qualifier_ptr       int64[n + 1]
    qualifiers          int32[..]       those words
    broader_ptr, broader, related_ptr, related  Links of the concepts
    """

    offsets: I64_1
    utf8: U8_1
    slots: I32_1
    idf: F32_1
    word_node: I32_1
    child_ptr: I64_1
    node_word: I32_1
    node_concepts: I32_1
    sequence_ptr: I64_1
    sequence_words_ptr: I64_1
    sequence_words: I32_1
    name_ptr: I64_1
    concepts: I32_1
    kinds: U8_1
    is_qualified: U8_1
    qualifier_ptr: I64_1
    qualifiers: I32_1
    broader_ptr: I64_1
    broader: I32_1
    related_ptr: I64_1
    related: I32_1


class Names(NamedTuple):
    """n names, of which a trie is made.

    words         int32[n, L]  ids, the rarest words have the smallest; NONE behind the last one
    concepts      int32[n]
    kinds         uint8[n]
    is_qualified  uint8[n]
    """

    words: NDArray[np.int32]
    concepts: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    is_qualified: NDArray[np.uint8]

    def take(self, chosen: NDArray[Any]) -> Names:
        """Return some of the names."""
        return Names(*(array[chosen] for array in self))


def build_trie(names: Names, n_words: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Return the arrays of the trie by their fields' names, and which of the names it has, in its order.

    Of names of a concept that are the same sequence it has the one that its kind puts first, the shorter one
    of two; of sequences that more than CONCEPTS_A_NAME_MAX concepts share none.
    """
    sets = _sets(names.words)
    keys = [names.is_qualified, names.kinds, names.concepts, *names.words.T[::-1], *sets.T[::-1]]
    order = np.lexsort(keys)
    nodes, leaf = _nodes(sets[order], n_words)
    by_leaf = np.argsort(leaf, kind="stable")
    order, leaf = order[by_leaf], leaf[by_leaf]
    words, concepts = names.words[order], names.concepts[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (words[1:] != words[:-1]).any(axis=1)  # of another node are other words
    is_other = is_new.copy()
    is_other[1:] |= concepts[1:] != concepts[:-1]
    order, leaf, words, concepts = order[is_other], leaf[is_other], words[is_other], concepts[is_other]
    sequence = np.cumsum(is_new)[is_other] - 1
    is_shared = np.bincount(sequence)[sequence] > CONCEPTS_A_NAME_MAX
    order, leaf, words, concepts = (array[~is_shared] for array in (order, leaf, words, concepts))
    first = np.ones(len(order), bool)
    first[1:] = np.diff(sequence[~is_shared]) != 0
    sequence = np.cumsum(first) - 1
    n_nodes = len(nodes["node_word"])
    pairs = np.unique(leaf * np.int64(1 << 32) + concepts) >> 32
    lists = words[first]
    arrays = {
        **nodes,
        "node_concepts": np.bincount(pairs, minlength=n_nodes).astype(np.int32),
        "sequence_ptr": offsets(np.bincount(leaf[first], minlength=n_nodes)),
        "sequence_words_ptr": offsets((lists != NONE).sum(axis=1)),
        "sequence_words": lists[lists != NONE],
        "name_ptr": offsets(np.bincount(sequence, minlength=len(lists))),
        "concepts": concepts,
        "kinds": names.kinds[order],
        "is_qualified": names.is_qualified[order],
    }
    return arrays, order


def _sets(words: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the distinct words of each name, ascending, NONE behind the last one."""
    found = np.sort(words, axis=1)
    found[:, 1:][found[:, 1:] == found[:, :-1]] = NONE
    return np.sort(found, axis=1)


def _nodes(sets: NDArray[np.int32], n_words: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Return the arrays of the nodes, level after level, and the node of each set; the sets are sorted."""
    n = len(sets)
    leaf, node = np.zeros(n, np.int64), np.zeros(n, np.int64)
    differs = np.zeros(n, bool)
    differs[0] = True
    words: list[NDArray[np.int32]] = []
    n_children: list[NDArray[np.int64]] = []
    n_nodes = 0
    for depth in range(sets.shape[1]):
        column = sets[:, depth]
        differs[1:] |= column[1:] != column[:-1]
        has = column != NONE
        new = differs & has
        if depth:
            n_children.append(np.bincount(node[new], minlength=n_nodes)[n_nodes - len(words[-1]) :])
        words.append(column[new])
        node = np.where(has, n_nodes + np.cumsum(new) - 1, node)
        leaf[has] = node[has]
        n_nodes += len(words[-1])
    n_children.append(np.zeros(len(words[-1]), np.int64))
    word_node = np.full(n_words, -1, np.int32)
    word_node[words[0]] = np.arange(len(words[0]), dtype=np.int32)
    arrays: dict[str, NDArray[Any]] = {
        "word_node": word_node,
        "child_ptr": len(words[0]) + offsets(np.concatenate(n_children)),
        "node_word": np.concatenate(words),
    }
    return arrays, leaf
