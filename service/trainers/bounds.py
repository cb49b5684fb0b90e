"""What a training takes at most, in time and memory: known before it begins, from counts of its rows alone.

Each trainer bounds its own part: the `bound` of its TrainerSpec. What all have in common is added here.
The bounds are of the worst data with such counts. `xylem estimate` costs part of a training, and is sharper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from service.trainers.source import Plan
from service.trainers.spec import TrainingSet

STORED_BYTES = 64
"""A weight of a model at most: its word, offset and block of features, or its share of a padded dense row."""

STORED_NODE_BYTES = 256
"""A node of a model at most, without its weights and its groups of features; so many while training."""

GROUP = 1024
"""Features of a group."""


class Counts(NamedTuple):
    """Of the training rows: n rows, features and labels that occur, values, labels carried.

    label_values  values of the rows of each label, summed over the labels
    longest       values of the longest row
    groups        groups of 1024 features
    """

    rows: int
    features: int
    labels: int
    values: int
    carried: int
    label_values: int
    longest: int
    groups: int


class Bound(NamedTuple):
    """What a trainer says of itself, as `TrainerSpec.bound`.

    passes   times that a node's rows are read
    steps    times that a value meets a weight
    weights  numbers trained, biases not counted
    trees    each has a number for each label
    nodes    of all trees
    held     bytes that training holds besides, once
    each     bytes that each thread holds
    leaves   labels and mean rows that the model keeps, 8 bytes each
    """

    passes: int
    steps: int
    weights: int
    trees: int
    nodes: int
    held: int
    each: int
    leaves: int = 0


def plan_within(
    bound_of: Callable[[Any, Counts], Bound], parameters: Any, data: TrainingSet, threads: int
) -> Plan:
    """Return what training with these parameters takes at most; `bound_of` is the trainer's own bound.

    Memory is besides the rows themselves. Cost: a pass over the rows. Deterministic.
    """
    counts = counts_of(data)
    return plan_of(bound_of(parameters, counts), counts, data.labels.n_labels, threads)


def plan_of(bound: Bound, counts: Counts, n_labels: int, threads: int) -> Plan:
    """Return the plan of a trainer's own bound; n_labels are all, also those without a row."""
    return Plan(
        rows=counts.rows,
        epochs=bound.passes,
        steps=bound.steps,
        weights=bound.weights,
        training_bytes=bound.held + threads * bound.each,
        model_bytes=STORED_BYTES * bound.weights
        + (STORED_NODE_BYTES + 8 * counts.groups) * bound.nodes
        + 8 * bound.leaves
        + 4 * n_labels * bound.trees,
        capped=False,
    )


def counts_of(data: TrainingSet) -> Counts:
    """Return the counts of the training rows. Cost: a pass over the rows."""
    rows, labels = data
    values = np.diff(rows.indptr)
    return Counts(
        rows.n_rows,
        len(np.unique(rows.indices)),
        len(np.unique(labels.indices)),
        len(rows.indices),
        len(labels.indices),
        int((values * np.diff(labels.indptr)).sum()),
        int(values.max(initial=0)),
        -(-rows.n_features // GROUP),
    )
