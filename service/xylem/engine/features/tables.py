"""Names of features among a model's arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store import Corrupt, NameTable, name_of, names_in, take

NAMES = "features/names"
"""The group that holds the table of feature names: of the words, if
n-grams of characters are beside them.
"""

CHARS = "features/chars"
"""The group that holds the table of n-grams of characters."""


class FeatureNames(NamedTuple):
    """The names of a version's features, those of n-grams of characters after the others."""

    names: NameTable | None
    chars: NameTable | None

    def name(self, feature: int) -> str:
        """Return the name of a feature: a word, a name, or the n-gram itself, blanks and all."""
        n_names = 0 if self.names is None else self.names.n_names
        if self.chars is not None and feature >= n_names:
            return name_of(self.chars, feature - n_names)
        assert self.names is not None
        return name_of(self.names, feature % n_names)

    def is_chars(self, feature: int) -> bool:
        """Return whether a feature is an n-gram of characters."""
        return self.chars is not None and (self.names is None or feature >= self.names.n_names)


def take_names(arrays: Mapping[str, NDArray[Any]], group: str = NAMES) -> NameTable:
    """Return the table of the names; raise Corrupt when it is missing or damaged."""
    return names_in(arrays, group)


def take_idf(
    arrays: Mapping[str, NDArray[Any]], name: str, n_features: int, is_used: bool
) -> NDArray[Any]:
    """Return the weights of features, float32[n_features], or none
    if they are not used; raise Corrupt.
    """
    if not is_used:
        return np.empty(0, np.float32)
    idf = take(arrays, name, "float32", (n_features,))
    if not (np.isfinite(idf) & (idf > 0)).all():
        raise Corrupt(name, "finite weights above 0", "another")
    return idf


def take_feature_names(arrays: Mapping[str, NDArray[Any]], n_features: int) -> NameTable:
    """Return the table of the names; raise Corrupt also when there are not n_features of them."""
    table = take_names(arrays)
    if table.n_names != n_features:
        raise Corrupt(NAMES, f"{n_features} names", str(table.n_names))
    return table
