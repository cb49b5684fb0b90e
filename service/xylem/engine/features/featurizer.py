"""The base classes of featurizers, which turn instances into sparse rows.

A kernel makes the rows of texts, for data sets and requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadInstance, Dataset, RowArrays, SparseRows, TextFields
from xylem.engine.features.characters import encoded, in_blocks, ready_codes
from xylem.engine.features.parameters import (
    CharsParameters,
    FeatureParameters,
    HashingParameters,
    RawParameters,
    TfidfParameters,
    WordsCharsParameters,
    as_config,
)
from xylem.engine.features.rows import NORM_CODES, normalise_rows, rows_of_csr
from xylem.engine.features.word_forms import WordForms
from xylem.engine.features.words import Words, split_words
from xylem.engine.kernels.text.texts import ROWS, UTF8_A_CHARACTER, BodyTexts, no_texts
from xylem_store import F32, Uncopyable, address_of, handle_of


class Featurizer:
    """Turns instances into rows of one model; immutable, so any number of threads may share it.

    Every kind takes ids and values (`transform_csr`). Only some take texts or named features; the
    others raise BadInstance, which says which instances the model takes. All rows are normalised as
    `parameters.norm` says. Rows may be empty, for example that of a text without known words.

    This class itself is the kind raw, which fits nothing.

    items_a_character  how many items a character of a text counts as, where work is bounded by a
                       number of items
    fields             the fields that texts are joined of; empty: they come as texts alone
    """

    # The instances that it takes, for messages.
    takes: str = "ids and values"

    fields: TextFields = TextFields()
    # How many numbers the vector beside each text has; 0 if texts come without vectors.
    vector_numbers: int = 0

    # How many of the last features come from the vector of a text.
    tail_features: int = 0

    # The sentence encoders (TextEncoder) that make the vectors of texts: milliseconds each, so in
    # threads. Empty if texts come without vectors, or with them.
    encoders: tuple[Any, ...] = ()

    def __init__(
        self, parameters: FeatureParameters, n_features: int, forms: WordForms | None = None
    ) -> None:
        self.parameters = parameters
        self.n_features = n_features
        self.forms = forms
        self.items_a_character = 1 if forms is None else forms.items_a_character

    @property
    def kind(self) -> str:
        """Return the kind of features, a key of PARAMETERS."""
        return self.parameters.kind

    @property
    def takes_texts(self) -> bool:
        """Return whether the kind takes texts."""
        return type(self).transform_texts is not Featurizer.transform_texts

    @property
    def norm_code(self) -> int:
        """Return the norm of rows as kernels take it."""
        return NORM_CODES[self.parameters.norm]

    @property
    def continuation(self) -> "Featurizer":
        """Return the featurizer of the chunks of a long text after the first one.

        They have none of the first words that count more; for all other kinds it is this one.
        """
        return self

    def encoded_by(self, encoder: Any) -> "Featurizer":
        """Return the featurizer that makes the vectors of texts by an encoder, a TextEncoder.

        encoder  None: the vectors stand beside the texts

        A featurizer without vectors stays as it is.
        """
        return self

    def drop_unused_vectors(self, dataset: Dataset) -> Dataset:
        """Return a data set without the vectors beside its texts if this featurizer takes none.

        It is for rows that several models share, of which some take vectors, and for models that
        turned out to be as good without. Vectors that somebody gives to one model are not dropped:
        `transform_dataset` refuses them.
        """
        return dataset if self.vector_numbers else replace(dataset, vectors=None)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the whole fitted state, by the names under which a version stores the arrays.

        This class has no fitted state.
        """
        return {}

    def with_fields(self, fields: TextFields) -> Self:
        """Return the featurizer of texts that are joined of these fields."""
        featurizer = copy(self)
        featurizer.fields = fields
        return featurizer

    def config(self) -> dict[str, Any]:
        """Return the features' configuration in a manifest: the kind, its parameters, the fields.

        Without fields their key is left out, so that releases that do not know them can serve the
        version.
        """
        config: dict[str, Any] = as_config(self.parameters)
        return {**config, TextFields.key: self.fields.options} if self.fields else config

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text. Raises BadInstance if the kind does not take texts."""
        raise self._refuse("text")

    def transform_with_vectors(self, texts: Sequence[str], vectors: F32 | None) -> SparseRows:
        """Return a row for each text and its vector.

        vectors  float32[n, numbers]; None: the texts have none

        Raises BadInstance for vectors of another length than the model takes, and for None if it
        takes vectors.
        """
        if vectors is not None:
            raise self._refuse(f"a vector of {vectors.shape[1]} numbers")
        return self.transform_texts(texts)

    def body_texts(self, n_texts: int, characters_max: int, bytes_max: int) -> BodyTexts:
        """Return the buffers into which kernels read texts.

        They are for n_texts texts, of at most characters_max characters in all and bytes_max bytes
        each. If the kind takes no texts, or changes words in Python (stems, stop words), they have
        no room, and kernels read no texts.
        """
        return no_texts()

    def request_texts(
        self, *, n_texts: int, values_max: int, characters_max: int, bytes_max: int
    ) -> BodyTexts:
        """Return the buffers of `body_texts` for a kernel that makes the rows, too.

        They have room for no more characters than can make values_max features.
        """
        return no_texts()

    def rows_of_read(self, texts: BodyTexts, n: int) -> SparseRows:
        """Return the rows of the first n texts that a kernel has read into `body_texts`."""
        raise self._refuse("text")

    def transform_named(self, instances: Sequence[dict[str, float]]) -> SparseRows:
        """Return a row for each dict of values by feature name; unknown names are left out.

        Raises BadInstance if the kind does not take named features, or a value is no finite number.
        """
        raise self._refuse("named features")

    def transform_csr(
        self, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]
    ) -> SparseRows:
        """Check compressed sparse rows, whose feature ids may have any order; return copies.

        Values of a repeated id are summed. Raises BadInstance for arrays that are no such rows, an
        id out of range, or a value that is not finite.
        """
        return self.normalised(rows_of_csr(indptr, indices, values, self.n_features))

    def transform_dataset(self, dataset: Dataset) -> SparseRows:
        """Return the rows of a data set. Raises BadInstance if its kind of instances is not taken.

        The feature ids of a file are numbered differently from words or names, so only a model that
        was trained on feature ids takes them.
        """
        if dataset.texts is not None:
            return self.transform_with_vectors(dataset.texts, dataset.vectors)
        if dataset.named_rows is not None:
            return self.transform_named(dataset.named_rows)
        if not isinstance(self.parameters, RawParameters):
            raise self._refuse("a file of feature ids")
        assert dataset.rows is not None
        return self.transform_csr(dataset.rows.indptr, dataset.rows.indices, dataset.rows.values)

    def normalised(self, rows: SparseRows) -> SparseRows:
        """Scale rows in place as `parameters.norm` says, and return them; zeros stay zeros."""
        normalise_rows(rows.indptr, rows.values, self.norm_code)
        return rows

    def _refuse(self, instances: str) -> BadInstance:
        return BadInstance(f"expected {self.takes}, which this model takes, found {instances}")


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
    fitted     what `__init__` takes beside the parameters; set by each kind
    """

    parameters: TfidfParameters | CharsParameters | WordsCharsParameters | HashingParameters
    text_rows: TextRows
    fitted: tuple[Any, ...]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stop words.

        Kinds with a vocabulary add it, and its weights if they are used.
        """
        return self.forms.arrays() if self.forms else {}

    @cached_property
    def continuation(self) -> Self:
        return (
            self
            if self.parameters.lead == 0
            else type(self)(self.parameters.model_copy(update={"lead": 0}), *self.fitted)
        )

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
        text_rows = self.text_rows
        characters_max = min(characters_max, values_max // text_rows.features_a_character)
        texts = self.body_texts(n_texts, characters_max, bytes_max)
        sample = np.frombuffer(b"", np.uint8)  # read-only, as `encoded` returns it
        return texts._replace(
            rows_by=address_of(text_rows.kernel, ROWS, sample, texts.text_ptr, text_rows.table)
        )

    def rows_of_read(self, texts: BodyTexts, n: int) -> SparseRows:
        text_ptr = texts.text_ptr[: n + 1]
        utf8 = texts.utf8[: text_ptr[n]]
        # read-only, as `encoded` returns it; otherwise the kernel would be compiled once more
        utf8.flags.writeable = False
        return SparseRows(*self.text_rows.kernel(utf8, text_ptr, texts.table), self.n_features)
