"""The trie over sets of words by which names are found, as kernels read it.

A name is found by its set of words, the rarest first: edges of the trie are words, and a node is the set of
the words on its path. The order of words ids is that of the edges, so that the search for names in a text
looks at those names alone whose rarest word the text has.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import F32_1, I32, I32_1, I64, I64_1, U8, U8_1, handle
from model_store.errors import Corrupt
from service.base.rows import inverse, offsets

NAME_WORDS_MAX = 16
"""A name of more words is left out: it would stand in no text."""

CONCEPTS_A_NAME_MAX = 64
"""A name that more concepts share says nothing, and is left out."""


class Lists(NamedTuple):
    """n lists of numbers: list i is ids[ptr[i]:ptr[i + 1]].

    ptr  int64[n + 1]
    ids  int32[..]
    """

    ptr: I64
    ids: I32


@handle
class NameTrie(NamedTuple):
    """n names of w words, as kernels read them; v nodes, and s sequences of words, of one name or more each.

    offsets, utf8, slots  the table of words, a NameTable
    idf                 float32[w]      inverse document frequency of each word
    word_node           int32[w]        the node of the set that is just this word, -1: no name's rarest word
    word_name           int32[w]        the sequence that is just this word, -1: none
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
    broader_ptr, broader, related_ptr, related  Lists of the concepts
    """

    offsets: I64_1
    utf8: U8_1
    slots: I32_1
    idf: F32_1
    word_node: I32_1
    word_name: I32_1
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


NONE = np.iinfo(np.int32).max
"""What stands behind the last word of a sequence that is shorter than others."""


def build_trie(
    words: I32, concepts: I32, kinds: U8, is_qualified: U8, n_words: int
) -> tuple[dict[str, NDArray[Any]], I64]:
    """Return the arrays of the trie of n names, by their fields, and which of them it has, in its order.

    words  int32[n, L]  of each name: ids, the rarest words have the smallest; NONE behind the last one
    concepts, kinds, is_qualified  int32[n], uint8[n], uint8[n]  of each name

    Of names of a concept that are the same sequence it has the one that its kind puts first, the shorter one
    of two; of sequences that more than CONCEPTS_A_NAME_MAX concepts share none.
    """
    sets = np.sort(words, axis=1)  # the distinct words of each name, ascending
    sets[:, 1:][sets[:, 1:] == sets[:, :-1]] = NONE
    sets.sort(axis=1)
    keys = [is_qualified, kinds, concepts, *words.T[::-1], *sets.T[::-1]]
    order = np.lexsort(keys)
    nodes, leaf = _nodes(sets[order], n_words)
    by_leaf = np.argsort(leaf, kind="stable")
    order, leaf = order[by_leaf], leaf[by_leaf]
    words, concepts = words[order], concepts[order]
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
    n_each = (lists != NONE).sum(axis=1)
    word_name = np.full(n_words, -1, np.int32)
    word_name[lists[n_each == 1, 0]] = np.flatnonzero(n_each == 1)
    arrays = {
        **nodes,
        "node_concepts": np.bincount(pairs, minlength=n_nodes).astype(np.int32),
        "sequence_ptr": offsets(np.bincount(leaf[first], minlength=n_nodes)),
        "word_name": word_name,
        "sequence_words_ptr": offsets(n_each),
        "sequence_words": lists[lists != NONE],
        "name_ptr": offsets(np.bincount(sequence, minlength=len(lists))),
        "concepts": concepts,
        "kinds": kinds[order],
        "is_qualified": is_qualified[order],
    }
    return arrays, order


def _nodes(sets: I32, n_words: int) -> tuple[dict[str, NDArray[Any]], I64]:
    """Return the arrays of the nodes, level after level, and the node of each set; the sets are sorted."""
    n = len(sets)
    leaf, node = np.zeros(n, np.int64), np.zeros(n, np.int64)
    differs = np.zeros(n, bool)
    differs[0] = True
    words: list[I32] = []
    n_children: list[I64] = []
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
    arrays: dict[str, NDArray[Any]] = {
        "word_node": inverse(words[0], n_words),
        "child_ptr": len(words[0]) + offsets(np.concatenate(n_children)),
        "node_word": np.concatenate(words),
    }
    return arrays, leaf


def check_trie(trie: NameTrie) -> None:
    """Raise Corrupt unless kernels may read these arrays: no number leads out of one, no search is endless.

    The table of words and the types of arrays are checked by who read them.
    """
    if not len(trie.name_ptr) or not len(trie.broader_ptr):
        raise Corrupt("name_ptr, broader_ptr", "offsets", "none")
    n_concepts = len(trie.broader_ptr) - 1
    n_words, n_nodes = len(trie.offsets) - 1, len(trie.node_word)
    n_names, n_sequences = len(trie.concepts), len(trie.name_ptr) - 1
    _check_ptr("child_ptr", trie.child_ptr, n_nodes, n_nodes, first=None)
    _check_ptr("sequence_ptr", trie.sequence_ptr, n_nodes, n_sequences)
    _check_ptr("sequence_words_ptr", trie.sequence_words_ptr, n_sequences, len(trie.sequence_words))
    _check_ptr("name_ptr", trie.name_ptr, n_sequences, n_names)
    _check_ptr("qualifier_ptr", trie.qualifier_ptr, n_names, len(trie.qualifiers))
    _check_ptr("broader_ptr", trie.broader_ptr, n_concepts, len(trie.broader))
    _check_ptr("related_ptr", trie.related_ptr, n_concepts, len(trie.related))
    for name, length, low, high in (
        ("idf", n_words, 0, 100),
        ("word_node", n_words, -1, n_nodes - 1),
        ("word_name", n_words, -1, n_sequences - 1),
        ("node_word", n_nodes, 0, n_words - 1),
        ("node_concepts", n_nodes, 0, n_concepts),
        ("sequence_words", len(trie.sequence_words), 0, n_words - 1),
        ("concepts", n_names, 0, n_concepts - 1),
        ("kinds", n_names, 0, 2),
        ("is_qualified", n_names, 0, 1),
        ("qualifiers", len(trie.qualifiers), 0, n_words - 1),
        ("broader", len(trie.broader), 0, n_concepts - 1),
        ("related", len(trie.related), 0, n_concepts - 1),
    ):
        array = getattr(trie, name)
        if array.shape != (length,) or not ((array >= low) & (array <= high)).all():
            raise Corrupt(name, f"{length} numbers from {low} to {high}", "others")
    if not (trie.word_node[trie.word_name >= 0] >= 0).all():
        raise Corrupt("word_name", "names of words that have a node", "another")
    if not (trie.child_ptr[:-1] > np.arange(n_nodes)).all():
        raise Corrupt("child_ptr", "children above their nodes", "another")
    is_first = np.zeros(n_nodes + 1, bool)
    is_first[[0, *trie.child_ptr]] = True
    if not (is_first[1:-1] | (trie.node_word[1:] > trie.node_word[:-1])).all():
        raise Corrupt("node_word", "words that ascend below a node", "others")
    lengths = np.diff(trie.sequence_words_ptr)
    if not ((lengths >= 1) & (lengths <= NAME_WORDS_MAX)).all():
        raise Corrupt("sequence_words_ptr", f"1 to {NAME_WORDS_MAX} words", "another number")
    if not (trie.node_concepts[np.diff(trie.sequence_ptr) > 0] > 0).all():
        raise Corrupt("node_concepts", "a concept of each set of words that is a name", "none")


def _check_ptr(name: str, ptr: NDArray[Any], n: int, last: int, first: int | None = 0) -> None:
    """Raise Corrupt unless these are n + 1 offsets that ascend to `last`, from any where first is None."""
    fits = ptr.shape == (n + 1,) and ptr[-1] == last and not (ptr[1:] < ptr[:-1]).any()
    if not fits or (first is not None and ptr[0] != first):
        raise Corrupt(name, f"{n + 1} offsets that ascend to {last}", "others")
