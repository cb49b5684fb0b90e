"""Trainer `plt`: probabilistic label trees, whose scores are probabilities by the chain rule."""

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from xylem.base import BadParameter, LabelRows, Parameters, SparseRows, fault
from xylem.trainers.classifiers import Members, SolverOptions, members_of, solver_bytes
from xylem.trainers.clustering import balanced_shape
from xylem.trainers.label_tree import grow
from xylem.trainers.plt.descent import train_trees
from xylem.trainers.plt.fobos import Descent
from xylem.trainers.regrowing import Regrowth
from xylem.trainers.representations import label_representations, projected_vectors, rows_by_label
from xylem.trainers.shape import Shape, huffman_shape, random_shape, shape_of
from xylem.trainers.size import SizeEstimate, estimate_size
from xylem.trainers.source import MemorySource, RowSource, Tools, TrainingSet, all_rows
from xylem.trainers.spec import (
    CostDecay,
    Eps,
    Idf,
    LabelTrees,
    LeafSize,
    MaxEpochs,
    Prune,
    RareDecay,
    Trained,
    TrainerSpec,
)
from xylem.trainers.state import PassPlan
from xylem.trainers.weighing import weigh
from xylem_store import trees_of


class PltParameters(Parameters):
    """Parameters of `plt`."""

    tree: Literal["kmeans", "random", "huffman"] = Field(
        default="kmeans",
        description="balanced 2-means; complete and random; or short paths for frequent labels",
    )
    arity: int = Field(
        default=16,
        ge=2,
        le=4096,
        description="most children of a node; kmeans: if these are nodes too, a power of two",
    )
    leaf_size: LeafSize = 100
    trees: LabelTrees = 1
    solver: Literal["batch", "sgd"] = Field(
        default="batch",
        description="how node classifiers are trained: batch uses the parameters from cost "
        "to idf; sgd "
        "can stream, and uses those from epochs to memory_mib",
    )
    cost: float = Field(
        default=4.0,
        ge=1e-6,
        le=1e6,
        description="C at the root: weight of the loss against the penalty",
    )
    cost_decay: CostDecay = 0.25
    rare_decay: RareDecay = 0.15
    eps: Eps = 0.1
    max_epochs: MaxEpochs = 100
    idf: Idf = "auto"
    epochs: int = Field(default=10, ge=1, le=1000, description="passes over the rows")
    rate: float = Field(
        default=0.5,
        ge=1e-6,
        le=1e3,
        description="size g of the first step; step t of a node has size g / (1 + l2 * g * t)",
    )
    l2: float = Field(default=1e-5, ge=0.0, le=1e3, description="weight of the penalty (lambda)")
    memory_mib: int = Field(
        default=4096,
        ge=1,
        le=1 << 24,
        description="most MiB of weights; features that come later are left out",
    )
    prune: Prune = 0.1

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.tree == "kmeans" and self.arity & (self.arity - 1):
            raise fault(f"expected a power of two with tree=kmeans, found {self.arity}", "arity")
        return self

    def solving(self) -> SolverOptions:
        """Return the options of the batch solver."""
        return SolverOptions(
            loss="logistic",
            cost=self.cost,
            cost_decay=self.cost_decay,
            rare_decay=self.rare_decay,
            eps=self.eps,
            epochs_max=self.max_epochs,
            prune=self.prune,
        )


def fit_plt(source: RowSource, parameters: PltParameters, tools: Tools) -> Trained:
    """Train an ensemble of probabilistic label trees.

    Source: Jasinska et al. 2016, section 5. The probability of a label is the product along its
    path of the estimates P(some label under the node | some label under its parent, x), each by
    logistic regression on the rows that carry a label under the parent. Deviation: a root has no
    classifier; its children are trained on all rows, also on those without labels, so that they
    estimate P(some label under the node | x).

    Raises BadParameter if the rows are not in memory and the solver is not sgd, BadData if no row
    carries a label.
    """
    if parameters.solver == "sgd":
        return _descend(source, parameters, tools)
    if source.reads != "rows":
        raise BadParameter(f"solver: expected sgd to train on a stream, found {parameters.solver}")
    data = all_rows(source)
    solving = parameters.solving()._replace(tail=data.rows.tail)
    weighed = weigh(data.rows, parameters.idf, data.labels.weights)
    data = data._replace(rows=weighed.rows)
    trees = [
        grow(weighed, shape, _members(data.labels, shape), solving, tree_tools)
        for tree_tools, shape in _shapes(source, parameters, data, tools)
    ]
    return Trained.from_trees(
        trees, len(source.census.label_rows), source.census.n_features, "logistic", parameters
    )


