"""Trainers `label-tree` (a tree of clustered labels with linear classifiers at its nodes) and
`ovr` (one such node with all labels).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from xylem.base import LabelRows, Parameters, SparseRows, fault
from xylem.trainers.blocks import features_used, train_blocks
from xylem.trainers.classifiers import (
    Members,
    SolverOptions,
    members_of,
    solver_bytes,
    train_classifiers,
)
from xylem.trainers.clustering import balanced_shape, kmeans_shape
from xylem.trainers.held_blocks import Blocks, blocks_of, factors_of, vectors_of
from xylem.trainers.regrowing import Regrowth
from xylem.trainers.representations import label_representations, rows_by_label
from xylem.trainers.shape import Shape, join
from xylem.trainers.size import SizeEstimate, estimate_size, size_of
from xylem.trainers.source import RowSource, Tools, TrainingSet, all_rows
from xylem.trainers.spec import (
    CostDecay,
    Eps,
    Idf,
    LabelTrees,
    LeafSize,
    MaxEpochs,
    RareDecay,
    Trained,
    TrainerSpec,
)
from xylem.trainers.weighing import Weighed, weigh
from xylem.trainers.windows import mapped
from xylem_store import F32, I32, IDS_MAX, Link, Tree

Prune = Literal["auto"] | Annotated[float, Field(ge=0.0, le=100.0)]

_USUAL = 0.1
_FEATURES = 300


def prune_of(prune: Prune, mean: float) -> float:
    """Return the absolute value below which weights are removed.

    mean  mean number of features in a row

    A row of length 1 with n features has values of about 1 / sqrt(n). Pruning changes its margin by
    the sum of n small weights times these values. The weights of features that come from one word
    are similar, so this sum grows as sqrt(n) (docs/trainers/label-tree.md has figures). Therefore
    `auto` lowers the bound as 1 / sqrt(n), for more than 300 features.
    """
    return prune if prune != "auto" else _USUAL * min(1.0, sqrt(_FEATURES / max(1.0, mean)))


class ClassifierParameters(Parameters):
    """Parameters of the node classifiers, common to the linear trainers.

    The defaults were chosen on held-out rows of the training files of four data sets
    (`benchmarks.training`). Two deviate from Lin, Liu and Lin 2024: the third power in the link,
    and the cost that is larger at nodes of fewer rows. The cost of a node is relative to that of
    the root, so that the root has the cost C whatever the size of the data set.
    """

    loss: Literal["squared_hinge", "logistic"] = Field(
        default="squared_hinge", description="loss function of the node classifiers"
    )
    link: Literal["hinge2", "hinge3"] = Field(
        default="hinge3",
        description="probability of a margin m of squared_hinge: exp(-max(0, 1 - m)^2), or "
        "^3 with hinge3",
    )
    cost: float = Field(
        default=0.0,
        ge=0.0,
        le=1e6,
        description="C at the root, the weight of the loss against the L2 penalty; 0 means "
        "0.5 with "
        "squared_hinge, 8 with logistic",
    )
    cost_decay: CostDecay = 0.25
    rare_decay: RareDecay = 0.0
    eps: Eps = 0.1
    max_epochs: MaxEpochs = 100
    prune: Prune = Field(
        default="auto",
        description="remove weights with a smaller absolute value; 0 keeps all; auto: 0.1, "
        "or 0.1 * "
        "sqrt(300 / mean) if rows have more than 300 features on average (mean)",
    )
    idf: Idf = "auto"
    memory_mib: int = Field(
        default=512,
        ge=1,
        le=4096,
        description="with --stream: MiB of rows in memory at a time; larger nodes are solved "
        "in blocks",
    )

    def solving(self, n_rows: float, n_nonzeros: float, tail: int = 0) -> SolverOptions:
        """Return the options of the training on n_rows rows with n_nonzeros values in total.

        tail  as in SparseRows
        """
        return SolverOptions(
            loss=self.loss,
            cost=self.cost or (8.0 if self.loss == "logistic" else 0.5),
            cost_decay=self.cost_decay,
            rare_decay=self.rare_decay,
            eps=self.eps,
            epochs_max=self.max_epochs,
            prune=prune_of(self.prune, n_nonzeros / max(1, n_rows) - tail),
            tail=tail,
        )

    def model_link(self) -> Link:
        """Return the link that belongs to the loss."""
        return self.link if self.loss == "squared_hinge" else "logistic"


class OvrParameters(ClassifierParameters):
    """Parameters of `ovr`."""


class LabelTreeParameters(ClassifierParameters):
    """Parameters of `label-tree`."""

    trees: LabelTrees = 1
    clustering: Literal["balanced", "kmeans"] = Field(
        default="balanced", description="cluster labels by recursive balanced 2-means, or k-means"
    )
    leaf_size: LeafSize = 100
    arity: int = Field(
        default=16,
        ge=2,
        le=4096,
        description="most children of a node, if these are nodes too; balanced: a power of two",
    )
    depth: int = Field(default=6, ge=1, le=32, description="kmeans: most levels of nodes")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.clustering == "balanced" and self.arity & (self.arity - 1):
            raise fault(
                f"expected a power of two with clustering=balanced, found {self.arity}", "arity"
            )
        return self


def _shapes(
    labels: I32, find: Callable[[], SparseRows], p: ClassifierParameters, tools: Tools
) -> Iterator[tuple[Tools, Shape]]:
    """Yield (tools of the tree, shape) of each tree.

    find  returns the label representations; called only if labels are clustered

    The labels are clustered again for each tree. For trainer `ovr` there is one tree, in which all
    labels are children of the root.
    """
    if not isinstance(p, LabelTreeParameters):
        yield tools, join(labels, [])
        return
    vectors = find()
    for tree in range(p.trees):
        tree_tools = tools.of_tree(tree, p.trees)
        yield tree_tools, _cluster_labels(vectors, labels, p, tree_tools)


def _shapes_of_rows(
    data: TrainingSet, p: ClassifierParameters, tools: Tools
) -> Iterator[tuple[Tools, Shape, Members]]:
    """Yield (tools of the tree, shape, members) of each tree of rows in memory."""
    ptr, rows, weights = rows_by_label(data.labels)
    for tree_tools, shape in _shapes(
        np.flatnonzero(np.diff(ptr)).astype(np.int32),
        # by words alone: so vectors leave the tree as it is, and clustering costs what it cost
        lambda: label_representations(data.rows.without_tail(), data.labels, tools),
        p,
        tools,
    ):
        yield tree_tools, shape, members_of(ptr, rows, weights, shape.labels)


def _cluster_labels(
    vectors: SparseRows, labels: I32, p: LabelTreeParameters, tools: Tools
) -> Shape:
    return (
        balanced_shape(vectors, labels, p.leaf_size, p.arity, tools)
        if p.clustering == "balanced"
        else kmeans_shape(vectors, labels, p.leaf_size, p.arity, p.depth, tools)
    )


def grow(
    weighed: Weighed, shape: Shape, members: Members, solving: SolverOptions, tools: Tools
) -> Tree:
    """Train the classifiers of a shape on weighed rows; return a tree that scores original rows."""
    return Tree(
        shape.child_ptr,
        shape.node_label,
        [
            chunk and weighed.plain_chunk(chunk)
            for chunk in train_classifiers(weighed.rows, shape, members, solving, tools)
        ],
    )


def fit_label_tree(source: RowSource, parameters: ClassifierParameters, tools: Tools) -> Trained:
    """Train an ensemble of linear label trees (Lin, Liu and Lin 2024, section 2).

    For `ovr` it is one tree whose root has every label as a child: each label has a classifier that
    is trained on all rows with labels. Rows of a stream are stored in blocks. Raises BadData.
    """
    census = source.census
    solving = parameters.solving(census.weighed.rows, census.weighed.nonzeros, census.tail)
    if source.reads == "rows":
        data = all_rows(source)
        weighed = weigh(data.rows, parameters.idf, data.labels.weights)
        data = data._replace(rows=weighed.rows)
        trees = [
            grow(weighed, shape, members, solving, tree_tools)
            # all shapes first: then the vectors of labels are gone while classifiers are trained
            for tree_tools, shape, members in list(_shapes_of_rows(data, parameters, tools))
        ]
    else:
        blocks, scale, shapes = _shapes_of_blocks(source, parameters, tools)
        trees = [
            Tree(
                shape.child_ptr,
                shape.node_label,
                train_blocks(blocks, shape, scale, solving, tree_tools),
            )
            for tree_tools, shape in list(shapes)
        ]
    return Trained.from_trees(
        trees,
        len(census.label_rows),
        census.n_features,
        parameters.model_link(),
        parameters,
        np.zeros if source.reads == "rows" else mapped,
    )


def _shapes_of_blocks(
    source: RowSource, p: ClassifierParameters, tools: Tools
) -> tuple[Blocks, F32 | None, Iterator[tuple[Tools, Shape]]]:
    """Return the rows of a stream in blocks, the factors of features (None: all are 1), and the
    shapes of the trees with their tools.
    """
    blocks = blocks_of(source, p.memory_mib, tools)
    scale = factors_of(blocks, p.idf, tools)
    labels = np.flatnonzero(blocks.census.label_rows).astype(np.int32)
    return blocks, scale, _shapes(labels, lambda: vectors_of(blocks, scale, tools), p, tools)


def estimate_label_tree(
    data: TrainingSet, parameters: ClassifierParameters, tools: Tools
) -> SizeEstimate:
    """Return a bound on the size of the model that `fit_label_tree` would train on these rows."""
    data = data._replace(rows=weigh(data.rows, parameters.idf, data.labels.weights).rows)
    return estimate_size(
        data,
        [(shape, members) for _, shape, members in _shapes_of_rows(data, parameters, tools)],
        tools,
    )


def _estimate_blocks(
    source: RowSource, parameters: ClassifierParameters, tools: Tools
) -> SizeEstimate:
    """Return a bound on the size of the model that `fit_label_tree` would train on a stream.

    Raises BadData.
    """
    blocks, _, shapes = _shapes_of_blocks(source, parameters, tools)
    return size_of(
        ((shape, features_used(blocks, shape, tree_tools)) for tree_tools, shape in shapes),
        getattr(parameters, "trees", 1),
        blocks.census.n_features,
        len(blocks.census.label_rows),
        tools,
    )


def regrow_label_tree(parameters: ClassifierParameters, rows: SparseRows) -> Regrowth:
    """Return the object that adds new labels to trees and trains them further."""

    def members(labels: LabelRows, shape: Shape) -> Members:
        return members_of(*rows_by_label(labels), shape.labels)

    def divide(vectors: SparseRows, labels: I32, tools: Tools) -> Shape:
        return (
            _cluster_labels(vectors, labels, parameters, tools)
            if isinstance(parameters, LabelTreeParameters)
            else join(labels, [])
        )

    return Regrowth(
        parameters.solving(rows.n_rows, len(rows.indices), rows.tail),
        parameters.idf,
        members,
        divide,
        2 * parameters.leaf_size if isinstance(parameters, LabelTreeParameters) else IDS_MAX,
    )


LABEL_TREE: TrainerSpec[Any] = TrainerSpec(
    name="label-tree",
    about="linear classifiers in a tree of clustered labels: fast, small, accurate",
    parameters=LabelTreeParameters,
    fit=fit_label_tree,
    estimate=estimate_label_tree,
    estimate_blocks=_estimate_blocks,
    reads="passes",
    growth=regrow_label_tree,
    alone=lambda p: None,
    weighs=lambda p: True,
    worker_bytes=lambda data, p: solver_bytes(data.rows),
)

OVR = replace(
    LABEL_TREE,
    name="ovr",
    about="one linear classifier a label: the flat baseline, slow with many labels",
    parameters=OvrParameters,
)
