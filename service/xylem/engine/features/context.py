"""Windows of words: the features from which the next word of a text is predicted.

Source: Jernite, Choromanska and Sontag 2017, section 6, after Mnih and Hinton 2009: a word is
conditioned on the `window` words before it. Features are words at places: id = place * words +
word, place 0 the last word.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadData, LabelRows, SparseRows, ranges
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import ContextParameters
from xylem.engine.features.tables import NAMES, take_feature_names
from xylem_store import (
    I32,
    N_NAMES_MAX,
    NAME_BYTES_MAX,
    Corrupt,
    NameTable,
    all_names,
    build_names,
    find_name,
    group_of,
)

# The words that stand for the start of a text, its end, and any word not in the vocabulary.
START = "<s>"
END = "</s>"
UNKNOWN = "<unk>"

_SPECIAL = (START, END, UNKNOWN)

# A token is a word, with what follows an apostrophe, or any other character that is no space.
_find_tokens = re.compile(r"\w+(?:'\w+)?|[^\w\s]").findall


class ContextFeaturizer(Featurizer):
    """Makes rows of windows of words of a fitted vocabulary; labels have the same ids as words."""

    takes = "text or ids and values"
    parameters: ContextParameters

    def __init__(self, parameters: ContextParameters, words: NameTable) -> None:
        super().__init__(parameters, parameters.window * words.n_names)
        self.words = words
        self._ids = {name: i for i, name in enumerate(all_names(words))}
        self._start, self.end, self.unknown = (self._ids[name] for name in _SPECIAL)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return group_of(NAMES, self.words)

    def transform_texts(self, texts: Sequence[str]) -> SparseRows:
        """Return a row for each text: its last words, from which the next word is predicted."""
        window = self.parameters.window
        padding = [self._start] * window
        rows = [(padding + self._encode(text))[: -window - 1 : -1] for text in texts]
        return self._rows_of(np.array(rows, np.int32).reshape(len(texts), window))

    def windows_of(self, texts: Sequence[str]) -> tuple[SparseRows, LabelRows]:
        """Return rows and labels for training: one row for each word of each text, and one for its
        end.

        A row has the words before the word, its label is the word.
        """
        window = self.parameters.window
        coded = [self._encode(text) for text in texts]
        padded = np.fromiter(
            chain.from_iterable([*[self._start] * window, *ids, self.end] for ids in coded),
            np.int32,
        )
        sizes = np.array([len(ids) + 1 for ids in coded])
        first = np.cumsum(sizes + window) - sizes  # the first place of each text, after its padding
        positions = ranges(first, sizes)
        contexts = padded[positions[:, None] - np.arange(1, window + 1)]
        return self._rows_of(contexts), LabelRows(
            np.arange(len(positions) + 1, dtype=np.int64), padded[positions], self.words.n_names
        )

    def id_of(self, word: str) -> int:
        """Return the id of a word, or that of <unk> if it is not in the vocabulary."""
        return self._ids.get(word, self.unknown)

    def _encode(self, text: str) -> list[int]:
        return [self.id_of(token) for token in tokens_of(text)]

    def _rows_of(self, contexts: I32) -> SparseRows:
        """Return the rows of windows whose words are `contexts`, int32[n, window], last first."""
        n_rows, window = contexts.shape
        indices = (contexts + np.arange(window, dtype=np.int32) * self.words.n_names).reshape(-1)
        return SparseRows(
            np.arange(n_rows + 1, dtype=np.int64) * window,
            indices,
            np.ones(len(indices), np.float32),
            self.n_features,
        )


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text, lower-cased."""
    return _find_tokens(text.lower())


def context_of(counts: Mapping[str, int], parameters: ContextParameters) -> ContextFeaturizer:
    """Return a featurizer whose vocabulary has the most frequent words first.

    counts  how often each word occurs in the texts; words that occur less than `min_count` times
            are left out

    Raises BadData if there are no words, or too many. Deterministic.
    """
    if not counts:
        raise BadData("expected texts with words, found none")
    frequent = [
        (word, count)
        for word, count in counts.items()
        if count >= parameters.min_count
        and len(word.encode(errors="replace")) <= NAME_BYTES_MAX
        and word.isprintable()
    ]
    if len(frequent) + len(_SPECIAL) > N_NAMES_MAX // parameters.window:
        raise BadData(
            f"expected at most {N_NAMES_MAX // parameters.window} words, found {len(frequent)}"
        )
    frequent.sort(key=lambda pair: (-pair[1], pair[0]))
    return ContextFeaturizer(parameters, build_names([*_SPECIAL, *(word for word, _ in frequent)]))


def load_context(
    parameters: ContextParameters, arrays: Mapping[str, NDArray[Any]], n_features: int
) -> ContextFeaturizer:
    """Return the featurizer of a model version. Raises Corrupt."""
    if n_features % parameters.window:
        raise Corrupt(
            "manifest", f"features that are {parameters.window} times the words", str(n_features)
        )
    words = take_feature_names(arrays, n_features // parameters.window)
    if any(find_name(words, name) < 0 for name in _SPECIAL):
        raise Corrupt(NAMES, f"the words {', '.join(_SPECIAL)}", "one missing")
    return ContextFeaturizer(parameters, words)
