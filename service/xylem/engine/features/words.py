"""Split texts into words, and find the spans of word n-grams."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xylem.engine.features.characters import (
    MARK,
    UNSPACED,
    WORD,
    TextReading,
    classes,
    code_at,
    encoded,
    size_at,
)
from xylem_store import F32, I64, U8, kernel, nonallocating_inlined

BLANK = 32
# the least characters of a word, except that a character of a script without blanks is a word
_SHORTEST = 2


class Words(NamedTuple):
    """The words of texts: text i has the words word_ptr[i] .. word_ptr[i + 1] - 1, and word j is
    utf8[start[j]:end[j]].

    There is a space between two words of a text. Two words that touch in a script without blanks
    have nothing between them.

    utf8      uint8[..]
    word_ptr  int64[n + 1]
    start     int64[m]
    end       int64[m]
    """

    utf8: U8
    word_ptr: I64
    start: I64
    end: I64


class NgramSpans(NamedTuple):
    """The n-grams of texts: text i has utf8[start[j]:end[j]] for row_ptr[i] <= j < row_ptr[i + 1].

    row_ptr  int64[n + 1]
    start    int64[m]
    end      int64[m]
    """

    row_ptr: I64
    start: I64
    end: I64


def texts_between(utf8: U8, start: I64, end: I64) -> list[str]:
    """Return the texts utf8[start[i]:end[i]]."""
    data = utf8.tobytes()
    return [data[i:j].decode() for i, j in zip(start.tolist(), end.tolist(), strict=True)]


def split_words(texts: Sequence[str], reading: TextReading) -> Words:
    r"""Return the words of texts as scikit-learn's default analyzer finds them: `\w\w+`.

    With `unicode` texts are brought into normalisation form C, a combining mark belongs to the word
    around it, and each character of a script without blanks (with its marks) is a word. A text may
    have any characters.
    """
    return Words(*split(*encoded(texts, reading), classes(reading.unicode)))


# The weight of a pair of words beside the words, with `bigrams`.
PAIR_WEIGHT = np.float32(0.5)


@nonallocating_inlined
def ngrams_a_word(ngram_min: int, ngram_max: int) -> int:
    """Return the most n-grams that can begin with the same word."""
    return max(2, ngram_max) - ngram_min + 1


@nonallocating_inlined
def _word_end(utf8: U8, i: int, stop: int, of_classes: U8) -> tuple[int, bool, bool]:
    """Return (end, is_word, unspaced) of the run of characters that begins at i.

    is_word   whether it is a word
    unspaced  whether it is a character of a script without blanks
    """
    size = size_at(utf8, i)
    kind = of_classes[code_at(utf8, i, size)]
    unspaced = kind & UNSPACED != 0
    continuing = MARK if unspaced else (WORD | MARK if kind & WORD else 0)
    n = 1
    i = i + size
    while continuing and i < stop:
        size = size_at(utf8, i)
        kind = of_classes[code_at(utf8, i, size)]
        if kind & continuing == 0 or kind & UNSPACED:
            break
        n = n + 1
        i = i + size
    return i, unspaced or (continuing != 0 and n >= _SHORTEST), unspaced


@kernel
def split(utf8: U8, text_ptr: I64, of_classes: U8) -> tuple[U8, I64, I64, I64]:
    """Divide texts into words, and return them as the fields of Words.

    utf8, text_ptr  the texts, as `encoded` returns them
    of_classes      the classes of characters, as `classes` returns them
    """
    room = len(utf8) // 2 + 1  # a word has two bytes or more
    out = np.empty(len(utf8) + room, np.uint8)
    word_ptr = np.zeros(len(text_ptr), np.int64)
    starts = np.empty(room, np.int64)
    ends = np.empty(room, np.int64)
    n = 0
    position = 0
    for text in range(len(text_ptr) - 1):
        i = text_ptr[text]
        stop = text_ptr[text + 1]
        touches = False
        while i < stop:
            end, is_word, unspaced = _word_end(utf8, i, stop, of_classes)
            if is_word:
                if n > word_ptr[text] and not (touches and unspaced):
                    out[position] = BLANK
                    position += 1
                starts[n] = position
                for k in range(i, end):
                    out[position] = utf8[k]
                    position += 1
                ends[n] = position
                n += 1
            i = end
            touches = unspaced
        word_ptr[text + 1] = n
    return out[:position], word_ptr, starts[:n], ends[:n]


@nonallocating_inlined
def _longest(start: I64, end: I64, first: int, last: int, ngram_max: int) -> int:
    """Return the most words of an n-gram that begins at word `first`.

    The text's words end before `last`. Two words that touch form a pair whatever ngram_max says.
    """
    if ngram_max < 2 and first + 1 < last and start[first + 1] == end[first]:
        return 2
    return min(ngram_max, last - first)


@kernel
def ngram_spans(
    word_ptr: I64, start: I64, end: I64, ngram_min: int, ngram_max: int
) -> tuple[I64, I64, I64]:
    """Return the fields of NgramSpans, for n-grams of ngram_min to ngram_max words.

    Those of a text are ordered by first word, then by length. Two words that touch always form a
    pair as well, unless ngram_min is more than 2.
    """
    n_texts = len(word_ptr) - 1
    room = len(start) * ngrams_a_word(ngram_min, ngram_max)
    row_ptr = np.zeros(n_texts + 1, np.int64)
    starts = np.empty(room, np.int64)
    ends = np.empty(room, np.int64)
    n = 0
    for text in range(n_texts):
        for first in range(word_ptr[text], word_ptr[text + 1]):
            longest = _longest(start, end, first, word_ptr[text + 1], ngram_max)
            for length in range(ngram_min, longest + 1):
                starts[n] = start[first]
                ends[n] = end[first + length - 1]
                n += 1
        row_ptr[text + 1] = n
    return row_ptr, starts[:n], ends[:n]


@kernel
def lead_counts(
    word_ptr: I64, word_end: I64, row_ptr: I64, span_end: I64, lead: int, lead_weight: int
) -> F32:
    """Return how often each n-gram counts, float32[m]: lead_weight times if it lies within the
    first `lead` words of its text, else once.

    word_ptr, word_end  fields of Words
    row_ptr, span_end   fields of NgramSpans
    """
    counts = np.ones(len(span_end), np.float32)
    if lead == 0:
        return counts
    for text in range(len(word_ptr) - 1):
        last = min(word_ptr[text] + lead, word_ptr[text + 1]) - 1
        for i in range(row_ptr[text], row_ptr[text + 1]):
            if span_end[i] <= word_end[last]:
                counts[i] = lead_weight
    return counts


@kernel
def pair_weights(utf8: U8, start: I64, end: I64) -> F32:
    """Return the weights of words and pairs of words, float32[n]: PAIR_WEIGHT for a pair.

    A pair has a space; two characters that touch, in a script without blanks, are like a word.

    utf8, start, end  the word or pair i is utf8[start[i]:end[i]]
    """
    weights = np.ones(len(start), np.float32)
    for i in range(len(start)):
        for k in range(start[i], end[i]):
            if utf8[k] == BLANK:
                weights[i] = PAIR_WEIGHT
    return weights
