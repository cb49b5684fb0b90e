"""The arrays that kernels index by, and their bounds, in one table; FORMAT.md has the same table.

An array that is not in the table does not index another one, except those named at its end.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import array_named, check_all, check_offsets, file_name
from xylem_store.errors import Corrupt


class Bound(NamedTuple):
    """The numbers that an array may hold: `least` to size - 1, or ascending offsets from 0 to size.

    sized_by     gives the size: an array (its first dimension); "n_features", the features of the
                 version's rows; or "n_columns", those of the rows that the first member of a
                 combined version takes
    size_offset  is added to that size
    least        the least number; -1 if it stands for none
    ascends      whether the array holds offsets
    """

    sized_by: str
    size_offset: int = 0
    least: int = 0
    ascends: bool = False


_offsets = partial(Bound, ascends=True)

# Keyed by the names of the arrays; `ranker/labels` stands for those of all members.
#
# Kernels also index by the arrays of name tables, which `names.check_names` proves, and by numbers
# that are packed in `ensemble/directory`, `ensemble/blocks` and `ensemble/sparse`: see
# `chunk_checks`.
BOUNDS: dict[str, Bound] = {
    "ensemble/child_ptr": Bound("ensemble/parent", 1),
    "ensemble/parent": Bound("ensemble/parent", least=-1),
    "ensemble/node_label": Bound("labels/offsets", -1, -1),
    "ensemble/label_leaf": Bound("ensemble/parent", least=-1),
    "ensemble/node_chunk": Bound("ensemble/directory", least=-1),
    "ensemble/block_ptr": _offsets("ensemble/blocks"),
    "ensemble/row_start": _offsets("ensemble/row_ptr"),
    "ensemble/row_ptr": Bound("ensemble/sparse", 1),
    "ensemble/sparse_ptr": _offsets("ensemble/sparse"),
    "ensemble/dense_ptr": Bound("ensemble/dense", 1),
    "ensemble/leaf_ptr": _offsets("ensemble/leaf_label"),
    "ensemble/leaf_label": Bound("labels/offsets", -1),
    "tail/ptr": _offsets("tail/features"),
    "tail/features": Bound("n_features"),
    "ranker/labels": Bound("labels/offsets", -1, -1),
    "ranker/tree_ptr": _offsets("ranker/child"),
    "ranker/feature": Bound("ranker/linear", -1),
    "ranker/child": Bound("ranker/child"),
    "near/label_ptr": _offsets("near/label_row"),
    "near/label_row": Bound("near/scale"),
    "near/feature": Bound("n_columns"),
    "near/feature_ptr": _offsets("near/row"),
    "near/row": Bound("near/scale"),
    "near/row_label_ptr": _offsets("near/row_label"),
    "near/row_label": Bound("labels/offsets", -1),
    "near/other_ptr": _offsets("near/other_label"),
    "near/other_label": Bound("labels/offsets", -1),
    "names/word_node": Bound("names/node_word", least=-1),
    "names/word_name": Bound("names/name_ptr", -1, -1),
    "names/child_ptr": Bound("names/node_word", 1),
    "names/node_word": Bound("names/idf"),
    "names/sequence_ptr": _offsets("names/name_ptr", -1),
    "names/sequence_words_ptr": _offsets("names/sequence_words"),
    "names/sequence_words": Bound("names/idf"),
    "names/name_ptr": _offsets("names/concepts"),
    "names/concepts": Bound("names/broader_ptr", -1),
    "names/qualifier_ptr": _offsets("names/qualifiers"),
    "names/qualifiers": Bound("names/idf"),
    "names/broader_ptr": _offsets("names/broader"),
    "names/broader": Bound("names/broader_ptr", -1),
    "names/related_ptr": _offsets("names/related"),
    "names/related": Bound("names/broader_ptr", -1),
    "names/text_ptr": _offsets("names/texts"),
    "rows/indptr": _offsets("rows/indices"),
    "rows/indices": Bound("n_features"),
    "rows/label_ptr": _offsets("rows/label_idx"),
    "rows/label_idx": Bound("labels/offsets", -1),
}


def check_bounds(
    arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int], *groups: str
) -> None:
    """Raise Corrupt, naming array and index, for a number out of the bounds of the table.

    sizes   the sizes that are not of an array, by their names in the table
    groups  the groups to check; if there are none, all

    Cost: two passes over those arrays.
    """
    for name, array in arrays.items():
        bound = BOUNDS.get(name.rstrip("0123456789"))
        if bound is None or (groups and name.partition("/")[0] not in groups):
            continue
        flat = array.reshape(-1)
        sized_by = bound.sized_by
        size = sizes[sized_by] if sized_by in sizes else len(array_named(arrays, sized_by))
        size += bound.size_offset
        if not bound.ascends:
            check_all(
                name,
                (flat >= bound.least) & (flat < size),
                f"a number from {bound.least} to {size - 1}",
                flat,
            )
        elif not len(flat):
            raise Corrupt(file_name(name), "one offset or more", "none")
        else:
            check_offsets(name, np.asarray(flat, np.int64), size)
