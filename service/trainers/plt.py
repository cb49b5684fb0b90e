"""Trainer `plt`: probabilistic label trees, whose scores are probabilities by the chain rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from model_store.build import build_ensemble
from model_store.ensemble import Tree
from service.errors import BadData, BadParameter
from service.faults import fault
from service.parameters import Parameters
from service.rows import LabelRows
from service.trainers.bounds import Bound, Counts
from service.trainers.classifiers import Members, Solving, members_of
from service.trainers.clustering import balanced_shape, derived_seed
from service.trainers.label_tree import grow
from service.trainers.label_tree_bounds import balanced_levels, bound_label_trees
from service.trainers.plt_sgd import Descent, train_trees
from service.trainers.plt_trees import huffman_shape, random_shape
from service.trainers.projected import projected_vectors
from service.trainers.representations import Representations, label_representations
from service.trainers.shape import Shape
from service.trainers.size import WEIGHT_BYTES, SizeEstimate, estimate_size
from service.trainers.source import MemorySource, OnPlan, OnRows, RowSource, no_plan
from service.trainers.spec import Trained, TrainerSpec, TrainingSet, rows_by_label
from service.trainers.weighing import IDF_ABOUT, Idf, weigh
from service.trainers.work import Crew, Progress, of_tree


class PltParameters(Parameters):
    """Parameters of `plt`."""

    tree: Annotated[
        Literal["kmeans", "random", "huffman"],
        Field(
            description="balanced 2-means of the labels, random and complete, or least deep for frequent "
            "labels",
        ),
    ] = "kmeans"
    arity: Annotated[
        int,
        Field(
            ge=2, le=4096, description="most children of a node (kmeans: above the labels, a power of two)"
        ),
    ] = 16
    leaf_size: Annotated[
        int, Field(ge=1, le=1_000_000, description="kmeans: parts of no more labels are not divided")
    ] = 100
    trees: Annotated[
        int, Field(ge=1, le=100, description="trees of the ensemble; their probabilities are averaged")
    ] = 1
    solver: Annotated[
        Literal["batch", "sgd"], Field(description="how node classifiers are trained; sgd can stream")
    ] = "batch"
    cost: Annotated[
        float,
        Field(ge=1e-6, le=1e6, description="batch: weight of the loss against the penalty (C), at the root"),
    ] = 4.0
    cost_decay: Annotated[
        float,
        Field(
            ge=0.0,
            le=1.0,
            description="batch: a node of n of the root's N has the cost C * (N / n)^cost_decay",
        ),
    ] = 0.25
    rare_decay: Annotated[
        float,
        Field(
            ge=0.0,
            le=1.0,
            description="batch: a child with p of its node's n rows has the cost of the node times (n / "
            "p)^rare_decay",
        ),
    ] = 0.15
    eps: Annotated[
        float,
        Field(ge=1e-4, le=10.0, description="batch: a classifier is done when no dual gradient is larger"),
    ] = 0.1
    max_epochs: Annotated[
        int, Field(ge=1, le=100_000, description="batch: a classifier is given up after so many passes")
    ] = 100
    idf: Annotated[Idf, Field(description=f"batch: {IDF_ABOUT}")] = "auto"
    epochs: Annotated[int, Field(ge=1, le=1000, description="sgd: passes over the rows")] = 10
    rate: Annotated[
        float,
        Field(ge=1e-6, le=1e3, description="sgd: the first step g; step t of a node is g / (1 + l2 * g * t)"),
    ] = 0.5
    l2: Annotated[float, Field(ge=0.0, le=1e3, description="sgd: weight of the penalty, lambda")] = 1e-5
    window_rows: Annotated[
        int, Field(ge=1, le=1 << 24, description="sgd: rows are shuffled within so many; 1: file order")
    ] = 1 << 16
    memory_mib: Annotated[
        int, Field(ge=1, le=1 << 24, description="sgd: weights take no more; late features are left out then")
    ] = 4096
    prune: Annotated[
        float, Field(ge=0.0, le=100.0, description="leave out smaller weights; 0 keeps them all")
    ] = 0.1

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.tree == "kmeans" and self.arity & (self.arity - 1):
            raise fault(f"expected a power of two with tree=kmeans, found {self.arity}", "arity")
        return self

    def solving(self) -> Solving:
        """Return what the batch solver takes."""
        return Solving(
            "logistic",
            self.cost,
            self.cost_decay,
            self.rare_decay,
            self.eps,
            self.max_epochs,
            self.prune,
        )

    def descent(self) -> Descent:
        """Return what gradient descent takes."""
        return Descent(self.rate, self.l2, self.epochs, self.window_rows, self.prune)


def train_plt(
    data: TrainingSet, parameters: PltParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train an ensemble of probabilistic label trees.

    Source: Jasinska et al. 2016, section 5. The probability of a label is the product along its path of the
    estimates P(some label under the node | some label under its parent, x), each by logistic regression on
    the rows that carry a label under the parent. Deviation: a root has no classifier of its own; its children
    are trained on all rows, also those without labels, so they estimate P(some label under the node | x).
    """
    if parameters.solver == "sgd":
        return train_plt_stream(MemorySource(data), parameters, seed, crew, progress, no_plan)
    trees: list[Tree] = []
    weighed = weigh(data.rows, parameters.idf)
    data = data._replace(rows=weighed.rows)
    vectors = _exact_vectors(data, progress) if parameters.tree == "kmeans" else None
    for tree_seed, shape in _shapes(*_carried(data.labels), parameters, vectors, seed, crew, progress):
        members = _members(data.labels, shape)
        told = of_tree(progress, len(trees), parameters.trees)
        trees.append(grow(weighed, shape, members, parameters.solving(), tree_seed, crew, told))
    return _assemble(trees, data.labels.n_labels, data.rows.n_features, parameters)


