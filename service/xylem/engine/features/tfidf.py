"""Tf-idf rows of the words of texts, as scikit-learn makes them; the fitted state is arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, BadParameter, Crew, RowArrays, SparseRows, inverse, offsets
from xylem.engine.features.characters import WeighedBlock, classes, in_weighed_blocks
from xylem.engine.features.featurizer import TextFeaturizer, TextRows
from xylem.engine.features.ngram_counts import NgramCounts, NgramSums, counts_of, rows_of_bound
from xylem.engine.features.parameters import TfidfParameters
from xylem.engine.features.rows import NORM_CODES, tidied, weigh_counts, weighted_rows
from xylem.engine.features.tables import NAMES, take_feature_names, take_idf
from xylem.engine.features.word_forms import WordForms, fit_forms, load_forms, words_of
from xylem.engine.features.words import (
    NgramSpans,
    Words,
    lead_counts,
    ngram_spans,
    ngrams_a_word,
    pair_weights,
    split,
)
from xylem.engine.kernels.text.sort_and_sum import sort_and_sum_rows
from xylem_store import (
    F32,
    F32_1,
    I32,
    I32_1,
    I64,
    I64_1,
    U8,
    U8_1,
    Handle,
    NameTable,
    group_of,
    handle,
    id_of,
    kernel,
    struct_at,
)

# The name of the array of the words' weights.
IDF = "features/idf"


@handle
class WordTable(NamedTuple):
    """The fields that a kernel needs to make weighted rows of words.

    offsets, utf8, slots  of the vocabulary, a NameTable
    weights               the weights of the vocabulary, or [0]
    of_classes            the classes of characters
    ngram_min, ngram_max  the least and the most words of a feature
    lead, lead_weight     the first words of a text, and how many times they count
    sublinear_tf          0 or 1
    norm                  one of NORM_CODES
    """

    offsets: I64_1
    utf8: U8_1
    slots: I32_1
    weights: F32_1
    of_classes: U8_1
    ngram_min: int
    ngram_max: int
    lead: int
    lead_weight: int
    sublinear_tf: int
    norm: int


def word_table(names: NameTable, idf: F32, parameters: TfidfParameters) -> WordTable:
    """Return the WordTable of a vocabulary and its idf, which is empty if all are 1."""
    ngram_min, ngram_max = parameters.ngram_range
    return WordTable(
        *names,
        weights=_weights_of(names, idf, parameters),
        of_classes=classes(parameters.unicode),
        ngram_min=ngram_min,
        ngram_max=ngram_max,
        lead=parameters.lead,
        lead_weight=parameters.lead_weight,
        sublinear_tf=parameters.sublinear_tf,
        norm=NORM_CODES[parameters.norm],
    )


def _weights_of(names: NameTable, idf: F32, parameters: TfidfParameters) -> F32:
    """Return the weights of a vocabulary: the idf, half of it for pairs with `bigrams`."""
    if not parameters.bigrams:
        return idf
    weights = pair_weights(names.utf8, names.offsets[:-1], names.offsets[1:])
    return weights * idf if len(idf) else weights


class TfidfFeaturizer(TextFeaturizer):
    """Makes weighted rows of the words and n-grams of a fitted vocabulary.

    Feature ids number the n-grams in the order of their bytes.
    """

    takes = "text or ids and values"
    parameters: TfidfParameters

    def __init__(
        self,
        parameters: TfidfParameters,
        names: NameTable,
        idf: F32,
        forms: WordForms | None = None,
    ) -> None:
        super().__init__(parameters, names.n_names, forms)
        self.fitted = names, idf, forms
        self.names = names
        self.idf = idf
        self.text_rows = TextRows(
            word_rows, word_table(names, idf, parameters), ngrams_a_word(*parameters.ngram_range)
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        stored = group_of(NAMES, self.names) | super().arrays()
        return stored | {IDF: self.idf} if self.parameters.use_idf else stored

    def rows_of_words(self, texts: Sequence[str], words: Words) -> SparseRows:
        return SparseRows(*rows_of_words(*words, self.text_rows.table), self.n_features)


@kernel
def word_rows(utf8: U8, text_ptr: I64, table_at: Handle) -> RowArrays:
    """Return the words of texts as weighted rows: (indptr, indices, values).

    utf8, text_ptr  the texts, as `encoded` returns them
    table_at        the handle of a WordTable
    """
    words, word_ptr, start, end = split(utf8, text_ptr, struct_at(WordTable, table_at).of_classes)
    return rows_of_words(words, word_ptr, start, end, table_at)


@kernel
def rows_of_words(words: U8, word_ptr: I64, start: I64, end: I64, table_at: Handle) -> RowArrays:
    """Do as `word_rows`, for words as `split` returns them."""
    table = struct_at(WordTable, table_at)
    spans = ngram_spans(word_ptr, start, end, table.ngram_min, table.ngram_max)
    counts = lead_counts(word_ptr, end, spans[0], spans[2], table.lead, table.lead_weight)
    indptr, indices, values = _look_up(
        table.offsets, table.utf8, table.slots, words, spans[0], spans[1], spans[2], counts
    )
    n, _ = sort_and_sum_rows(indptr, indices, values)
    return weighted_rows(
        (indptr, indices[:n], values[:n]), table.weights, table.sublinear_tf, table.norm
    )


@kernel
def _look_up(
    offsets: I64,
    names: U8,
    slots: I32,
    utf8: U8,
    row_ptr: I64,
    start: I64,
    end: I64,
    counts: F32,
) -> RowArrays:
    """Return (indptr, ids, counts) of the spans that are names of the vocabulary.

    `counts` is overwritten.
    """
    indptr = np.zeros(len(row_ptr), np.int64)
    ids = np.empty(len(start), np.int32)
    n = 0
    for row in range(len(row_ptr) - 1):
        for i in range(row_ptr[row], row_ptr[row + 1]):
            name = id_of(offsets, names, slots, utf8, start[i], end[i])
            if name >= 0:
                ids[n] = name
                counts[n] = counts[i]
                n += 1
        indptr[row + 1] = n
    return indptr, ids[:n], counts[:n]


@dataclass(frozen=True)
class _CountWords:
    """A step of a crew that counts the n-grams of blocks of texts.

    stops  the arrays of the stop words, as a version stores them
    """

    parameters: TfidfParameters
    stops: dict[str, NDArray[Any]]

    def workspace(self) -> WordForms | None:
        """Return the forms of words, None if words are not changed."""
        return load_forms(self.parameters, self.stops)

    def run(
        self, block: WeighedBlock, forms: WordForms | None, stop: U8
    ) -> tuple[NgramCounts, SparseRows]:
        """Return the n-grams of a block of texts, and the texts as rows of counts.

        The feature ids of the rows are the numbers of the n-grams.
        """
        chosen = self.parameters
        texts, weights = block
        words = words_of(texts, chosen, forms)
        spans = NgramSpans(*ngram_spans(*words[1:], *chosen.ngram_range))
        ngrams, ids = counts_of(words.utf8, spans, weights)
        counts = lead_counts(
            words.word_ptr, words.end, spans.row_ptr, spans.end, chosen.lead, chosen.lead_weight
        )
        has_id = ids >= 0
        return ngrams, tidied(
            offsets(has_id)[spans.row_ptr], ids[has_id], counts[has_id], len(ngrams.totals)
        )


def fit_tfidf(
    texts: Sequence[str],
    parameters: TfidfParameters,
    crew: Crew | None = None,
    weights: F32 | None = None,
) -> tuple[TfidfFeaturizer, SparseRows]:
    """Return a featurizer that is fitted to these texts, and their rows.

    crew     the workers that count words, block by block; None: this thread does it
    weights  of the texts: one of weight k counts as k texts; None: all are 1

    Source: scikit-learn's TfidfVectorizer. Deviations: an n-gram longer than NAME_BYTES_MAX bytes
    is no feature; of two n-grams that are equally frequent, max_features keeps the one that is
    smaller by bytes; weights are float32. Raises BadData if no text has a word, BadParameter if
    min_df and max_df leave no n-gram. Cost: one pass over the texts and a sort of the vocabulary;
    memory: the counts and the vocabulary. Deterministic.
    """
    forms = fit_forms(parameters)
    sums = NgramSums(len(texts), weights)
    parts = list[SparseRows]()
    step = _CountWords(parameters, forms.arrays() if forms else {})
    for ngrams, counts in (crew or Crew(1)).mapped(step, in_weighed_blocks(texts, weights)):
        parts.append(counts._replace(indices=sums.add(ngrams)[counts.indices]))
    if not sums.vocabulary.n:
        raise BadData("expected texts with a word of two characters, found none")
    low, high = (
        rows_of_bound(bound, sums.n_texts) for bound in (parameters.min_df, parameters.max_df)
    )
    is_common = sums.reach(parameters.min_df) & (sums.frequency <= high)
    if not is_common.any():
        raise BadParameter(
            f"features.min_df, features.max_df: expected bounds with an n-gram in {low:g} to "
            f"{high:g} of the "
            f"{sums.n_texts:g} texts, found none"
        )
    names, idf, old_ids = sums.choose(is_common, parameters.max_features, parameters)
    featurizer = TfidfFeaturizer(parameters, names, idf, forms)
    counted = SparseRows.join(parts)
    # old_ids[i] is the id that feature i had in `sums`; -1 stands for n-grams that are not chosen
    ids = inverse(old_ids, sums.vocabulary.n)[counted.indices]
    has_id = ids >= 0
    rows = tidied(
        offsets(has_id)[counted.indptr], ids[has_id], counted.values[has_id], len(old_ids)
    )
    weights = _weights_of(names, idf, parameters)
    weigh_counts(rows.indices, rows.values, weights, int(parameters.sublinear_tf))
    return featurizer, featurizer.normalised(rows)


def load_tfidf(
    parameters: TfidfParameters, arrays: Mapping[str, NDArray[Any]], n_features: int
) -> TfidfFeaturizer:
    """Return the featurizer of a version's arrays. Raises Corrupt."""
    names = take_feature_names(arrays, n_features)
    return TfidfFeaturizer(
        parameters,
        names,
        take_idf(arrays, IDF, n_features, parameters.use_idf),
        load_forms(parameters, arrays),
    )
