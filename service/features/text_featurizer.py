"""What features of texts have in common: a kernel makes the rows, for data sets and for requests alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from model_store.compiled.handles import handle_of
from service.features.blocks import in_blocks, joined
from service.features.characters import encoded
from service.features.featurizer import Featurizer
from service.features.parameters import (
    CharsParameters,
    HashingParameters,
    TfidfParameters,
    WordsCharsParameters,
)
from service.rows import RowArrays, SparseRows

TextKernel: TypeAlias = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], RowArrays]
"""A kernel (utf8, text_ptr, table) -> (indptr, indices, values): what `encoded` returned, and a handle."""


class TextRows(NamedTuple):
    """How the rows of texts are made.

    kernel                the kernel; every kind of features has one
    table                 the handle that it is given
    held                  the struct that the handle leads to, which must stay where it is
    features_a_character  how many features a character makes at most
    """

    kernel: TextKernel
    table: NDArray[Any]
    held: Any
    features_a_character: int


def text_rows_by(kernel: TextKernel, struct: tuple[Any, ...], features_a_character: int) -> TextRows:
    """Return how a kernel makes rows with what a struct holds."""
    return TextRows(kernel, handle_of(struct), struct, features_a_character)


class TextFeaturizer(Featurizer):
    """Features of texts: words, n-grams, their hashes; immutable, as every Featurizer.

    text_rows  how rows of texts are made whose words stay as they are; set by each kind
    """

    parameters: TfidfParameters | CharsParameters | WordsCharsParameters | HashingParameters
    text_rows: TextRows

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text; what the features do not have is left out."""
        return joined([self._transform_block(block) for block in in_blocks(texts)], self.n_features)

    def _transform_block(self, texts: Sequence[str]) -> SparseRows:
        if self.forms is not None:
            return SparseRows(*self._rows_by_forms(texts), self.n_features)
        utf8, text_ptr = encoded(texts, self.parameters.lowercase, self.parameters.unicode)
        return SparseRows(*self.text_rows.kernel(utf8, text_ptr, self.text_rows.table), self.n_features)

    @abstractmethod
    def _rows_by_forms(self, texts: Sequence[str]) -> RowArrays:
        """Return the rows of texts whose words have other forms, or are stop words."""
