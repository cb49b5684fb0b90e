"""The base class of featurizers of texts: a kernel makes the rows, for data sets and requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import RowArrays, SparseRows
from xylem.engine.features.characters import encoded, in_blocks, ready_codes
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import (
    CharsParameters,
    HashingParameters,
    TfidfParameters,
    WordsCharsParameters,
)
from xylem.engine.features.words import Words, split_words
from xylem.engine.kernels.text.texts import ROWS, UTF8_A_CHARACTER, BodyTexts, no_texts
from xylem_store import Uncopyable, address_of, handle_of


class TextRows(Uncopyable):
    """A kernel that makes the rows of texts, and its arguments.

    kernel                (utf8, text_ptr, table) -> (indptr, indices, values), for texts as
                          `encoded` returns them
    table                 the handle of the kernel's struct, which this object keeps alive
    features_a_character  the most features that a character can make
    """

    def __init__(
        self, kernel: Callable[..., RowArrays], struct: tuple[Any, ...], features_a_character: int
    ) -> None:
        self.kernel = kernel
        self.table = handle_of(struct)
        self._struct = struct
        self.features_a_character = features_a_character


class TextFeaturizer(Featurizer, ABC):
    """The base of kinds that take texts: words, n-grams, their hashes. Immutable.

    text_rows  makes the rows of texts whose words are not changed; set by each kind
    """

    parameters: TfidfParameters | CharsParameters | WordsCharsParameters | HashingParameters
    text_rows: TextRows

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stop words.

        Kinds with a vocabulary add it, and its weights if they are used.
        """
        return self.forms.arrays() if self.forms else {}

    @cached_property
    def continuation(self) -> Featurizer:
        """Do as `Featurizer.continuation`."""
        if self.parameters.lead == 0:
            return self
        return self.with_parameters(self.parameters.model_copy(update={"lead": 0}))

    @abstractmethod
    def with_parameters(self, parameters: Any) -> TextFeaturizer:
        """Return a featurizer with the same vocabulary.

        parameters  those of this featurizer, which may differ in `lead`
        """

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text; words that are no features are left out."""
        return SparseRows.join([self._transform_block(block) for block in in_blocks(texts)])

    def _transform_block(self, texts: Sequence[str]) -> SparseRows:
        if self.forms is not None:
            return self.rows_of_words(
                texts, self.forms.forms_of(split_words(texts, self.parameters.reading))
            )
        utf8, text_ptr = encoded(texts, self.parameters.reading)
        return SparseRows(
            *self.text_rows.kernel(utf8, text_ptr, self.text_rows.table), self.n_features
        )

    @abstractmethod
    def rows_of_words(self, texts: Sequence[str], words: Words) -> SparseRows:
        """Return the rows of texts.

        words  the texts' words in their forms, without stop words
        """

    def body_texts(self, n_texts: int, characters_max: int, bytes_max: int) -> BodyTexts:
        """Do as `Featurizer.body_texts`."""
        if self.forms is not None:
            return no_texts()
        return BodyTexts(
            rows_by=0,
            table=self.text_rows.table,
            ready=ready_codes(self.parameters.reading),
            utf8=np.empty(UTF8_A_CHARACTER * characters_max, np.uint8),
            text_ptr=np.zeros(n_texts + 1, np.int64),
            characters_max=characters_max,
            bytes_max=bytes_max,
        )

    def request_texts(
        self, *, n_texts: int, values_max: int, characters_max: int, bytes_max: int
    ) -> BodyTexts:
        """Do as `Featurizer.request_texts`."""
        text_rows = self.text_rows
        characters_max = min(characters_max, values_max // text_rows.features_a_character)
        texts = self.body_texts(n_texts, characters_max, bytes_max)
        sample = np.frombuffer(b"", np.uint8)  # read-only, as `encoded` returns it
        rows_by = address_of(text_rows.kernel, ROWS, sample, texts.text_ptr, text_rows.table)
        return texts._replace(rows_by=rows_by)

    def rows_of_read(self, texts: BodyTexts, n: int) -> SparseRows:
        """Do as `Featurizer.rows_of_read`."""
        text_ptr = texts.text_ptr[: n + 1]
        utf8 = texts.utf8[: text_ptr[n]]
        # read-only, as `encoded` returns it; otherwise the kernel would be compiled once more
        utf8.flags.writeable = False
        return SparseRows(*self.text_rows.kernel(utf8, text_ptr, texts.table), self.n_features)
