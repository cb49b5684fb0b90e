"""Tf-idf rows of the character n-grams of texts, alone or together with words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, BadParameter, Calls, Crew, RowArrays, SparseRows
from xylem.engine.features.char_ngrams import (
    char_counts,
    char_spans,
    ngrams_a_character,
    pad_words,
    short_names,
)
from xylem.engine.features.characters import (
    WeighedBlock,
    classes,
    encoded,
    in_weighed_blocks,
)
from xylem.engine.features.featurizer import TextFeaturizer, TextRows
from xylem.engine.features.ngram_counts import NgramCounts, NgramSums, counts_of, rows_of_bound
from xylem.engine.features.parameters import CharsParameters, WordsCharsParameters
from xylem.engine.features.rows import NORM_CODES, normalise_rows, weighted_rows
from xylem.engine.features.tables import CHARS, NAMES, take_idf
from xylem.engine.features.tfidf import IDF, fit_tfidf, rows_of_words, word_rows, word_table
from xylem.engine.features.word_forms import WordForms, load_forms
from xylem.engine.features.words import NgramSpans, Words, ngrams_a_word
from xylem_store import (
    F32,
    F32_1,
    I64,
    I64_1,
    U8,
    U8_1,
    U64_2,
    Corrupt,
    Handle,
    NameTable,
    group_of,
    handle,
    kernel,
    names_in,
    new_seed,
    struct_at,
)

CHAR_IDF = "features/char_idf"  # the name of the array of weights of n-grams of characters
# The most characters of a block whose n-grams are counted at once; one text may have more.
FIT_CHARACTERS = 1 << 18


@handle
class CharTable(NamedTuple):
    """The fields that a kernel needs to make weighted rows of n-grams of characters.

    offsets, utf8      of the vocabulary, a NameTable
    short, seed        the table that `short_names` made of it, and the seed
    idf                the weights of the vocabulary, or [0]
    of_classes         the classes of characters
    shortest, longest  the least and the most characters of a feature
    lead, lead_weight  the first words of a text, and how many times their n-grams count
    sublinear_tf       0 or 1
    norm               one of NORM_CODES
    """

    offsets: I64_1
    utf8: U8_1
    short: U64_2
    seed: int
    idf: F32_1
    of_classes: U8_1
    shortest: int
    longest: int
    lead: int
    lead_weight: int
    sublinear_tf: int
    norm: int


@handle
class TextTable(NamedTuple):
    """The fields that a kernel needs to make rows of words, then n-grams of characters.

    words, chars  handles of a WordTable and of a CharTable
    scales        float32[2]  the factors of the values of words and of characters
    n_words       the number of features that are words
    norm          one of NORM_CODES
    """

    words: Handle
    chars: Handle
    scales: F32_1
    n_words: int
    norm: int


class WeightedNames(NamedTuple):
    """A vocabulary, and the weight of each of its names; empty weights stand for ones."""

    names: NameTable
    idf: F32


class CharsFeaturizer(TextFeaturizer):
    """Makes weighted rows of the character n-grams of a fitted vocabulary, and maybe of words.

    Feature ids number first the words, if there are any, then the n-grams, each in the order of
    their bytes.
    """

    takes = "text or ids and values"
    parameters: CharsParameters | WordsCharsParameters

    def __init__(
        self,
        parameters: CharsParameters | WordsCharsParameters,
        chars: WeightedNames,
        words: WeightedNames | None = None,
        forms: WordForms | None = None,
    ) -> None:
        n_words = 0 if words is None else words.names.n_names
        super().__init__(parameters, n_words + chars.names.n_names, forms)
        self.fitted = chars, words, forms
        self.words = words
        self.chars = chars
        seed = new_seed()
        table = CharTable(
            offsets=chars.names.offsets,
            utf8=chars.names.utf8,
            short=short_names(chars.names, seed),
            seed=seed,
            idf=chars.idf,
            of_classes=classes(parameters.unicode),
            shortest=parameters.char_min,
            longest=parameters.char_max,
            lead=parameters.lead,
            lead_weight=parameters.lead_weight,
            sublinear_tf=parameters.sublinear_tf,
            norm=NORM_CODES[parameters.norm],
        )
        per_character = ngrams_a_character(parameters.char_min, parameters.char_max)
        self.text_rows = self._chars = TextRows(char_rows, table, per_character)
        if isinstance(parameters, WordsCharsParameters) and words is not None:
            features = ngrams_a_word(*parameters.ngram_range)
            self._words = TextRows(
                word_rows, word_table(words.names, words.idf, parameters), features
            )
            share = parameters.char_share
            by_norm = {
                "none": (1.0, 1.0),
                "l1": (1.0 - share, share),
                "l2": np.sqrt((1.0 - share, share)),
            }
            self.text_rows = TextRows(
                text_rows,
                TextTable(
                    self._words.table,
                    self._chars.table,
                    np.array(by_norm[parameters.norm], np.float32),
                    n_words,
                    NORM_CODES[parameters.norm],
                ),
                features + per_character,
            )

    def arrays(self) -> dict[str, NDArray[Any]]:
        stored = group_of(CHARS, self.chars.names)
        weights = {CHAR_IDF: self.chars.idf}
        if self.words is not None:
            stored |= group_of(NAMES, self.words.names)
            weights[IDF] = self.words.idf
        stored |= super().arrays()
        return stored | weights if self.parameters.use_idf else stored

    def rows_of_words(self, texts: Sequence[str], words: Words) -> SparseRows:
        """Return rows of these words, and of the n-grams of the texts' own characters."""
        utf8, text_ptr = encoded(texts, self.parameters.reading)
        rows = side_by_side(
            rows_of_words(*words, self._words.table),
            char_rows(utf8, text_ptr, self._chars.table),
            self.text_rows.table,
        )
        return SparseRows(*rows, self.n_features)


