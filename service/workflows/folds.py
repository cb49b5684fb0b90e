"""Rows of a training file held out: one part of them, or each part once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.base.errors import BadData
from service.base.rows import Dataset

HELD_OUT_PARTS = 5
"""Without folds one of so many parts is held out."""

FOLDS_MAX = 20


class Fold(NamedTuple):
    """Rows to train on, and rows that are held out; labels have the same ids in both."""

    train: Dataset
    held_out: Dataset


def folds_of(dataset: Dataset, folds: int, seed: int) -> Iterator[Fold]:
    """Yield `folds` folds, each with another part of the rows held out; with 1 a fifth is held out once.

    Rows are dealt by chance, the same for the same seed. Raises BadData for fewer rows than parts.
    """
    n_parts = max(folds, HELD_OUT_PARTS) if folds == 1 else folds
    if dataset.n_rows < n_parts:
        raise BadData(f"{dataset.source}: expected {n_parts} rows or more, found {dataset.n_rows}")
    part_of = np.random.default_rng(seed).permutation(dataset.n_rows) % n_parts
    for part in range(folds):
        is_out = part_of == part
        yield Fold(take(dataset, np.flatnonzero(~is_out)), take(dataset, np.flatnonzero(is_out)))


def take(dataset: Dataset, chosen: NDArray[np.int64]) -> Dataset:
    """Return some rows of a data set, by their numbers; ids of labels and features stay."""
    picked = chosen.tolist()
    return replace(
        dataset,
        n_rows=len(chosen),
        rows=None if dataset.rows is None else dataset.rows.take(chosen),
        texts=None if dataset.texts is None else [dataset.texts[i] for i in picked],
        named=None if dataset.named is None else [dataset.named[i] for i in picked],
        labels=dataset.labels.take(chosen),
        unknown_labels=dataset.unknown_labels[chosen],
    )
