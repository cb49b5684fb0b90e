"""The trie over sets of words by which names are found, as kernels read it.

A name is found by its set of words, the rarest first: edges of the trie are words, and a node is the set of
the words on its path. The order of words ids is that of the edges, so that the search for names in a text
looks at those names alone whose rarest word the text has.
"""

from typing import NamedTuple

from model_store.compiled.handles import F32_1, I32, I32_1, I64, I64_1, U8_1, handle

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
