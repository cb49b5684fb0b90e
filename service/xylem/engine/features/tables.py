"""Read the names of features, and their weights, from a model's arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store import Corrupt, NameTable, name_of, names_in, take

# The group of arrays that holds the table of feature names, or of words if there are also n-grams
# of characters.
NAMES = "features/names"

# The group of arrays that holds the table of n-grams of characters.
CHARS = "features/chars"


# The name of all features of a vector, which mean nothing one by one.
MEANING = "meaning"


class FeatureNames(NamedTuple):
    """The names of a version's features.

    names  words, or names of features; None if there are none
    chars  n-grams of characters, whose ids follow those of `names`; None if there are none
    tail   the first feature of the vectors beside the texts; None if there are none
    """

    names: NameTable | None
    chars: NameTable | None
    tail: int | None = None

    def name(self, feature: int) -> str:
        """Return the name of a feature: a word, a name, an n-gram with its blanks, or MEANING.

        A feature without a name has its id.
        """
        if self.is_of_vector(feature):
            return MEANING
        if self.names is None and self.chars is None:
            return str(feature)
        n_names = 0 if self.names is None else self.names.n_names
        if self.chars is not None and feature >= n_names:
            return name_of(self.chars, feature - n_names)
        assert self.names is not None
        return name_of(self.names, feature % n_names)

    def is_chars(self, feature: int) -> bool:
        """Return whether a feature is an n-gram of characters."""
        return self.chars is not None and (self.names is None or feature >= self.names.n_names)

    def is_of_vector(self, feature: int) -> bool:
        """Return whether a feature is a component of the vector beside a text."""
        return self.tail is not None and feature >= self.tail


def take_idf(
    arrays: Mapping[str, NDArray[Any]], name: str, n_features: int, is_used: bool
) -> NDArray[Any]:
    """Return the weights of features, float32[n_features], or [0] if they are not used.

    Raises Corrupt if they are missing or not finite and above 0.
    """
    if not is_used:
        return np.empty(0, np.float32)
    idf = take(arrays, name, "float32", (n_features,))
    if not (np.isfinite(idf) & (idf > 0)).all():
        raise Corrupt(name, "finite weights above 0", "another")
    return idf


def take_feature_names(arrays: Mapping[str, NDArray[Any]], n_features: int) -> NameTable:
    """Return the table of feature names. Raises Corrupt, also if they are not n_features."""
    table = names_in(arrays, NAMES)
    if table.n_names != n_features:
        raise Corrupt(NAMES, f"{n_features} names", str(table.n_names))
    return table
