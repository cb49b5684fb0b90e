"""Split names of concepts into words, and build the arrays by which texts are searched for them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, inverse, offsets, ranges
from xylem.engine import WordNumbers, WordParameters, idf_of, texts_between
from xylem.vocabulary.concepts import Concepts
from xylem.vocabulary.trie import NAME_WORDS_MAX, NONE, Lists, build_trie
from xylem_store import I64, build_names as build_table, group_of

# The prefix of the names of all arrays of a matcher.
GROUP = "names"

WORDS = f"{GROUP}/words"
STOPS = f"{GROUP}/stops"


class NameParameters(WordParameters):
    """How names and texts are split into words, as for word features: stems, lemmas, stop words."""

    kind: ClassVar[str] = "names"


class WordFrequencies(NamedTuple):
    """The number of texts, out of n_texts, in which each word stands.

    words   forms of words, as `NameParameters` make them
    counts  int64, as many, at least 1
    """

    words: list[str]
    counts: I64
    n_texts: int


def count_words(texts: Sequence[str], parameters: NameParameters) -> WordFrequencies:
    """Return in how many of these texts each of their words stands. Raises as `fit_forms`."""
    numbers = WordNumbers(parameters)
    lists = numbers.read(texts)
    return WordFrequencies(numbers.words(), numbers.count(*lists), len(texts))


def kept_frequencies(arrays: Mapping[str, NDArray[Any]]) -> WordFrequencies:
    """Return the frequencies that the arrays of `build_names` keep, to build another vocabulary."""
    counts = arrays[f"{GROUP}/frequencies"].astype(np.int64)
    counted = np.flatnonzero(counts)
    word_offsets = arrays[f"{WORDS}/offsets"]
    words = texts_between(arrays[f"{WORDS}/utf8"], word_offsets[counted], word_offsets[counted + 1])
    return WordFrequencies(words, counts[counted], int(arrays[f"{GROUP}/n_texts"][0]))


_QUALIFIER = re.compile(r"\s*[(<]([^()<>]*)[)>]\s*$")


def build_names(
    concepts: Concepts, parameters: NameParameters, frequencies: WordFrequencies | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays that `NameMatcher` takes; their names begin with GROUP.

    frequencies  of words in texts like those that will be searched; None: those in the names are
                 used

    Words in brackets behind a name are not part of it, but are stored as its qualifier. Names
    without words, names of more than NAME_WORDS_MAX words and those that `build_trie` leaves out
    are left out. Raises BadData if no name is left. Cost: 10 s a million names, a minute where
    words are stemmed. Deterministic.
    """
    numbers = WordNumbers(parameters)
    divided = [_split_qualifier(text) for text in concepts.texts]
    names = Lists(*numbers.read([name for name, _ in divided]))
    brackets = Lists(*numbers.read([words for _, words in divided]))
    sizes = np.diff(names.ptr)
    is_usable = (sizes > 0) & (sizes <= NAME_WORDS_MAX)
    is_usable[np.repeat(np.arange(len(sizes)), sizes)[names.ids < 0]] = False
    usable = np.flatnonzero(is_usable)
    if not len(usable):
        raise BadData("vocabulary: expected names with a word of two characters, found none")
    texts_with = _text_counts(numbers, frequencies)
    names_with = numbers.count(names.ptr, names.ids)
    words = numbers.words()
    counts = names_with.tolist()
    by_names = sorted(range(len(words)), key=lambda i: (counts[i] == 0, counts[i], words[i]))
    new_ids = inverse(np.array(by_names, np.int64), len(words))
    words = [words[i] for i in by_names]
    sequences = np.full((len(usable), int(sizes[usable].max())), NONE, np.int32)
    rows = np.repeat(np.arange(len(usable)), sizes[usable])
    columns = ranges(np.zeros(len(usable), int), sizes[usable])
    sequences[rows, columns] = new_ids[_select_lists(names, usable).ids]
    is_qualified = np.array([bool(words) for _, words in divided], np.uint8)[usable]
    name_columns = sequences, concepts.owners[usable], concepts.kinds[usable], is_qualified
    arrays, order = build_trie(*name_columns, len(words))
    chosen = usable[order]
    brackets = _select_lists(brackets, chosen)
    texts = [concepts.texts[i].encode(errors="replace") for i in chosen.tolist()]
    by_old = np.argsort(new_ids)
    n_texts = 0 if frequencies is None else frequencies.n_texts
    counts = (texts_with if n_texts else names_with)[by_old]
    arrays |= {
        "idf": idf_of(counts, n_texts or len(sizes), True),
        "frequencies": texts_with[by_old].astype(np.int32),
        "n_texts": np.array([n_texts], np.int64),
        "qualifier_ptr": brackets.ptr,
        "qualifiers": new_ids[brackets.ids],
        "broader_ptr": concepts.broader.ptr,
        "broader": concepts.broader.ids,
        "related_ptr": concepts.related.ptr,
        "related": concepts.related.ids,
        "text_ptr": offsets(list(map(len, texts))),
        "texts": np.frombuffer(b"".join(texts), np.uint8),
    }
    return {
        **{f"{GROUP}/{name}": array for name, array in arrays.items()},
        **group_of(WORDS, build_table(words)),
        **(group_of(STOPS, numbers.stops) if numbers.stops.n_names else {}),
    }


def _split_qualifier(text: str) -> tuple[str, str]:
    """Return a name without the brackets behind it, and the text within these brackets."""
    match = _QUALIFIER.search(text)
    return (
        (text, "")
        if match is None or not text[: match.start()].strip()
        else (text[: match.start()], match[1])
    )


def _text_counts(numbers: WordNumbers, frequencies: WordFrequencies | None) -> I64:
    """Return in how many texts each word of a vocabulary stands.

    Words of the texts that the vocabulary lacks are added to it.
    """
    if frequencies is None:
        return np.zeros(numbers.n, np.int64)
    ids = numbers.add(frequencies.words)
    counts = np.zeros(numbers.n, np.int64)
    counts[ids] = frequencies.counts
    return counts


def _select_lists(lists: Lists, chosen: I64) -> Lists:
    """Return the chosen lists, without words that have no number."""
    sizes = np.diff(lists.ptr)[chosen]
    ids = lists.ids[ranges(lists.ptr[chosen], sizes)]
    return Lists(offsets(ids >= 0)[offsets(sizes)], ids[ids >= 0])
