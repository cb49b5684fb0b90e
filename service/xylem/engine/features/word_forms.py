"""Words as they count: without stop words, and each by its stem or lemma."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData
from xylem.engine.features.languages import lemmas_of, stemmer_of, stop_list
from xylem.engine.features.parameters import WordParameters
from xylem.engine.features.tables import take_names
from xylem.engine.features.words import Words, split_words, texts_between
from xylem_store import I64, U8, NameTable, all_names, build_names, group_of, kernel

_SPACE = 32

STOPS = "features/stops"
"""The group that holds the table of stop words."""

FORMS_MAX = 1 << 16  # so many words are remembered with their forms, those met last
WORD_BYTES_MAX = 100
"""A longer word is its own form: stemmers take time that grows with its square."""

STEM_ITEMS = 16
LEMMA_ITEMS = 64
"""How often a character counts whose word may have to be stemmed, or its
lemma found, against a feature id.

A word that nobody has met takes up to 15 us a character (Arabic, of two letters), its lemma up to
40 (Finnish and Russian, of twenty letters); in most languages 2 to 8.
"""


class WordForms:
    """What becomes of words; any number of threads may share it. Nothing becomes of stop words.

    stops    the stop words, as texts have them after `encoded`
    reform   returns the stem or lemma of a word; None: words stay as they are
    items_a_character  how often a character of a text counts where work is bounded by items
    """

    def __init__(
        self, stops: NameTable, reform: Callable[[str], str] | None, items_a_character: int = 1
    ) -> None:
        self.stops = stops
        self.items_a_character = items_a_character
        self._stops = frozenset(name.encode() for name in all_names(stops))
        self._reform = reform
        self._lock = threading.Lock()
        self._cached_form = functools.lru_cache(FORMS_MAX)(self._form)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stop words as a version stores them; no arrays where there are none."""
        return group_of(STOPS, self.stops) if self._stops else {}

    def of(self, words: Words) -> Words:
        """Return the forms of words; two that touched and both stay touch still."""
        data = words.utf8.tobytes()
        form_of = self._cached_form
        spellings = data.split(b" ")  # faster than slices, where a space stands between all words
        if len(spellings) != len(words.start):
            spans = zip(words.start.tolist(), words.end.tolist(), strict=True)
            spellings = [data[start:end] for start, end in spans]
        forms = [form_of(word) if len(word) <= WORD_BYTES_MAX else word for word in spellings]
        sizes = np.fromiter(map(len, forms), np.int64, len(forms))
        joined = np.frombuffer(b"".join(forms), np.uint8)
        return Words(*_replace_words(words.word_ptr, words.start, words.end, joined, sizes))

    def _form(self, word: bytes) -> bytes:
        if word in self._stops:
            return b""
        if self._reform is None:
            return word
        with self._lock:
            return self._reform(word.decode()).encode() or word


@kernel
def _replace_words(
    word_ptr: I64, start: I64, end: I64, joined: U8, sizes: I64
) -> tuple[U8, I64, I64, I64]:
    """Return the fields of Words of the forms, in place of words whose start and end are given.

    joined  uint8[..], the forms one after the other; sizes int64[m], their lengths: 0 of a word
            that goes
    """
    m = len(sizes)
    n = 0
    position = 0
    offset = 0
    utf8 = np.empty(len(joined) + m, np.uint8)
    ptr = np.zeros(len(word_ptr), np.int64)
    starts = np.empty(m, np.int64)
    ends = np.empty(m, np.int64)
    for text in range(len(word_ptr) - 1):
        for i in range(word_ptr[text], word_ptr[text + 1]):
            if sizes[i] == 0:
                continue
            touches = i > word_ptr[text] and sizes[i - 1] > 0 and start[i] == end[i - 1]
            if n > ptr[text] and not touches:
                utf8[position] = _SPACE
                position += 1
            starts[n] = position
            for k in range(sizes[i]):
                utf8[position + k] = joined[offset + k]
            position += sizes[i]
            offset += sizes[i]
            ends[n] = position
            n += 1
        ptr[text + 1] = n
    return utf8[:position], ptr, starts[:n], ends[:n]


def words_of(texts: Sequence[str], parameters: WordParameters, forms: WordForms | None) -> Words:
    """Return the words of texts, with their forms where there are any."""
    words = split_words(texts, parameters.reading)
    return words if forms is None else forms.of(words)


def fit_forms(parameters: WordParameters) -> WordForms | None:
    """Return what the parameters make of words, None where words stay as they are.

    Raises BadParameter where a library is not installed, BadData for a file that is no list of
    words.
    """
    if not _change_words(parameters):
        return None
    words: list[str] = []
    if parameters.stop_words is not None:
        listed = split_words(stop_list(parameters.stop_words), parameters.reading)
        short = listed.end - listed.start <= WORD_BYTES_MAX
        words = sorted(set(texts_between(listed.utf8, listed.start[short], listed.end[short])))
        if not words:
            raise BadData(f"{parameters.stop_words}: expected stop words, one a line, found none")
    return forms_of_list(parameters, words)


def forms_of_list(parameters: WordParameters, words: Sequence[str]) -> WordForms:
    """Return the forms of words without just these, as they are."""
    return WordForms(build_names(words), *_reform_of(parameters))


def load_forms(parameters: WordParameters, arrays: Mapping[str, NDArray[Any]]) -> WordForms | None:
    """Return what a version's parameters and arrays make of words.

    Raises Corrupt, and BadParameter where a library is not installed that the version needs.
    """
    if not _change_words(parameters):
        return None
    stops = build_names([]) if parameters.stop_words is None else take_names(arrays, STOPS)
    return WordForms(stops, *_reform_of(parameters))


def _change_words(parameters: WordParameters) -> bool:
    return (parameters.stem, parameters.lemmas, parameters.stop_words) != (None, None, None)


def _reform_of(parameters: WordParameters) -> tuple[Callable[[str], str] | None, int]:
    """Return what makes a stem or a lemma of a word, in lower case where
    texts are, and `items_a_character`.

    That is 1 where Python only looks words up among stop words.
    """
    if parameters.stem is not None:
        return stemmer_of(parameters.stem), STEM_ITEMS
    if parameters.lemmas is None:
        return None, 1
    lemma = lemmas_of(parameters.lemmas)
    return (lambda word: lemma(word).lower()) if parameters.lowercase else lemma, LEMMA_ITEMS
