"""What trees of softmax nodes take: in a model, and at most in training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.trainers.bounds import GROUP, Bound, Counts, plan_of
from service.trainers.size import FLAT_WEIGHT_BYTES, WEIGHT_BYTES, SizeEstimate
from service.trainers.softmax_parameters import SoftmaxParameters
from service.trainers.source import Census, Plan, window_bytes
from service.trainers.spec import TrainingSet
from service.trainers.work import Crew, Progress

_FLOAT_BYTES = 4

_PROJECTED_BYTES = 16_384
"""Of a label, while its projected vector is made of length 1, and with the vectors that 2-means takes."""


def estimate_softmax(
    data: TrainingSet, p: SoftmaxParameters, seed: int, crew: Crew, progress: Progress
) -> SizeEstimate:
    """Return the bound on the weights of the nodes: each has all dimensions, and two children at least.

    Embeddings are not counted: dim numbers a feature.
    """
    n_labels, n_used = len(np.unique(data.labels.indices)), len(np.unique(data.rows.indices))
    weights = p.dim * 2 * n_labels
    progress("estimate", 1, 1)
    flat = max(1, n_used * n_labels * FLAT_WEIGHT_BYTES)
    return SizeEstimate(weights, weights * WEIGHT_BYTES, weights * WEIGHT_BYTES / flat, (1.0,))


def bound_softmax(p: SoftmaxParameters, c: Counts) -> Bound:
    """Return what training takes at most; a path has no more nodes than half the labels, and 64 as a rule."""
    d = p.descent()
    padded = -(-p.dim // 16) * 16
    tree = getattr(p, "tree", "")
    n_children = max(p.arity, c.labels if tree == "flat" else 0)
    n_nodes = max(1, min(c.labels, 1 + c.labels // max(1, n_children - 1) * 2))
    n_features = c.groups * 1024
    numbers = padded * (n_nodes * n_children + n_features + p.transitions()[0] * (p.transitions()[1] + 1))
    held = _FLOAT_BYTES * numbers * (4 if d.is_adaptive else 2) + _FLOAT_BYTES * padded * c.labels
    if tree == "clustered":  # labels by dimensions as a kernel takes them, and by clusters
        held += 40 * c.labels * p.dim + _FLOAT_BYTES * c.labels * p.arity
    if "kmeans" in (tree, getattr(p, "start", "")):
        held += _PROJECTED_BYTES * c.labels
    path = min(c.labels, 64) * n_children
    passes = d.epochs * (2 if tree == "clustered" else 1)
    steps = passes * 3 * padded * (c.values * max(1, p.transitions()[1]) + c.rows * path)
    weights = padded * (2 * c.labels + 1)
    return Bound(passes, steps, weights, 1, 2 * c.labels + 1, held, 0, leaves=padded * n_features // 2)


def plan_softmax(p: SoftmaxParameters, census: Census) -> Plan:
    """Return what a training on a stream takes at most, with its two windows of rows."""
    counts = Counts(
        rows=census.n_rows,
        features=census.n_features,
        labels=int(np.count_nonzero(census.label_rows)),
        values=census.n_nonzeros,
        carried=int(census.label_rows.sum()),
        label_values=int(census.label_nonzeros.sum()),
        longest=census.n_features,
        groups=-(-census.n_features // GROUP),
    )
    plan = plan_of(bound_softmax(p, counts), counts, len(census.label_rows), 1)
    return replace(plan, training_bytes=plan.training_bytes + window_bytes(census, p.window_rows))
