"""The base class of featurizers of texts: a kernel makes the rows, for data sets and requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from xylem.engine.kernels.text.texts import UTF8_A_CHARACTER, BodyTexts
from xylem_store import Uncopyable, handle_of


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


def body_texts(
    featurizer: Featurizer, n_texts: int, characters_max: int, bytes_max: int
) -> BodyTexts:
    """Return the buffers into which kernels read texts.

    They are for n_texts texts, of at most characters_max characters in all and bytes_max bytes
    each. If the model takes no texts, or changes words in Python (stems, stop words), they have no
    room, and kernels read no texts.
    """
    if not isinstance(featurizer, TextFeaturizer) or featurizer.forms is not None:
        empty = np.empty(0, np.int64)
        return BodyTexts(
            rows_by=0,
            table=empty,
            ready=np.empty(0, np.int32),
            utf8=np.empty(0, np.uint8),
            text_ptr=empty,
            characters_max=0,
            bytes_max=0,
        )
    parameters = featurizer.parameters
    return BodyTexts(
        rows_by=0,
        table=featurizer.text_rows.table,
        ready=ready_codes(parameters.reading),
        utf8=np.empty(UTF8_A_CHARACTER * characters_max, np.uint8),
        text_ptr=np.zeros(n_texts + 1, np.int64),
        characters_max=characters_max,
        bytes_max=bytes_max,
    )


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

    def rows_of_read(self, texts: BodyTexts, n: int) -> SparseRows:
        """Return the rows of the first n texts that a kernel has read."""
        text_ptr = texts.text_ptr[: n + 1]
        utf8 = texts.utf8[: text_ptr[n]]
        # read-only, as `encoded` returns it; otherwise the kernel would be compiled once more
        utf8.flags.writeable = False
        return SparseRows(*self.text_rows.kernel(utf8, text_ptr, texts.table), self.n_features)
