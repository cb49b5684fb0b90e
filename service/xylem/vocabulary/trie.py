"""The trie over sets of words by which names are found, as kernels read it.

A name is found by its set of words, the rarest word first: edges of the trie are words, and a node
stands for the set of the words on its path. Ids of words ascend along a path, and rarer words have
smaller ids. So a search in a text visits only names whose rarest word the text has.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import inverse, offsets
from xylem_store import F32_1, I32, I32_1, I64, I64_1, U8, U8_1, Corrupt, check_all, handle

# Names of more words are left out: they would stand in no text.
NAME_WORDS_MAX = 16

# No inverse document frequency is as large as this, because it is a logarithm.
IDF_MAX = 100

# A name that more concepts share does not tell which one is meant, and is left out.
CONCEPTS_A_NAME_MAX = 64


class Lists(NamedTuple):
    """n lists of numbers: list i is ids[ptr[i]:ptr[i + 1]].

    ptr  int64[n + 1]
    ids  int32[..]
    """

    ptr: I64
    ids: I32


@handle
class NameTrie(NamedTuple):
    """n names of w words, as kernels read them.

    The trie has v nodes and s sequences of words; a sequence is one name or more.

    offsets, utf8, slots  the table of words, a NameTable
    idf                 float32[w]      inverse document frequency of each word
    word_node           int32[w]        the node of the set that is just this word; -1 if it is no
                        name's rarest word
    word_name           int32[w]        the sequence that is just this word, -1 if there is none
    child_ptr           int64[v + 1]    the children of node i are the nodes child_ptr[i] ..
                        child_ptr[i + 1] - 1, all greater than i
    node_word           int32[v]        the word that leads to a node; ascending among the children
                        of a node, and along a path
    node_concepts       int32[v]        number of concepts with a name that is this set of words
    sequence_ptr        int64[v + 1]    sequences of a node: its words in some order, where a word
                        may occur more than once
    sequence_words_ptr  int64[s + 1]
    sequence_words      int32[..]       words of sequence j, at most NAME_WORDS_MAX
    name_ptr            int64[s + 1]    names that are a sequence; at most one of each concept
    concepts            int32[n]        ascending within a sequence
    kinds               uint8[n]        PREFERRED, ALTERNATIVE or HIDDEN
    is_qualified        uint8[n]        1 if words in brackets, which tell what is meant, follow the
                        name
    qualifier_ptr       int64[n + 1]
    qualifiers          int32[..]       these words
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


# Fills up the words of a sequence that is shorter than others, behind its last word.
NONE = np.iinfo(np.int32).max


