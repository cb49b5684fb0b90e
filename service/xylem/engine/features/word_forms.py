"""The forms of words: stop words are removed, the others replaced by their stems or lemmas.

Also the numbers of words in these forms.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, Growing, offsets
from xylem.engine.features.characters import in_blocks
from xylem.engine.features.languages import lemmas_of, stemmer_of, stop_list
from xylem.engine.features.ngram_counts import Vocabulary, count_ids
from xylem.engine.features.parameters import WordParameters
from xylem.engine.features.words import BLANK, Words, split_words, texts_between
from xylem_store import I32, I64, U8, NameTable, all_names, build_names, group_of, kernel, names_in

# The group of arrays that holds the table of stop words.
STOPS = "features/stops"

FORMS_MAX = 1 << 16  # the most words whose forms are cached; the least recently used are dropped
# A longer word is its own form, because the time of stemmers grows with the square of its length.
WORD_BYTES_MAX = 100

# How many items (feature ids) a character counts as, if its word may have to be stemmed, or
# its lemma looked up.
#
# To stem a word that is not cached takes up to 15 us a character (Arabic, words of two letters), to
# find its lemma up to 40 us (Finnish and Russian, words of twenty letters); in most languages 2 to
# 8.
STEM_ITEMS = 16
LEMMA_ITEMS = 64


class WordForms:
    """Replaces words by their forms, and removes stop words. Any number of threads may share it.

    stops              the stop words, normalised as `encoded` normalises texts
    reform             returns the stem or lemma of a word; None: words are not changed
    items_a_character  how many items a character of a text counts as, where work is bounded by a
                       number of items
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
        """Return the arrays of the stop words as a version stores them, none without stop words."""
        return group_of(STOPS, self.stops) if self._stops else {}

    def forms_of(self, words: Words) -> Words:
        """Return the forms of words; two words that touch still touch, if neither is removed."""
        data = words.utf8.tobytes()
        form_of = self._cached_form
        spellings = data.split(b" ")  # faster than slices, if there is a space between all words
        if len(spellings) != len(words.start):
            spellings = [
                data[start:end]
                for start, end in zip(words.start.tolist(), words.end.tolist(), strict=True)
            ]
        forms = [form_of(word) if len(word) <= WORD_BYTES_MAX else word for word in spellings]
        sizes = np.fromiter(map(len, forms), np.int64, len(forms))
        return Words(
            *_replace_words(
                words.word_ptr,
                words.start,
                words.end,
                np.frombuffer(b"".join(forms), np.uint8),
                sizes,
            )
        )

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
    """Return the fields of Words for the forms of words.

    word_ptr, start, end  the fields of the words that the forms replace
    joined                uint8[..]: the forms, one after the other
    sizes                 int64[m]: their lengths, 0 for a word that is removed
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
                utf8[position] = BLANK
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
    """Return the words of texts, in their forms unless `forms` is None."""
    words = split_words(texts, parameters.reading)
    return words if forms is None else forms.forms_of(words)


def fit_forms(parameters: WordParameters) -> WordForms | None:
    """Return the forms of words that the parameters ask for, None if words are not changed.

    Raises BadParameter if a library is not installed, BadData for a file that is no list of words.
    """
    if not _change_words(parameters):
        return None
    words: list[str] = []
    if parameters.stop_words is not None:
        listed = split_words(stop_list(parameters.stop_words), parameters.reading)
        is_short = listed.end - listed.start <= WORD_BYTES_MAX
        words = sorted(
            set(texts_between(listed.utf8, listed.start[is_short], listed.end[is_short]))
        )
        if not words:
            raise BadData(f"{parameters.stop_words}: expected stop words, one a line, found none")
    return forms_of_list(parameters, words)


def forms_of_list(parameters: WordParameters, words: Sequence[str]) -> WordForms:
    """Return the forms of words, with exactly these stop words, which are normalised already."""
    return WordForms(build_names(words), *_reform_of(parameters))


def load_forms(
    parameters: WordParameters, arrays: Mapping[str, NDArray[Any]], stop_words: str = STOPS
) -> WordForms | None:
    """Return the forms of words of a version's parameters and arrays, None if words do not change.

    stop_words  the prefix of the arrays of the stop words

    Raises Corrupt, and BadParameter if a library that the version needs is not installed.
    """
    if not _change_words(parameters):
        return None
    return WordForms(
        build_names([]) if parameters.stop_words is None else names_in(arrays, stop_words),
        *_reform_of(parameters),
    )


class WordReader:
    """Finds the words of texts as a version's parameters and arrays say.

    forms  makes stems or lemmas of words, and leaves out stop words; None: words are not changed

    It takes what `load_forms` takes, and raises as it does.
    """

    def __init__(
        self, parameters: WordParameters, arrays: Mapping[str, NDArray[Any]], stop_words: str
    ) -> None:

        self.parameters = parameters
        self.forms = load_forms(parameters, arrays, stop_words)

    def words(self, texts: Sequence[str]) -> Words:
        """Return the words of texts in their forms."""
        return words_of(texts, self.parameters, self.forms)

    def unchanged(self, text: str) -> list[str]:
        """Return all words of a text as they stand in it."""
        words = split_words([text], self.parameters.reading)
        return texts_between(words.utf8, words.start, words.end)


def _change_words(parameters: WordParameters) -> bool:
    return (parameters.stem, parameters.lemmas, parameters.stop_words) != (None, None, None)


def _reform_of(parameters: WordParameters) -> tuple[Callable[[str], str] | None, int]:
    """Return (the function that makes the stem or lemma of a word, `items_a_character`).

    Lemmas are in lower case if texts are. If there are only stop words, the function is None, and a
    character counts as 1 item.
    """
    if parameters.stem is not None:
        return stemmer_of(parameters.stem), STEM_ITEMS
    if parameters.lemmas is None:
        return None, 1
    lemma = lemmas_of(parameters.lemmas)
    return (lambda word: lemma(word).lower()) if parameters.lowercase else lemma, LEMMA_ITEMS


class WordNumbers:
    """Numbers the words of texts in the order of their first appearance.

    stops  the stop words, which have no numbers

    Raises as `fit_forms`.
    """

    def __init__(self, parameters: WordParameters) -> None:
        self._parameters = parameters
        self._forms = fit_forms(parameters)
        self._vocabulary = Vocabulary()
        self.stops: NameTable = build_names([]) if self._forms is None else self._forms.stops

    @property
    def n(self) -> int:
        """The number of words so far."""
        return self._vocabulary.n

    def read(self, texts: Sequence[str]) -> tuple[I64, I32]:
        """Return (ptr, ids): text i has the words ids[ptr[i] : ptr[i + 1]]; new words are added.

        A word that is too long to have a number is -1.
        """
        ids = Growing(np.int32)
        sizes = Growing(np.int64)
        for block in in_blocks(texts):
            words = words_of(block, self._parameters, self._forms)
            ids.extend(self._vocabulary.add(words.utf8, words.start, words.end))
            sizes.extend(np.diff(words.word_ptr))
        return offsets(sizes.finish()), ids.finish()

    def add(self, words: Sequence[str]) -> I32:
        """Return the numbers of words in their forms; new words are added."""
        encoded = [word.encode() for word in words]
        ends = offsets(list(map(len, encoded)))
        return self._vocabulary.add(np.frombuffer(b"".join(encoded), np.uint8), ends[:-1], ends[1:])

    def count(self, ptr: I64, ids: I32) -> I64:
        """Return in how many texts each word so far stands; `ptr` and `ids` as `read` has them."""
        return count_ids(ids, ptr, self.n)[0]

    def words(self) -> list[str]:
        """Return the words so far, in the order of their numbers."""
        return self._vocabulary.names(np.arange(self.n))