def _descend(source: RowSource, parameters: PltParameters, tools: Tools) -> Trained:
    """Train by gradient descent.

    The rows are read once for each epoch, and once more for k-means trees. Memory: the weights, two
    windows, and for k-means trees 2,048 bytes a label until the training begins.
    """
    census = source.census
    census.check_labelled()
    previous_state = tools.passes.state
    if previous_state is not None:
        assert previous_state.ensemble is not None
        shapes = [
            (tools.of_tree(tree, parameters.trees), shape_of(old.child_ptr, old.node_label))
            for tree, old in enumerate(trees_of(previous_state.ensemble))
        ]
    else:
        shapes = list(_shapes(source, parameters, None, tools))
    trees, report, state = train_trees(
        source,
        shapes,
        Descent(parameters.rate, parameters.l2, parameters.epochs, parameters.prune),
        parameters.memory_mib << 20,
        tools,
    )
    left_out = (
        "memory_mib: expected room for all weights, found less: features were left out "
        f"{report['passed_over']} times"
    )
    return Trained.from_trees(
        trees,
        len(census.label_rows),
        census.n_features,
        "logistic",
        parameters,
        report=report,
        warnings=[left_out] if report["passed_over"] else [],
        state=state,
    )


def estimate_plt(data: TrainingSet, parameters: PltParameters, tools: Tools) -> SizeEstimate:
    """Return a bound on the size of the model that `fit_plt` would train.

    The limit `memory_mib`, which may make the model smaller, is not taken into account.
    """
    weighed = (
        data._replace(rows=weigh(data.rows, parameters.idf, data.labels.weights).rows)
        if parameters.solver == "batch"
        else None
    )
    return estimate_size(
        data,
        [
            (shape, _members(data.labels, shape))
            for _, shape in _shapes(MemorySource(data), parameters, weighed, tools)
        ],
        tools,
    )


def _shapes(
    source: RowSource, p: PltParameters, weighed: TrainingSet | None, tools: Tools
) -> Iterator[tuple[Tools, Shape]]:
    """Yield (tools of the tree, shape) of each tree over the labels that rows carry.

    weighed  the rows by which labels are clustered; None: the rows of the source, projected to
             fewer dimensions
    """
    _, counts = source.census.weighed.rounded()
    vectors = None
    labels = np.flatnonzero(counts).astype(np.int32)
    if p.tree == "kmeans":
        vectors = (
            label_representations(*weighed, tools) if weighed else projected_vectors(source, tools)
        )
    for tree in range(p.trees):
        tree_tools = tools.of_tree(tree, p.trees)
        if vectors is not None:
            shape = balanced_shape(vectors, labels, p.leaf_size, p.arity, tree_tools)
        else:
            shape = (
                random_shape(labels, p.arity, tree_tools.seed)
                if p.tree == "random"
                else huffman_shape(labels, counts[labels], p.arity)
            )
        yield tree_tools, shape


def _members(labels: LabelRows, shape: Shape) -> Members:
    """Return the rows of each leaf's label, and after them the rows without labels.

    The latter are negatives at the root.
    """
    members = members_of(*rows_by_label(labels), shape.labels)
    without = np.flatnonzero(np.diff(labels.indptr) == 0).astype(np.int32)
    return members._replace(
        ptr=np.append(members.ptr, members.ptr[-1] + len(without)),
        rows=np.concatenate([members.rows, without]),
    )


def regrow_plt(parameters: PltParameters, rows: SparseRows) -> Regrowth:
    """Return the object that adds new labels to trees and trains them further.

    It needs the batch solver. In a tree that is not clustered, a group that is too large is divided
    at random. Raises BadParameter for solver sgd.
    """
    p = parameters
    if p.solver == "sgd":
        raise BadParameter(
            "solver: expected batch, found sgd, which cannot go on from its weights alone"
        )

    def divide(vectors: SparseRows, labels: NDArray[np.int32], tools: Tools) -> Shape:
        return (
            balanced_shape(vectors, labels, p.leaf_size, p.arity, tools)
            if p.tree == "kmeans"
            else random_shape(labels, p.arity, tools.seed)
        )

    usual = p.leaf_size if p.tree == "kmeans" else p.arity
    return Regrowth(p.solving(), p.idf, _members, divide, 2 * usual)


PLT = TrainerSpec(
    name="plt",
    about="probabilistic label trees: calibrated scores, and training on files that do not "
    "fit in memory",
    parameters=PltParameters,
    fit=fit_plt,
    estimate=estimate_plt,
    reads="passes",
    shows=True,
    growth=regrow_plt,
    plan=lambda p: PassPlan("epochs", p.epochs, True) if p.solver == "sgd" else None,
    alone=lambda p: (
        None if p.solver == "batch" else f"with solver={p.solver}, which learns row by row"
    ),
    weighs=lambda p: p.solver == "batch",
    worker_bytes=lambda data, p: solver_bytes(data.rows),
)
