"""The weights of rows in memory, as scikit-learn takes them."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import BadData, Dataset, LabelRows


def weighed_rows(dataset: Dataset, sample_weight: Any) -> Dataset:
    """Return rows with these weights, without those of weight 0. Raises BadData."""
    if hasattr(sample_weight, "to_pylist"):  # the numbers of pyarrow are objects of its own
        sample_weight = sample_weight.to_pylist()
    values = list(sample_weight) if isinstance(sample_weight, Iterable) else [sample_weight]
    if len(values) != dataset.n_rows:
        raise BadData(
            f"sample_weight: expected {dataset.n_rows} weights, as many as instances, found "
            f"{len(values)}"
        )
    weights = np.empty(len(values), np.float32)
    for row, value in enumerate(values):
        try:
            weights[row] = LabelRows.weight_of(value)
        except ValueError as error:
            raise BadData(f"sample_weight: row {row}: {error}") from None
    if not weights.any():
        raise BadData("sample_weight: expected a weight above 0, found 0 in all rows")
    labels = dataset.labels.weighed(
        weights, dataset.labels.weights and dataset.labels.weights.labels
    )
    return replace(
        dataset,
        labels=labels,
        sha256=hashlib.sha256(dataset.sha256.encode() + weights.tobytes()).hexdigest(),
    ).with_weight()
