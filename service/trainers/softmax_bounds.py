"""What trees of softmax nodes take: in a model, and at most in training."""

from __future__ import annotations

import numpy as np

from service.trainers.bounds import Bound, Counts
from service.trainers.size import FLAT_WEIGHT_BYTES, WEIGHT_BYTES, SizeEstimate
from service.trainers.softmax_parameters import SoftmaxParameters
from service.trainers.spec import TrainingSet
from service.trainers.work import Crew, Progress

_FLOAT_BYTES = 4


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
        held += 32 * c.labels * p.dim + _FLOAT_BYTES * c.labels * p.arity + 8 * c.label_values
    path = min(c.labels, 64) * n_children
    passes = d.epochs * (2 if tree == "clustered" else 1)
    steps = passes * 3 * padded * (c.values * max(1, p.transitions()[1]) + c.rows * path)
    weights = padded * (2 * c.labels + 1)
    return Bound(passes, steps, weights, 1, 2 * c.labels + 1, held, 0, leaves=padded * n_features // 2)
