"""Hashed features: rows whose feature ids are hashes of a text's n-grams, or of feature names."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from xylem.base import RowArrays, SparseRows, offsets
from xylem.engine.features.characters import classes
from xylem.engine.features.featurizer import TextFeaturizer, TextRows
from xylem.engine.features.parameters import HashingParameters
from xylem.engine.features.rows import NORM_CODES, finite_values, normalise_rows, tidied
from xylem.engine.features.word_forms import WordForms
from xylem.engine.features.words import (
    Words,
    lead_counts,
    ngram_spans,
    ngrams_a_word,
    pair_weights,
    split,
)
from xylem.engine.kernels.text.sort_and_sum import sort_and_sum_rows
from xylem_store import F32, I32, I64, U8, U8_1, Handle, handle, hash_bytes, kernel, struct_at


@handle
class HashTable(NamedTuple):
    """The fields that a kernel needs to make rows of hashed words.

    of_classes            the classes of characters
    ngram_min, ngram_max  the least and the most words of a feature
    bigrams               0 or 1: pairs of words have half the weight
    lead, lead_weight     the first words of a text, and how many times they count
    mask                  the number of features minus 1
    signed                0 or 1
    norm                  one of NORM_CODES
    """

    of_classes: U8_1
    ngram_min: int
    ngram_max: int
    bigrams: int
    lead: int
    lead_weight: int
    mask: int
    signed: int
    norm: int


class HashingFeaturizer(TextFeaturizer):
    """Makes rows of counts of n-grams, or of values by name; a feature's id is the low bits of
    `hash_bytes`.

    No vocabulary is fitted. Source: Weinberger et al. 2009, "Feature hashing for large scale
    multitask learning", equation 1.
    """

    takes = "text, named features or ids and values"
    parameters: HashingParameters

    def __init__(self, parameters: HashingParameters, forms: WordForms | None = None) -> None:
        super().__init__(parameters, parameters.n_features, forms)
        self.fitted = (forms,)
        ngram_min, ngram_max = parameters.ngram_range
        self.text_rows = TextRows(
            hashed_rows,
            HashTable(
                of_classes=classes(parameters.unicode),
                ngram_min=ngram_min,
                ngram_max=ngram_max,
                bigrams=parameters.bigrams,
                lead=parameters.lead,
                lead_weight=parameters.lead_weight,
                mask=self.n_features - 1,
                signed=parameters.signed,
                norm=NORM_CODES[parameters.norm],
            ),
            ngrams_a_word(ngram_min, ngram_max),
        )

    def transform_named(self, instances: Sequence[dict[str, float]]) -> SparseRows:
        """Return a row for each instance; values whose names share an id are summed."""
        values = finite_values(instances)

        # a lone surrogate becomes bytes of its own
        names = [name.encode(errors="surrogatepass") for name in chain.from_iterable(instances)]
        ptr = offsets(map(len, names))
        indices = np.empty(len(names), np.int32)
        signs = np.empty(len(names), np.float32)
        _hash(
            np.frombuffer(b"".join(names), np.uint8),
            ptr[:-1],
            ptr[1:],
            self.n_features - 1,
            self.parameters.signed,
            indices,
            signs,
        )
        return self.normalised(
            tidied(offsets(map(len, instances)), indices, values * signs, self.n_features)
        )

    def rows_of_words(self, texts: Sequence[str], words: Words) -> SparseRows:
        return SparseRows(*hashed_words(*words, self.text_rows.table), self.n_features)


@kernel
def hashed_rows(utf8: U8, text_ptr: I64, table_at: Handle) -> RowArrays:
    """Return texts as rows of the hashes of their n-grams: (indptr, indices, values).

    utf8, text_ptr  the texts, as `encoded` returns them
    table_at        the handle of a HashTable
    """
    words, word_ptr, start, end = split(utf8, text_ptr, struct_at(HashTable, table_at).of_classes)
    return hashed_words(words, word_ptr, start, end, table_at)


@kernel
def hashed_words(words: U8, word_ptr: I64, start: I64, end: I64, table_at: Handle) -> RowArrays:
    """Do as `hashed_rows`, for words as `split` returns them."""
    table = struct_at(HashTable, table_at)
    indptr, starts, ends = ngram_spans(word_ptr, start, end, table.ngram_min, table.ngram_max)
    indices = np.empty(len(starts), np.int32)
    values = np.empty(len(starts), np.float32)
    _hash(words, starts, ends, table.mask, table.signed, indices, values)
    if table.lead:
        values *= lead_counts(word_ptr, end, indptr, ends, table.lead, table.lead_weight)
    if table.bigrams:
        values *= pair_weights(words, starts, ends)
    n, _ = sort_and_sum_rows(indptr, indices, values)
    normalise_rows(indptr, values, table.norm)
    return indptr, indices[:n], values[:n]


@kernel
def _hash(
    utf8: U8, start: I64, end: I64, mask: int, signed: int, indices_out: I32, values_out: F32
) -> None:
    """Write the feature id of each name, the low bits of its hash, and the sign of its value.

    mask    the number of features minus 1
    signed  0: all signs are 1
    """
    for i in range(len(start)):
        h = hash_bytes(utf8, start[i], end[i])
        indices_out[i] = np.int64(h & np.uint64(mask))
        values_out[i] = (
            np.float32(-1.0) if signed != 0 and (h >> np.uint64(63)) else np.float32(1.0)
        )