def train_plt_stream(
    source: RowSource,
    parameters: PltParameters,
    seed: int,
    crew: Crew,
    progress: Progress,
    on_plan: OnPlan,
    on_rows: OnRows | None = None,
) -> Trained:
    """Train by gradient descent on rows that are read for each epoch, and once more for k-means trees.

    Raises BadParameter for another solver than sgd, BadData when no row carries a label. Memory: `Plan`; the
    label vectors of k-means trees take 2,048 bytes a label and are given back before training.
    """
    if parameters.solver != "sgd":
        raise BadParameter(f"solver: expected sgd to train on a stream, found {parameters.solver}")
    census = source.census
    labels = np.flatnonzero(census.label_rows).astype(np.int32)
    if not len(labels):
        raise BadData(f"expected rows with labels, found none in {census.n_rows} rows")
    vectors = projected_vectors(source, progress) if parameters.tree == "kmeans" else None
    shapes = list(_shapes(labels, census.label_rows[labels], parameters, vectors, seed, crew, progress))
    del vectors
    trees, report = train_trees(
        source, shapes, parameters.descent(), parameters.memory_mib << 20, crew, progress, on_plan, on_rows
    )
    return _assemble(trees, len(census.label_rows), census.n_features, parameters, report)


def estimate_plt(
    data: TrainingSet, parameters: PltParameters, seed: int, crew: Crew, progress: Progress
) -> SizeEstimate:
    """Return the size bound of what `train_plt` would train; `memory_mib` may keep it smaller."""
    vectors = None
    if parameters.tree == "kmeans":
        if parameters.solver == "batch":
            weighed = weigh(data.rows, parameters.idf)
            vectors = _exact_vectors(data._replace(rows=weighed.rows), progress)
        else:
            vectors = projected_vectors(MemorySource(data), progress)
    shapes = _shapes(*_carried(data.labels), parameters, vectors, seed, crew, progress)
    return estimate_size(
        data.rows, [(shape, _members(data.labels, shape)) for _, shape in shapes], crew, progress
    )


def _shapes(
    labels: NDArray[np.int32],
    counts: NDArray[np.int64],
    p: PltParameters,
    vectors: Representations | None,
    seed: int,
    crew: Crew,
    progress: Progress,
) -> Iterator[tuple[int, Shape]]:
    """Make the trees over the labels that rows carry; yields (seed of the tree, shape)."""
    for tree in range(p.trees):
        tree_seed = derived_seed(seed, tree)
        if vectors is not None:
            told = of_tree(progress, tree, p.trees)
            shape = balanced_shape(vectors, labels, p.leaf_size, p.arity, tree_seed, crew, told)
        elif p.tree == "random":
            shape = random_shape(labels, p.arity, tree_seed)
        else:
            shape = huffman_shape(labels, counts, p.arity)
        yield tree_seed, shape


def _carried(labels: LabelRows) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the labels that a row carries, and how many rows do."""
    counts = np.bincount(labels.indices, minlength=labels.n_labels).astype(np.int64)
    carried = np.flatnonzero(counts).astype(np.int32)
    return carried, counts[carried]


def _members(labels: LabelRows, shape: Shape) -> Members:
    """Return the rows of each leaf's label, and after them those of none: negatives at the root."""
    members = members_of(*rows_by_label(labels), shape.labels)
    without = np.flatnonzero(np.diff(labels.indptr) == 0).astype(np.int32)
    end = members.ptr[-1] + len(without)
    return Members(np.append(members.ptr, end), np.concatenate([members.rows, without]))


def _exact_vectors(data: TrainingSet, progress: Progress) -> Representations:
    progress("label representations", 0, 1)
    vectors = label_representations(data.rows, data.labels)
    progress("label representations", 1, 1)
    return vectors


def _assemble(
    trees: list[Tree],
    n_labels: int,
    n_features: int,
    parameters: PltParameters,
    report: dict[str, int] | None = None,
) -> Trained:
    return Trained(
        ensemble=build_ensemble(trees, n_labels, n_features),
        kind="label-tree",
        link="logistic",
        parameters=parameters.model_dump(),
        n_nonzeros=sum(len(chunk.weight) for tree in trees for chunk in tree.chunks if chunk is not None),
        report=dict(report or {}),
    )


def bound_plt(p: PltParameters, c: Counts) -> Bound:
    """Return what a training takes at most; descent holds its table of weights and the rows."""
    descends = p.solver == "sgd"
    bound = bound_label_trees(
        c, _levels_at_most(p, c.labels), p.epochs if descends else p.max_epochs, p.trees
    )
    if not descends:
        return bound
    held = min(p.memory_mib << 20, 47 * bound.weights + (1 << 16)) + 16 * (c.values + c.carried)
    return bound._replace(held=held + 4096 * c.labels + WEIGHT_BYTES * bound.weights)


def _levels_at_most(p: PltParameters, n_labels: int) -> list[int]:
    """Return how many children a node has at most, for each level of the tree from the root down."""
    if p.tree == "kmeans":
        return balanced_levels(n_labels, p.leaf_size, p.arity)
    balanced = max(1, math.ceil(math.log(n_labels, p.arity))) + 1
    deepest = max(1, -(-(n_labels - 1) // (p.arity - 1)))
    return [min(p.arity, n_labels)] * (deepest if p.tree == "huffman" else min(balanced, deepest))


PLT = TrainerSpec(
    name="plt",
    about="probabilistic label trees: calibrated scores, and training on files that do not fit in memory",
    parameters=PltParameters,
    train=train_plt,
    estimate=estimate_plt,
    bound=bound_plt,
    train_stream=train_plt_stream,
    train_shown=train_plt_stream,
)
