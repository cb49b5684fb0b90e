"""What a training takes at most, in time and memory: known before it begins, from counts of its rows alone.

The bounds are of the worst data with such counts. `xylem estimate` costs part of a training, and is sharper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from service.kernels.training.ldsm import RETRIES
from service.kernels.training.ranking_tree import ATTEMPTS
from service.kernels.training.separator import PASSES_MAX
from service.trainers.clustering import ROUNDS_MAX, levels_of
from service.trainers.label_tree import ClassifierParameters, LabelTreeParameters
from service.trainers.ldsm import LdsmParameters
from service.trainers.lomtree import LEAVES_A_LABEL, LomtreeParameters
from service.trainers.parameters import Parameters
from service.trainers.pfastrexml import PfastreXmlParameters
from service.trainers.plt import PltParameters
from service.trainers.ranking_forest import ForestParameters
from service.trainers.size import WEIGHT_BYTES
from service.trainers.source import Plan
from service.trainers.spec import TrainingSet

_STORED_BYTES = 64
"""A weight of a model at most: its word, offset and block of features, or its share of a padded dense row."""

_NODE_BYTES = 256
"""A node of a model at most, without its weights and its groups of 1024 features; so many while training."""

_GROUP = 1024


class _Counts(NamedTuple):
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


class _Bound(NamedTuple):
    """What a trainer says of itself; `bounds_of` adds what all have in common.

    passes   times that a node's rows are read
    steps    times that a value meets a weight
    weights  numbers trained, biases not counted
    nodes    of all trees
    held     bytes that training holds besides, once
    each     bytes that each thread holds
    leaves   labels and mean rows that the model keeps, 8 bytes each
    """

    passes: int
    steps: int
    weights: int
    nodes: int
    held: int
    each: int
    leaves: int = 0


def bounds_of(parameters: Parameters, data: TrainingSet, threads: int) -> Plan:
    """Return what training with these parameters takes at most.

    Memory is besides the rows themselves. Cost: a pass over the rows. Deterministic.
    """
    counts = _count(data)
    rule = next((rule for kind, rule in _RULES if isinstance(parameters, kind)), None)
    if rule is None:
        raise TypeError(
            f"{type(parameters).__name__}: expected parameters with a rule in bounds.py, found none"
        )
    bound = rule(parameters, counts)
    return Plan(
        rows=counts.rows,
        epochs=bound.passes,
        steps=bound.steps,
        weights=bound.weights,
        training_bytes=bound.held + threads * bound.each,
        model_bytes=_STORED_BYTES * bound.weights
        + (_NODE_BYTES + 8 * counts.groups) * bound.nodes
        + 8 * bound.leaves
        + 4 * data.labels.n_labels * getattr(parameters, "trees", 1),
        capped=False,
    )


def _count(data: TrainingSet) -> _Counts:
    rows, labels = data
    values = np.diff(rows.indptr)
    return _Counts(
        rows.n_rows,
        len(np.unique(rows.indices)),
        len(np.unique(labels.indices)),
        len(rows.indices),
        len(labels.indices),
        int((values * np.diff(labels.indptr)).sum()),
        int(values.max(initial=0)),
        -(-rows.n_features // _GROUP),
    )


def _levels(p: Any, n_labels: int) -> list[int]:
    """Return how many children a node has at most, for each level of a label tree from the root down."""
    if isinstance(p, LabelTreeParameters) and p.clustering == "kmeans":
        return [n_labels] * p.depth
    if isinstance(p, LabelTreeParameters) or (isinstance(p, PltParameters) and p.tree == "kmeans"):
        halvings, n_levels = levels_of(n_labels, p.leaf_size, p.arity)
        above = [min(p.arity, n_labels)] * n_levels if halvings else []
        return [*above, n_labels if not halvings else min(p.leaf_size, n_labels)]
    if isinstance(p, PltParameters):
        deep = max(1, math.ceil(math.log(n_labels, p.arity))) + 1
        most = max(1, -(-(n_labels - 1) // (p.arity - 1)))
        return [min(p.arity, n_labels)] * (most if p.tree == "huffman" else min(deep, most))
    return [n_labels]


def _label_trees(p: Any, c: _Counts) -> _Bound:
    """Bound trees of labels: at each level below the root a row is at no more nodes than it has labels."""
    trees, levels = getattr(p, "trees", 1), _levels(p, c.labels)
    sgd = isinstance(p, PltParameters) and p.solver == "sgd"
    passes = p.epochs if isinstance(p, PltParameters) and sgd else p.max_epochs
    below = sum(min(c.label_values * width, c.values * c.labels) for width in levels[1:])
    steps = trees * passes * (c.values * levels[0] + below)
    nodes_used = [min(c.labels * c.features, c.label_values * width) for width in levels[1:]]
    weights = trees * (min(c.features, c.values) * levels[0] + sum(nodes_used))
    vectors = min(c.label_values, c.labels * c.features)
    steps += trees * ROUNDS_MAX * max(levels[0], len(levels) * 16) * vectors
    node = 8 * c.values + 200 * c.rows + 72 * (c.features + 1) + 4 * c.groups * _GROUP
    held = 40 * vectors + 32 * c.carried + WEIGHT_BYTES * weights + 8 * c.values
    if isinstance(p, PltParameters) and sgd:
        held = min(p.memory_mib << 20, 47 * weights + (1 << 16)) + 16 * (c.values + c.carried)
        held += 4096 * c.labels + WEIGHT_BYTES * weights
    return _Bound(passes, steps, weights, trees * (2 * c.labels + 1), held, node)


def _ranking(p: ForestParameters, c: _Counts) -> _Bound:
    """Bound FastXML's trees: at each level, a row is at one node."""
    depth = min(p.max_depth, max(1, c.rows - 1))
    passes = ATTEMPTS * p.max_steps * (PASSES_MAX + 1)
    steps = p.trees * depth * passes * (c.values + c.rows)
    weights = p.trees * min(depth * c.values, c.rows * c.features)
    each = 8 * c.values + 150 * c.rows + 4 * (c.groups * _GROUP + c.labels) + 24 * (c.carried + c.labels)
    leaves = p.trees * c.carried
    if isinstance(p, PfastreXmlParameters) and p.rerank == "yes":
        leaves += 3 * c.label_values + 4 * c.labels
    held = 2 * WEIGHT_BYTES * weights + 32 * leaves + 16 * c.values
    return _Bound(passes, steps, weights, p.trees * 2 * c.rows, held, each, leaves)