@kernel
def text_rows(utf8: U8, text_ptr: I64, table_at: Handle) -> RowArrays:
    """Return texts as weighted rows of words, then of n-grams: (indptr, indices, values).

    Words and characters are each normalised alone and multiplied by their factor in `scales`; then
    the whole row is normalised. Linear in the bytes of the texts.

    utf8, text_ptr  the texts, as `encoded` returns them
    table_at        the handle of a TextTable
    """
    table = struct_at(TextTable, table_at)
    words = word_rows(utf8, text_ptr, table.words)
    return side_by_side(words, char_rows(utf8, text_ptr, table.chars), table_at)


@kernel
def char_rows(utf8: U8, text_ptr: I64, table_at: Handle) -> RowArrays:
    """Return the n-grams of characters of texts as weighted rows: (indptr, indices, values).

    utf8, text_ptr  the texts, as `encoded` returns them
    table_at        the handle of a CharTable
    """
    table = struct_at(CharTable, table_at)
    padded, ptr = pad_words(utf8, text_ptr, table.of_classes)
    lengths = table.shortest, table.longest
    leads = table.lead, table.lead_weight
    counts = char_counts(
        table.offsets, table.utf8, table.short, table.seed, padded, ptr, lengths, leads
    )
    return weighted_rows(counts, table.idf, table.sublinear_tf, table.norm)


@kernel
def side_by_side(words: RowArrays, chars: RowArrays, table_at: Handle) -> RowArrays:
    """Join the rows of words and the rows of characters of the same texts, as in `text_rows`.

    table_at  the handle of a TextTable
    """
    table = struct_at(TextTable, table_at)
    word_ptr, word_ids, word_values = words
    char_ptr, char_ids, char_values = chars
    word_scale = table.scales[0]
    char_scale = table.scales[1]
    n_words = table.n_words
    indptr = word_ptr + char_ptr
    indices = np.empty(len(word_ids) + len(char_ids), np.int32)
    values = np.empty(len(indices), np.float32)
    n_values = 0
    for row in range(len(indptr) - 1):
        for i in range(word_ptr[row], word_ptr[row + 1]):
            indices[n_values] = word_ids[i]
            values[n_values] = word_values[i] * word_scale
            n_values += 1
        for i in range(char_ptr[row], char_ptr[row + 1]):
            indices[n_values] = n_words + char_ids[i]
            values[n_values] = char_values[i] * char_scale
            n_values += 1
    normalise_rows(indptr, values, table.norm)
    return indptr, indices, values


