"""Names and texts to words, and words of names to numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import I64
from service.base.rows import Growing, offsets
from service.features.characters import in_blocks
from service.features.ngram_counts import count_ids
from service.features.parameters import WordParameters
from service.features.vocabulary import Vocabulary
from service.features.word_forms import WordForms, fit_forms, words_of
from service.features.words import texts_between
from service.vocabulary.trie import Lists

GROUP = "names"
"""What the names of the arrays begin with."""

WORDS, STOPS = f"{GROUP}/words", f"{GROUP}/stops"


class NameParameters(WordParameters):
    """How names and texts become words, as features of words do: stems, lemmas and stop words by language."""

    kind: ClassVar[str] = "names"


class WordFrequencies(NamedTuple):
    """In how many of n_texts texts each word stands.

    words   forms of words, as `NameParameters` make them
    counts  int64, as many, at least 1
    """

    words: list[str]
    counts: I64
    n_texts: int


def numbered(
    texts: Sequence[str], parameters: NameParameters, forms: WordForms | None, vocabulary: Vocabulary
) -> Lists:
    """Return the words of texts as numbers of a vocabulary, to which new ones are added.

    -1: a word too long to have a number.
    """
    ids, sizes = Growing(np.int32), Growing(np.int64)
    for block in in_blocks(texts):
        words = words_of(block, parameters, forms)
        ids.extend(vocabulary.add(words.utf8, words.start, words.end))
        sizes.extend(np.diff(words.word_ptr))
    return Lists(offsets(sizes.finish()), ids.finish())


def count_words(texts: Sequence[str], parameters: NameParameters) -> WordFrequencies:
    """Return in how many of these texts each of their words stands. Raises as `fit_forms`."""
    vocabulary = Vocabulary()
    lists = numbered(texts, parameters, fit_forms(parameters), vocabulary)
    counts, _ = count_ids(lists.ids, lists.ptr, vocabulary.n)
    return WordFrequencies(vocabulary.names(np.arange(vocabulary.n)), counts, len(texts))


def kept_frequencies(arrays: Mapping[str, NDArray[Any]]) -> WordFrequencies:
    """Return the frequencies that the arrays of `build_names` keep: for another vocabulary."""
    counts = arrays[f"{GROUP}/frequencies"].astype(np.int64)
    kept, at = np.flatnonzero(counts), arrays[f"{WORDS}/offsets"]
    words = texts_between(arrays[f"{WORDS}/utf8"], at[kept], at[kept + 1])
    return WordFrequencies(words, counts[kept], int(arrays[f"{GROUP}/n_texts"][0]))