def build_trie(
    words: I32, concepts: I32, kinds: U8, is_qualified: U8, n_words: int
) -> tuple[dict[str, NDArray[Any]], I64]:
    """Return the arrays of the trie by their field names, and which names it has, in its order.

    words  int32[n, L]  the ids of the words of each of n names: rarer words have smaller ids; NONE
           behind the last word
    concepts, kinds, is_qualified  int32[n], uint8[n], uint8[n]  of each name

    If several names of a concept are the same sequence, the trie has the one whose kind comes
    first, and of these one without a qualifier first. Sequences that more than CONCEPTS_A_NAME_MAX
    concepts share are left out.
    """
    sets = np.sort(words, axis=1)  # the distinct words of each name, ascending
    sets[:, 1:][sets[:, 1:] == sets[:, :-1]] = NONE
    sets.sort(axis=1)
    order = np.lexsort([is_qualified, kinds, concepts, *words.T[::-1], *sets.T[::-1]])
    nodes, leaf = _nodes(sets[order], n_words)
    by_leaf = np.argsort(leaf, kind="stable")
    order = order[by_leaf]
    leaf = leaf[by_leaf]
    words = words[order]
    concepts = concepts[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (words[1:] != words[:-1]).any(axis=1)  # different nodes have different words
    is_other = is_new.copy()
    is_other[1:] |= concepts[1:] != concepts[:-1]
    order = order[is_other]
    leaf = leaf[is_other]
    words = words[is_other]
    concepts = concepts[is_other]
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
    """Return the arrays of the nodes, level after level, and the node of each set.

    The sets must be sorted.
    """
    n = len(sets)
    leaf = np.zeros(n, np.int64)
    node = np.zeros(n, np.int64)
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
    """Raise Corrupt unless kernels may read these arrays safely.

    A search must stay on the words of its text, and must end. The table of words, types, lengths
    and bounds of the arrays are checked before this. Cost: a sort of the words of all sequences,
    and one of the concepts.
    """
    n_nodes = len(trie.node_word)
    nodes = np.arange(len(trie.node_word))
    n_children = np.diff(trie.child_ptr)
    check_all("names/idf", (trie.idf >= 0) & (trie.idf <= IDF_MAX), f"0 to {IDF_MAX}", trie.idf)
    check_all("names/kinds", trie.kinds <= 2, "0, 1 or 2", trie.kinds)
    check_all("names/is_qualified", trie.is_qualified <= 1, "0 or 1", trie.is_qualified)
    is_above = (n_children >= 0) & (trie.child_ptr[:-1] > nodes)
    if not is_above.all() or trie.child_ptr[-1] != n_nodes:
        raise Corrupt(
            "names.child_ptr.npy", "ascending offsets, children above their nodes", "others"
        )
    n_roots = int(trie.child_ptr[0])
    is_first = np.zeros(n_nodes + 1, bool)
    is_first[[0, *trie.child_ptr]] = True
    if not (is_first[1:-1] | (trie.node_word[1:] > trie.node_word[:-1])).all():
        raise Corrupt("names.node_word.npy", "words that ascend below a node", "others")
    if not np.array_equal(trie.word_node, inverse(trie.node_word[:n_roots], len(trie.idf))):
        raise Corrupt("names.word_node.npy", "the node of each word that begins a set", "others")
    lengths = np.diff(trie.sequence_words_ptr)
    if not ((lengths >= 1) & (lengths <= NAME_WORDS_MAX)).all():
        raise Corrupt(
            "names.sequence_words_ptr.npy", f"1 to {NAME_WORDS_MAX} words", "another number"
        )
    node_of = np.repeat(nodes, np.diff(trie.sequence_ptr))
    _check_sets(trie, node_of, np.concatenate([np.full(n_roots, -1), np.repeat(nodes, n_children)]))
    names = np.flatnonzero(trie.word_name >= 0)
    alone = trie.word_name[names]
    begin = trie.sequence_words_ptr[alone]
    is_word = (trie.sequence_words[begin] == names) & (lengths[alone] == 1)
    if not (is_word & (trie.word_node[names] == node_of[alone])).all():
        raise Corrupt("names.word_name.npy", "sequences of the word alone", "others")
    owners = np.repeat(node_of, np.diff(trie.name_ptr)).astype(np.int64)
    pairs = np.unique(owners << 32 | trie.concepts) >> 32
    if not np.array_equal(trie.node_concepts, np.bincount(pairs, minlength=n_nodes)):
        raise Corrupt("names.node_concepts.npy", "the concepts of each set of words", "others")


def _check_sets(trie: NameTrie, node_of: I64, parent: I64) -> None:
    """Raise Corrupt unless the words of each sequence are those on the path to its node.

    A search assumes that the text has the words of a sequence, because it has those on the path.

    node_of, parent  the node of each sequence; the parent of each node, -1 at a root
    """
    n = len(node_of)
    owner = np.repeat(np.arange(n), np.diff(trie.sequence_words_ptr))
    # pairs of a sequence and a word, each once
    pairs = np.unique(owner.astype(np.int64) << 32 | trie.sequence_words)
    owner = pairs >> 32
    words = (pairs & NONE).astype(np.int32)
    last = offsets(np.bincount(owner, minlength=n))
    node = node_of  # the greatest word of a sequence leads to its node
    remaining = last[1:] - 1
    sequences = np.arange(n)
    while len(sequences):
        has_word = remaining >= last[sequences]
        if (
            not np.array_equal(has_word, node >= 0)
            or (words[remaining[has_word]] != trie.node_word[node[has_word]]).any()
        ):
            raise Corrupt(
                "names.sequence_words.npy", "the words on the path to the sequence's node", "others"
            )
        sequences = sequences[has_word]
        node = parent[node[has_word]]
        remaining = remaining[has_word] - 1
