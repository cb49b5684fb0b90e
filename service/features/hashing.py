"""Text to rows under the hash of its n-grams, named features to rows under the hash of their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from model_store.names import hash_bytes
from service.features.blocks import in_blocks, joined
from service.features.featurizer import Featurizer
from service.features.parameters import HashingParameters
from service.features.raw import finite_values, tidied
from service.features.word_forms import WordForms
from service.features.words import find_ngrams, split_words
from service.rows import SparseRows, offsets_of

_SIGN_BIT = np.uint64(63)


class HashingFeaturizer(Featurizer):
    """Counts of n-grams, or values by name, under the low bits of `hash_bytes`; no vocabulary is fitted.

    Source: Weinberger et al. 2009, "Feature hashing for large scale multitask learning", equation 1.
    """

    takes = "text, named features or ids and values"
    parameters: HashingParameters

    def __init__(self, parameters: HashingParameters, forms: WordForms | None = None) -> None:
        super().__init__(parameters, parameters.n_features)
        self.forms = forms

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return no arrays but stop words."""
        return self.forms.arrays() if self.forms else {}

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text."""
        return joined([self._transform_block(block) for block in in_blocks(texts)], self.n_features)

    def transform_named(self, instances: Sequence[dict[str, float]]) -> SparseRows:
        """Return a row for each instance; values whose names share an id are summed."""
        values = finite_values([list(instance.values()) for instance in instances], "features")
        indptr = offsets_of(map(len, instances))
        # a lone surrogate becomes bytes of its own
        names = [name.encode(errors="surrogatepass") for name in chain.from_iterable(instances)]
        offsets = offsets_of(map(len, names))
        indices, signs = np.empty(len(names), np.int32), np.empty(len(names), np.float32)
        utf8 = np.frombuffer(b"".join(names), np.uint8)
        _hash(utf8, offsets[:-1], offsets[1:], self.n_features - 1, self.parameters.signed, indices, signs)
        return self._normalised(tidied(indptr, indices, values * signs, self.n_features))

    def _transform_block(self, texts: Sequence[str]) -> SparseRows:
        chosen = self.parameters
        words = split_words(texts, chosen.lowercase, chosen.unicode)
        words = words if self.forms is None else self.forms.of(words)
        spans = find_ngrams(words, chosen.ngram_min, chosen.ngram_max)
        indices, values = np.empty(len(spans.start), np.int32), np.empty(len(spans.start), np.float32)
        _hash(words.utf8, spans.start, spans.end, self.n_features - 1, chosen.signed, indices, values)
        return self._normalised(tidied(spans.row_ptr, indices, values, self.n_features))


@kernel
def _hash(
    utf8: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    mask: int,
    signed: bool,
    indices_out: NDArray[np.int32],
    values_out: NDArray[np.float32],
) -> None:
    for i in range(len(start)):
        h = hash_bytes(utf8, start[i], end[i])
        indices_out[i] = np.int64(h & np.uint64(mask))
        values_out[i] = np.float32(-1.0) if signed and (h >> _SIGN_BIT) else np.float32(1.0)
