"""Find the concepts whose names texts have, and make rows with a block of columns a concept."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import SparseRows
from xylem.engine import WordReader, Words, texts_between
from xylem.vocabulary.candidates import NAME_FEATURES, name_rows
from xylem.vocabulary.names import GROUP, STOPS, WORDS, NameParameters
from xylem.vocabulary.trie import NameTrie, check_trie
from xylem_store import (
    I64,
    U8,
    Corrupt,
    check_bounds,
    file_name,
    group_of,
    handle_of,
    names_in,
    new_seed,
    take,
    take_group,
)

_CONTINUATION_MASK = 0xC0
_CONTINUATION = 0x80  # a masked byte of UTF-8 that does not begin a character

# For arrays of a trie that must be as long as another array: that array, or its length plus 1.
_SIZES: dict[str, int | str] = {
    **dict.fromkeys(("word_node", "word_name"), "idf"),
    "offsets": "idf+1",
    "node_concepts": "node_word",
    **dict.fromkeys(("child_ptr", "sequence_ptr"), "node_word+1"),
    "sequence_words_ptr": "name_ptr",
    **dict.fromkeys(("kinds", "is_qualified"), "concepts"),
    "qualifier_ptr": "concepts+1",
    "related_ptr": "broader_ptr",
}


class MatchedName(NamedTuple):
    """A name of a concept that a text has.

    name   as the vocabulary has it
    kind   0 preferred, 1 alternative, 2 hidden
    words  words of the text that are words of the name, or that the name begins; each once, in the
           order of the text
    """

    name: str
    kind: int
    words: list[str]


class NameMatcher:
    """Finds concepts in texts by their names; immutable, any number of threads may share it.

    It follows Medelyan, Human-competitive automatic topic indexing (2009), and MLLM of Annif
    (Suominen, Inkinen and Lehtinen, Annif and Finto AI, 2022), and has similar features. What
    differs from MLLM: words of a name may be FAR_GAP words apart, and how near each other they
    stand is a feature, where MLLM requires one sentence. Positions are those of words, where MLLM
    takes sentences. How often a name stands inside a longer one, which MLLM calls ambiguity, and
    how many concepts share it are two features. Words in brackets behind a name are its qualifier,
    where MLLM takes them for words of the name. Document frequency is that of words, not of
    concepts.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], parameters: NameParameters) -> None:
        """Take the arrays that `build_names` returned, or those of a version.

        Raises Corrupt and BadParameter.
        """
        self.parameters = parameters
        self._reader = WordReader(parameters, arrays, STOPS)
        self.forms = self._reader.forms
        table = group_of(GROUP, names_in(arrays, WORDS))
        self._trie = take_group({**arrays, **table}, GROUP, NameTrie, **_SIZES)
        check_bounds(arrays, {}, GROUP)
        check_trie(self._trie)
        self._handle = handle_of(self._trie)
        self._seed = new_seed()
        self.n_concepts = len(self._trie.broader_ptr) - 1
        self.n_features = self.n_concepts * len(NAME_FEATURES)
        self._text_ptr = take(arrays, f"{GROUP}/text_ptr", "int64", (len(self._trie.concepts) + 1,))
        self._texts = take(arrays, f"{GROUP}/texts", "uint8", (int(self._text_ptr[-1]),))
        _check_texts(self._texts, self._text_ptr)

    def words(self, texts: Sequence[str]) -> Words:
        """Return the words of texts, as word features with the same parameters have them."""
        return self._reader.words(texts)

    def rows_of_words(self, words: Words) -> SparseRows:
        """Return a row for each text.

        Column c * F + f has feature f of concept c, where it is not 0.

        words  of the texts, made with the same parameters as those of this matcher
        """
        return SparseRows(*name_rows(*words, self._handle, self._seed), self.n_features)

    def explain(self, text: str, concept: int) -> list[MatchedName]:
        """Return the names of a concept that a text has, the one with most words first.

        The words of a name may be any distance apart here. If the text has no name of the concept,
        names that begin one of its words are returned.
        """
        word_texts = self._reader.unchanged(text)
        forms = self.words(word_texts)
        of_form: dict[str, list[int]] = {}
        form_texts = texts_between(forms.utf8, forms.start, forms.end)
        for i, (first, last) in enumerate(pairwise(forms.word_ptr.tolist())):
            for form in form_texts[first:last]:
                of_form.setdefault(form, []).append(i)
        matches = []
        prefix_matches = []
        trie = self._trie
        for name in np.flatnonzero(trie.concepts == concept).tolist():
            sequence = int(np.searchsorted(trie.name_ptr, name, side="right")) - 1
            first, last = trie.sequence_words_ptr[sequence : sequence + 2]
            ids = trie.sequence_words[first:last]
            words = texts_between(trie.utf8, trie.offsets[ids], trie.offsets[ids + 1])
            places = {place for word in words for place in of_form.get(word, ())}
            if all(word in of_form for word in words):
                matches.append(self._matched(name, places, word_texts))
            elif len(words) == 1:
                longer_forms = (form for form in of_form if form.startswith(words[0]))
                places = {place for form in longer_forms for place in of_form[form]}
                prefix_matches += [self._matched(name, places, word_texts)] if places else []
        return sorted(
            matches or prefix_matches, key=lambda match: (-len(match.words), match.kind, match.name)
        )

    def _matched(self, name: int, places: set[int], words: list[str]) -> MatchedName:
        used = list(dict.fromkeys(words[place] for place in sorted(places)))
        return MatchedName(
            self._texts[self._text_ptr[name] : self._text_ptr[name + 1]].tobytes().decode(),
            int(self._trie.kinds[name]),
            used,
        )


def _check_texts(texts: U8, text_ptr: I64) -> None:
    """Raise Corrupt unless each name texts[text_ptr[i]:text_ptr[i + 1]] is UTF-8.

    All names are decoded at once: the first byte of a name shows whether it begins within a
    character.
    """
    starts = text_ptr[text_ptr < len(texts)]
    is_cut = (texts[starts] & _CONTINUATION_MASK) == _CONTINUATION
    try:
        texts.tobytes().decode()
    except UnicodeDecodeError:
        is_cut = np.ones(1, bool)
    if is_cut.any():
        raise Corrupt(file_name(f"{GROUP}/texts"), "names in UTF-8", "other bytes")
