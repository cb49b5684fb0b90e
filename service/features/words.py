"""Texts to words, and words to the spans of their n-grams."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel

# scikit-learn's (?u)\b\w\w+\b: a search that goes from left to right stands on a boundary at every first
# word character, and a greedy run ends on one, so the two \b say nothing more
_find_words = re.compile(r"\w\w+").findall

_SPACE, _CASE, _UNDERSCORE = 32, 32, 95
_A, _Z, _UPPER_A, _UPPER_Z, _ZERO, _NINE = 97, 122, 65, 90, 48, 57
_SHORTEST = 2
"""Characters of a word, at least."""


class Words(NamedTuple):
    """The words of texts: utf8[text_ptr[i]:text_ptr[i + 1]] holds those of text i, a space between two.

    utf8      uint8[..]
    text_ptr  int64[n + 1]
    """

    utf8: NDArray[np.uint8]
    text_ptr: NDArray[np.int64]


class NgramSpans(NamedTuple):
    """The n-grams of texts: those of text i are utf8[start[j]:end[j]], row_ptr[i] <= j < row_ptr[i + 1].

    row_ptr  int64[n + 1]
    start    int64[m]
    end      int64[m]
    """

    row_ptr: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def split_words(texts: Sequence[str], lowercase: bool) -> Words:
    """Return the words of texts as scikit-learn's default analyzer finds them: two word characters or more.

    A text may hold anything, lone surrogates too: they are no word characters. Texts of ASCII alone take a
    kernel some nanoseconds a character, others a regular expression about 10 microseconds for 65 words.
    """
    whole = "".join(texts)
    if whole.isascii():
        ends = np.array([0, *accumulate(map(len, texts))], np.int64)
        return Words(*_split_ascii(np.frombuffer(whole.encode(), np.uint8), ends, lowercase))
    if lowercase:
        found = [" ".join(_find_words(text.lower())).encode() for text in texts]
    else:
        found = [" ".join(_find_words(text)).encode() for text in texts]
    text_ptr = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(words) for words in found], out=text_ptr[1:])
    return Words(np.frombuffer(b"".join(found), np.uint8), text_ptr)


def find_ngrams(words: Words, ngram_min: int, ngram_max: int) -> NgramSpans:
    """Return the spans of the n-grams of ngram_min to ngram_max words: by first word, then by length."""
    return NgramSpans(*ngram_spans(words.utf8, words.text_ptr, ngram_min, ngram_max))


@inlined
def _is_word(byte: int) -> bool:
    r"""Return whether an ASCII character is one of `\w`: a letter, a digit or an underscore."""
    letter = byte | _CASE
    return (_A <= letter <= _Z) or (_ZERO <= byte <= _NINE) or byte == _UNDERSCORE


@kernel
def _split_ascii(
    text: NDArray[np.uint8], ends: NDArray[np.int64], lowercase: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return (utf8, text_ptr) of Words: the runs of two word characters or more of each text."""
    utf8, text_ptr = np.empty(len(text) + len(ends), np.uint8), np.zeros(len(ends), np.int64)
    n = 0
    for row in range(len(ends) - 1):
        first, i = n, ends[row]
        while i < ends[row + 1]:
            start = i
            while i < ends[row + 1] and _is_word(text[i]):
                i += 1
            if i - start >= _SHORTEST:
                if n > first:
                    utf8[n] = _SPACE
                    n += 1
                for k in range(start, i):
                    is_upper = lowercase and _UPPER_A <= text[k] <= _UPPER_Z
                    utf8[n] = text[k] | _CASE if is_upper else text[k]
                    n += 1
            i += 1
        text_ptr[row + 1] = n
    return utf8[:n], text_ptr


@kernel
def _find_words_spans(
    utf8: NDArray[np.uint8], text_ptr: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return (word_ptr int64[n + 1], start, end) of every single word."""
    n_texts, n = len(text_ptr) - 1, 0
    for text in range(n_texts):
        n += text_ptr[text + 1] > text_ptr[text]
    for i in range(len(utf8)):
        n += utf8[i] == _SPACE
    word_ptr, start, end = np.zeros(n_texts + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for text in range(n_texts):
        if text_ptr[text + 1] > text_ptr[text]:
            start[n] = text_ptr[text]
            for i in range(text_ptr[text], text_ptr[text + 1]):
                if utf8[i] == _SPACE:
                    end[n] = i
                    n += 1
                    start[n] = i + 1
            end[n] = text_ptr[text + 1]
            n += 1
        word_ptr[text + 1] = n
    return word_ptr, start, end


@kernel
def ngram_spans(
    utf8: NDArray[np.uint8], text_ptr: NDArray[np.int64], ngram_min: int, ngram_max: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Do as `find_ngrams`, in a kernel: return the fields of NgramSpans."""
    word_ptr, word_start, word_end = _find_words_spans(utf8, text_ptr)
    n = 0
    for text in range(len(word_ptr) - 1):
        for length in range(ngram_min, ngram_max + 1):
            n += max(0, word_ptr[text + 1] - word_ptr[text] - length + 1)
    row_ptr, start, end = np.zeros(len(word_ptr), np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for text in range(len(word_ptr) - 1):
        for first in range(word_ptr[text], word_ptr[text + 1]):
            for last in range(first + ngram_min - 1, min(first + ngram_max, word_ptr[text + 1])):
                start[n] = word_start[first]
                end[n] = word_end[last]
                n += 1
        row_ptr[text + 1] = n
    return row_ptr, start, end