def _count_chars(
    block: WeighedBlock, chosen: CharsParameters | WordsCharsParameters
) -> NgramCounts:
    texts, weights = block
    utf8, text_ptr = encoded(texts, chosen.reading)
    padded, ptr = pad_words(utf8, text_ptr, classes(chosen.unicode))
    return counts_of(
        padded, NgramSpans(*char_spans(padded, ptr, chosen.char_min, chosen.char_max)), weights
    )[0]


def fit_chars(
    texts: Sequence[str],
    parameters: CharsParameters | WordsCharsParameters,
    crew: Crew | None = None,
    weights: F32 | None = None,
) -> CharsFeaturizer:
    """Return a featurizer that is fitted to these texts.

    crew     the workers that count n-grams, block by block; None: this thread does it
    weights  of the texts: one of weight k counts as k texts; None: all are 1

    Source: scikit-learn's TfidfVectorizer(analyzer="char_wb"); for words see `fit_tfidf`.
    Deviations: those of `fit_tfidf` and of `char_ngrams`. Raises BadData if no text has a word,
    BadParameter if the bounds leave no word or no n-gram of characters. Cost: one pass over the
    texts, two with words, and a sort of the vocabulary. Memory: all distinct n-grams of the texts,
    also those that are not chosen. Deterministic.
    """
    words = None
    forms = None
    sums = NgramSums(len(texts), weights)
    if isinstance(parameters, WordsCharsParameters):
        fitted, _ = fit_tfidf(texts, parameters, crew, weights)
        words = WeightedNames(fitted.names, fitted.idf)
        forms = fitted.forms
    for counts in (crew or Crew(1)).mapped(
        Calls(_count_chars, (parameters,)), in_weighed_blocks(texts, weights, FIT_CHARACTERS)
    ):
        sums.add(counts)
    if not sums.vocabulary.n:
        raise BadData("expected texts with a character that is no blank, found none")
    least = rows_of_bound(parameters.char_min_df, sums.n_texts)
    is_frequent = sums.reach(parameters.char_min_df)
    if not is_frequent.any():
        raise BadParameter(
            f"features.char_min_df: expected a bound with an n-gram in {least:g} of the "
            f"{sums.n_texts:g} texts "
            "or more, found none"
        )
    names, idf, _ = sums.choose(is_frequent, parameters.char_max_features, parameters)
    return CharsFeaturizer(parameters, WeightedNames(names, idf), words, forms)


def load_chars(
    parameters: CharsParameters | WordsCharsParameters,
    arrays: Mapping[str, NDArray[Any]],
    n_features: int,
) -> CharsFeaturizer:
    """Return the featurizer of a version's arrays. Raises Corrupt."""
    chars = names_in(arrays, CHARS)
    words = None
    forms = None
    n_names = chars.n_names
    if isinstance(parameters, WordsCharsParameters):
        names = names_in(arrays, NAMES)
        forms = load_forms(parameters, arrays)
        words = WeightedNames(names, take_idf(arrays, IDF, names.n_names, parameters.use_idf))
        n_names += names.n_names
    if n_names != n_features:
        raise Corrupt(CHARS, f"{n_features} names in all", str(n_names))
    return CharsFeaturizer(
        parameters,
        WeightedNames(chars, take_idf(arrays, CHAR_IDF, chars.n_names, parameters.use_idf)),
        words,
        forms,
    )