def _ldsm(p: LdsmParameters, c: _Counts) -> _Bound:
    """Bound LdSM's trees: at each level are no more rows than `max_copies` allows."""
    nodes = p.most_nodes(c.labels)
    copies = int(p.max_copies * c.rows)
    passes = p.epochs * (RETRIES + 1)
    depth = min(p.max_depth, nodes)
    steps = p.trees * depth * passes * copies * c.longest * p.arity
    weights = p.trees * nodes * c.features
    labels = min(nodes * c.labels, depth * copies * c.labels)
    leaves = p.trees * min(labels, nodes * p.leaf_labels)
    if p.rerank == "yes":
        leaves += 3 * c.label_values + 4 * c.labels
    each = 32 * c.values + 400 * c.rows + 16 * copies + 16 * labels + 64 * p.arity * c.features
    held = 2 * WEIGHT_BYTES * weights + 32 * leaves + 16 * c.values + p.trees * nodes * _NODE_BYTES
    return _Bound(passes, steps, weights, p.trees * nodes, held, each, leaves)


def _lomtree(p: LomtreeParameters, c: _Counts) -> _Bound:
    """Bound a LOMtree: a row meets one node a level, of at most as many as there are leaves."""
    n_leaves = p.leaves or LEAVES_A_LABEL * c.labels
    steps = p.passes * c.values * n_leaves
    weights = min((p.memory_mb << 20) // 16, n_leaves * c.features)
    held = (p.memory_mb << 20) + 2 * n_leaves * _NODE_BYTES + 4 * c.rows + WEIGHT_BYTES * weights
    leaves = n_leaves * min(p.leaf_labels, c.labels)
    return _Bound(p.passes, steps, weights, 2 * n_leaves, held, 0, leaves)


_RULES: tuple[tuple[type[Parameters], Callable[[Any, _Counts], _Bound]], ...] = (
    (ClassifierParameters, _label_trees),
    (PltParameters, _label_trees),
    (ForestParameters, _ranking),
    (LdsmParameters, _ldsm),
    (LomtreeParameters, _lomtree),
)
"""How each class of parameters is bounded."""
