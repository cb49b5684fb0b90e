"""Rows held out: each exactly once, with all that belongs to them."""

from __future__ import annotations

import numpy as np
import pytest

from service.base.errors import BadData
from service.base.rows import Dataset, LabelRows, SparseRows
from service.workflows.search import folds_of


def dataset(n_rows: int, *, texts: bool) -> Dataset:
    """Row i has i % 3 labels and i % 4 features, and its number as text."""
    label_ptr = np.cumsum([0, *(i % 3 for i in range(n_rows))]).astype(np.int64)
    labels = np.concatenate([np.arange(i % 3) for i in range(n_rows)]).astype(np.int32)
    ptr = np.cumsum([0, *(i % 4 for i in range(n_rows))]).astype(np.int64)
    features = np.concatenate([np.arange(i % 4) for i in range(n_rows)]).astype(np.int32)
    return Dataset(
        "rows",
        "0" * 64,
        n_rows,
        None if texts else SparseRows(ptr, features, np.arange(len(features), dtype=np.float32), 4),
        [str(i) for i in range(n_rows)] if texts else None,
        None,
        LabelRows(label_ptr, labels, 3),
        np.arange(n_rows, dtype=np.int32),
        None,
    )


@pytest.mark.parametrize(("folds", "parts"), [(1, 5), (2, 2), (3, 3), (7, 7)])
def test_each_row_is_held_out_once_and_else_trained_on(folds: int, parts: int) -> None:
    n_rows = 31
    found = list(folds_of(dataset(n_rows, texts=True), folds, 3))
    assert len(found) == folds
    held = [text for fold in found for text in fold.held_out.texts or []]
    assert len(set(held)) == len(held)
    assert len(held) == n_rows if folds > 1 else n_rows // parts <= len(held) <= n_rows // parts + 1
    for fold in found:
        both = [*(fold.train.texts or []), *(fold.held_out.texts or [])]
        assert sorted(both, key=int) == [str(i) for i in range(n_rows)]
    assert [fold.held_out.texts for fold in found] == [
        fold.held_out.texts for fold in folds_of(dataset(n_rows, texts=True), folds, 3)
    ]


@pytest.mark.parametrize("texts", [True, False])
def test_what_is_taken_is_what_the_rows_had(texts: bool) -> None:
    whole, chosen = dataset(23, texts=texts), np.array([0, 3, 4, 11, 22])
    some = whole.take(chosen)
    assert (some.n_rows, some.labels.n_labels) == (5, 3)
    assert some.unknown_labels.tolist() == chosen.tolist()
    for i, row in enumerate(chosen.tolist()):
        assert some.labels.indices[slice(*some.labels.indptr[i : i + 2])].tolist() == list(range(row % 3))
        if whole.rows is None:
            assert some.texts is not None and some.texts[i] == str(row)
        else:
            assert some.rows is not None
            ours, theirs = slice(*some.rows.indptr[i : i + 2]), slice(*whole.rows.indptr[row : row + 2])
            assert some.rows.indices[ours].tolist() == whole.rows.indices[theirs].tolist()
            assert some.rows.values[ours].tolist() == whole.rows.values[theirs].tolist()


def test_fewer_rows_than_parts_are_refused() -> None:
    with pytest.raises(BadData, match="rows: expected 5 rows or more, found 4"):
        list(folds_of(dataset(4, texts=True), 1, 0))
