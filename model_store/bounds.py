"""The arrays that kernels index by, and their bounds, in one table; FORMAT.md has it too.

An array that is not in the table leads to no place in another one, or is packed (`PACKED`) and has a check of
its own.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import array_named, check_all, check_offsets, file_name
from model_store.errors import Corrupt

FEATURES = "n_features"
"""Of the version's rows."""

COLUMNS = "n_columns"
"""Of the rows that the first member of a combined version takes."""


class Bound(NamedTuple):
    """The numbers that an array may hold: `least` to size - 1, or with `ascends` offsets from 0 to the size.

    of     what the size is that of: an array (of its first dimension), FEATURES or COLUMNS
    more   is added to that
    least  the least number: -1 where it stands for none
    """

    of: str
    more: int = 0
    least: int = 0
    ascends: bool = False

    def size(self, arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> int:
        """Return the size in a version with these arrays. Raises Corrupt where one is missing."""
        if self.of in (FEATURES, COLUMNS):
            return sizes[self.of] + self.more
        return len(array_named(arrays, self.of)) + self.more


def _offsets(of: str, more: int = 0) -> Bound:
    return Bound(of, more, ascends=True)


_WORDS, _NODES, _CONCEPTS, _SEQUENCES = (
    Bound("names/idf"),
    Bound("names/node_word", least=-1),
    Bound("names/broader_ptr", -1),
    Bound("names/name_ptr", -1, -1),
)
_LABELS = Bound("labels/offsets", -1)

BOUNDS: dict[str, Bound] = {
    "ensemble/child_ptr": Bound("ensemble/parent", 1),
    "ensemble/parent": Bound("ensemble/parent", least=-1),
    "ensemble/node_label": _LABELS._replace(least=-1),
    "ensemble/label_leaf": Bound("ensemble/parent", least=-1),
    "ensemble/node_chunk": Bound("ensemble/directory", least=-1),
    "ensemble/block_ptr": _offsets("ensemble/blocks"),
    "ensemble/row_start": _offsets("ensemble/row_ptr"),
    "ensemble/row_ptr": Bound("ensemble/sparse", 1),
    "ensemble/sparse_ptr": _offsets("ensemble/sparse"),
    "ensemble/dense_ptr": Bound("ensemble/dense", 1),
    "ensemble/leaf_ptr": _offsets("ensemble/leaf_label"),
    "ensemble/leaf_label": _LABELS,
    "tail/ptr": _offsets("tail/features"),
    "tail/features": Bound(FEATURES),
    "ranker/labels": _LABELS._replace(least=-1),
    "ranker/tree_ptr": _offsets("ranker/child"),
    "ranker/feature": Bound("ranker/linear", -1),
    "ranker/child": Bound("ranker/child"),
    "near/label_ptr": _offsets("near/label_row"),
    "near/label_row": Bound("near/scale"),
    "near/feature": Bound(COLUMNS),
    "near/feature_ptr": _offsets("near/row"),
    "near/row": Bound("near/scale"),
    "near/row_label_ptr": _offsets("near/row_label"),
    "near/row_label": _LABELS,
    "near/other_ptr": _offsets("near/other_label"),
    "near/other_label": _LABELS,
    "names/word_node": _NODES,
    "names/word_name": _SEQUENCES,
    "names/child_ptr": Bound("names/node_word", 1),
    "names/node_word": _WORDS,
    "names/sequence_ptr": _offsets("names/name_ptr", -1),
    "names/sequence_words_ptr": _offsets("names/sequence_words"),
    "names/sequence_words": _WORDS,
    "names/name_ptr": _offsets("names/concepts"),
    "names/concepts": _CONCEPTS,
    "names/qualifier_ptr": _offsets("names/qualifiers"),
    "names/qualifiers": _WORDS,
    "names/broader_ptr": _offsets("names/broader"),
    "names/broader": _CONCEPTS,
    "names/related_ptr": _offsets("names/related"),
    "names/related": _CONCEPTS,
    "names/text_ptr": _offsets("names/texts"),
    "rows/indptr": _offsets("rows/indices"),
    "rows/indices": Bound(FEATURES),
    "rows/label_ptr": _offsets("rows/label_idx"),
    "rows/label_idx": _LABELS,
}
"""By the names of the arrays; `ranker/labels` stands for those of all members."""

TABLES = {"offsets", "slots"}
"""The last parts of the arrays of name tables that kernels index by: `names.check_names` proves them."""

PACKED = {"ensemble/directory", "ensemble/blocks", "ensemble/sparse"}
"""Their numbers are parts of bytes: `chunk_checks` proves them."""


def check_bounds(arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int], *groups: str) -> None:
    """Raise Corrupt, naming array and index, for a number out of the bounds of the table.

    groups  the groups that are looked at; none: all
    Cost: two passes over those arrays
    """
    for name, array in arrays.items():
        bound = BOUNDS.get(name.rstrip("0123456789"))
        if bound is None or (groups and name.partition("/")[0] not in groups):
            continue
        size, flat = bound.size(arrays, sizes), array.reshape(-1)
        if not bound.ascends:
            fits = (flat >= bound.least) & (flat < size)
            check_all(name, fits, f"a number from {bound.least} to {size - 1}", flat)
        elif not len(flat):
            raise Corrupt(file_name(name), "an offset at least", "none")
        else:
            check_offsets(name, np.asarray(flat, np.int64), size)
