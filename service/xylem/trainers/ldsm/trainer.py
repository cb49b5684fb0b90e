"""Trainer `ldsm`: an ensemble of decision trees of logarithmic depth, in which a row may go to
several children.
"""

import heapq
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from xylem.base import BadData, BadParameter, LabelRows, Parameters, fault, offsets
from xylem.trainers.kernels.problem import pack_tile
from xylem.trainers.ldsm.regressors import CHILDREN_MAX, NAG, SGD, Learning
from xylem.trainers.ldsm.report import LdsmTree, SplitFacts, report_of
from xylem.trainers.ldsm.split import Examples, Split, split_node
from xylem.trainers.representations import rerank_arrays, squared_lengths
from xylem.trainers.size import SizeEstimate, TreeCounts, leaf_bytes
from xylem.trainers.source import RowSource, Tools, TrainingSet, derived_seed
from xylem.trainers.spec import (
    Alpha,
    DecisionTrees,
    Gamma,
    Idf,
    LeafLabels,
    MaxDepth,
    Prune,
    Rerank,
    Trained,
    TrainerSpec,
)
from xylem.trainers.weighing import PART_ROWS, Weighed, parts_of, weigh
from xylem.trainers.windows import load_rows, mapped
from xylem_store import F32, I32, LANES, U8, Chunk, Tree

# Bounds of the default of max_nodes.
NODES_LEAST = 2000
NODES_MOST = 65_536

# for each optimiser its number in kernels, and the default size of its first step
_OPTIMISERS = {"sgd": (SGD, 1.0), "nag": (NAG, 0.5)}


class LdsmParameters(Parameters):
    """Parameters of `ldsm`; the defaults, chosen on held-out
    training rows, are for rows of length 1.
    """

    trees: DecisionTrees = 50
    arity: int = Field(default=4, ge=2, le=CHILDREN_MAX, description="children of a node (M)")
    max_nodes: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        description="most nodes of a tree (T_max); 0: 2000, or twice the number of labels if "
        "that is "
        "more, up to 65,536",
    )
    max_depth: MaxDepth = 32
    max_copies: float = Field(
        default=32.0,
        ge=1.0,
        le=1000.0,
        description="most rows in a tree's leaves, in multiples of the training rows: limits "
        "memory and time",
    )
    leaf_labels: LeafLabels = 100
    min_rows: int = Field(
        default=2, ge=2, le=1_000_000, description="a node with fewer rows is not split"
    )
    lambda1: float = Field(
        default=2.0,
        ge=0.0,
        le=1000.0,
        description="weight of the class integrity in the objective J",
    )
    lambda2: float = Field(
        default=1.25,
        ge=0.0,
        le=1000.0,
        description="weight of the multi-way penalty in the objective J",
    )
    optimiser: Literal["sgd", "nag"] = Field(
        default="sgd", description="sgd: gradient descent; nag: normalised adaptive gradient"
    )
    step: float = Field(
        default=0.0,
        ge=0.0,
        le=1000.0,
        description="size of the first step; 0: 1 with sgd, 0.5 with nag",
    )
    epochs: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="passes over a node's rows; with n > 5000 rows: epochs * sqrt(5000 / n)",
    )
    prune: Prune = 0.3
    idf: Idf = "auto"
    shares: Literal["rows", "labels"] = Field(
        default="rows",
        description="value of a label in a leaf: its share of the leaf's rows, or of their labels",
    )
    rerank: Rerank = "no"
    alpha: Alpha = 0.6
    gamma: Gamma = 30.0

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if 0 < self.max_nodes <= self.arity:
            expected = f"0, or more than arity, {self.arity}, so that a tree can have a split"
            raise fault(f"expected {expected}; found {self.max_nodes}", "max_nodes")
        return self

    def most_nodes(self, n_labels: int) -> int:
        """Return the most nodes that a tree may have, if n_labels labels occur."""
        return self.max_nodes or max(NODES_LEAST, min(2 * n_labels, NODES_MOST))

    def learning(self) -> Learning:
        """Return the options of the training of regressors."""
        optimiser, step = _OPTIMISERS[self.optimiser]
        descent_options = self.epochs, optimiser, self.step or step, self.prune
        return Learning(self.arity, self.lambda1, self.lambda2, *descent_options)


# (Labels, ascending; the number of a node's rows that carry each).
Histogram = tuple[I32, I32]

_NOTHING: Histogram = np.empty(0, np.int32), np.empty(0, np.int32)


@dataclass
class _Node:
    """A node while its tree grows.

    histogram  the labels of a leaf; empty at an inner node
    children   positions in `_Growth.nodes`; empty at a leaf
    """

    depth: int
    n_rows: int
    histogram: Histogram
    children: range = range(0)
    chunk: Chunk | None = None


class _Growth:
    """The growth of one tree (LdSM, algorithm 1).

    waiting  heap of (-priority, position in `nodes`, rows) of the leaves that may be split
    """

    def __init__(
        self, examples: Examples, rows: I32, parameters: LdsmParameters, seed: int
    ) -> None:
        self.examples = examples
        self.parameters = parameters
        self.learning = parameters.learning()
        self.state = np.array([seed], np.uint64)
        self.rows_max = int(parameters.max_copies * len(rows))
        self.rows_held = len(rows)
        self.nodes: list[_Node] = []
        self.splits: list[SplitFacts] = []
        self.waiting: list[tuple[int, int, I32]] = []
        counts = np.bincount(examples.labels.indices)
        labels = np.flatnonzero(counts)
        counts = counts[labels]
        self.nodes_max = parameters.most_nodes(len(labels))
        histogram = labels.astype(np.int32), counts.astype(np.int32)
        self._add(0, rows, histogram, int(counts.sum() - counts.max()))

    def grow(self, stop: U8) -> None:
        """Split the leaf of the highest priority, until no leaf can be split or a limit is reached.

        For equal priorities it is the older leaf. Deviations: a leaf whose priority is 0 (only one
        label occurs in it) is not split, not even the root; a split must fit into max_nodes, while
        the paper may exceed T_max by M - 1.
        """
        nodes_limit = self.nodes_max - self.parameters.arity
        while self.waiting and len(self.nodes) <= nodes_limit and not stop[0]:
            _, number, rows = heapq.heappop(self.waiting)
            node = self.nodes[number]
            split = split_node(self.examples, rows, self.learning, self.state, stop)
            rows_in_leaves = (
                self.rows_held - node.n_rows + int(split.sizes[: split.n_children].sum())
            )
            serves = split.n_children > 0 and rows_in_leaves <= self.rows_max
            self.splits.append(
                SplitFacts(node.depth, node.n_rows, serves, split.n_retries, *split.quality)
            )
            if serves:
                self.rows_held = rows_in_leaves
                self._add_children(node, rows, split)

    def _add(self, depth: int, rows: I32, histogram: Histogram, priority: int) -> None:
        """Add a leaf, and put it on the heap if it may be split."""
        p = self.parameters
        if priority and len(rows) >= p.min_rows and depth < p.max_depth:
            heapq.heappush(self.waiting, (-priority, len(self.nodes), rows))
        self.nodes.append(_Node(depth, len(rows), histogram))

    def _add_children(self, node: _Node, rows: I32, split: Split) -> None:
        """Add the children of a split.

        The priority of a child (algorithm 1) is the number of its labels, with repeats, that are
        not its most frequent label.
        """
        n_children = split.n_children
        ascending = np.argsort(split.features)
        n_weights = np.empty(len(ascending), np.int32)
        tile = np.pad(split.weights, ((0, 0), (0, LANES - split.weights.shape[1])))
        lane, weight = pack_tile(tile, ascending, n_children, 0.0, n_weights)
        used = n_weights > 0
        features = split.features[ascending[used]]
        bias = split.weights[-1, :n_children].copy()
        node.chunk = Chunk(features, offsets(n_weights[used]), lane.astype(np.int32), weight, bias)
        node.children = range(len(self.nodes), len(self.nodes) + n_children)
        node.histogram = _NOTHING
        child_counts = split.counts.T.copy()
        priorities = (child_counts.sum(axis=1) - child_counts.max(axis=1)).tolist()
        for child in range(n_children):
            counts = child_counts[child]
            goes = (split.directions >> child & 1) > 0
            histogram = split.labels[counts > 0], counts[counts > 0]
            self._add(node.depth + 1, rows[goes], histogram, priorities[child])

    def finish(self, weighed: Weighed) -> LdsmTree:
        """Return the tree, its nodes numbered breadth-first; its weights score original rows."""
        order = [0]
        for number in order:
            order.extend(self.nodes[number].children)
        nodes = [self.nodes[number] for number in order]
        child_ptr = np.concatenate([[1], 1 + np.cumsum([len(node.children) for node in nodes])])
        tree = Tree(
            child_ptr=child_ptr.astype(np.int32),
            node_label=np.full(len(nodes), -1, np.int32),
            chunks=[node.chunk and weighed.plain_chunk(node.chunk) for node in nodes],
            histograms=[None if node.children else self._values(node) for node in nodes],
        )
        leaves = [node for node in nodes if not node.children]
        depth = max(node.depth for node in leaves)
        return LdsmTree(tree, len(leaves), depth, self.rows_held, self.splits)

    def _values(self, node: _Node) -> tuple[I32, F32]:
        """Return the most frequent labels of a leaf, ascending, and their shares.

        Of labels with equal counts the smaller ones come first.
        """
        labels, counts = node.histogram
        denominator = node.n_rows if self.parameters.shares == "rows" else int(counts.sum())
        if len(labels) > self.parameters.leaf_labels:
            frequent = np.sort(np.argsort(-counts, kind="stable")[: self.parameters.leaf_labels])
            labels = labels[frequent]
            counts = counts[frequent]
        return labels, (counts / np.float32(denominator)).astype(np.float32)


@dataclass(frozen=True)
class _Grow:
    """A step that grows a tree; the tree's number determines its seed.

    labelled  int32[..]  the rows that carry labels
    is_spilled  whether the rows are in a temporary file; the rows of a node are then copied
              to another one. None: they are in memory
    """

    weighed: Weighed
    labels: LabelRows
    labelled: I32
    parameters: LdsmParameters
    seed: int
    is_spilled: bool = False

    def workspace(self) -> Examples:
        """Return the training set with the workspaces of a thread."""
        rows = self.weighed.rows._replace(tail=0)  # its kernels look up all features
        ranks = np.zeros(rows.n_features, np.int32), np.zeros(self.labels.n_labels, np.int32)
        if not self.is_spilled:
            return Examples(
                rows, self.labels, *ranks, np.empty(0, np.int32), np.empty(0, np.float32)
            )
        copy = (mapped(len(rows.indices), dtype) for dtype in (np.int32, np.float32))
        return Examples(rows, self.labels, *ranks, *copy)

    def run(self, number: int, examples: Examples, stop: U8) -> LdsmTree:
        """Return the tree of that number."""
        growth = _Growth(examples, self.labelled, self.parameters, derived_seed(self.seed, number))
        growth.grow(stop)
        return growth.finish(self.weighed)


def fit_ldsm(source: RowSource, parameters: LdsmParameters, tools: Tools) -> Trained:
    """Train LdSM trees that differ by their initial weights and the order of their rows.

    Source: LdSM, algorithms 1 to 5; deviations: `_Growth.grow`, `split_node`, `train_regressors`.
    Rows without labels are left out; shares are relative to the rows with labels. Each thread grows
    a tree at a time; the bits do not depend on the number of threads. Time: a split reads its
    node's rows at most epochs * (1 + RETRIES) times, and the nodes of a depth hold at most
    max_copies * rows. Memory: the trees, and for each tree that is being grown 4 * max_copies bytes
    a row and the memory of `train_regressors` for a node.
    """
    if source.reads != "rows" and parameters.rerank == "yes":
        raise BadParameter("rerank: expected no to train on a stream, found yes")
    source.census.check_labelled()
    data, is_mapped = load_rows(source, tools.progress)
    for number, part in enumerate(parts_of(data.rows)):
        squares = squared_lengths(part.values, part.indptr)
        # with an infinite squared length no gradient step would be finite
        wrong = np.flatnonzero(~(squares <= np.finfo(np.float32).max))
        if len(wrong):
            row = number * PART_ROWS + wrong[0]
            raise BadData(
                f"row {row}: expected values of a finite squared length, found {squares[wrong[0]]}"
            )
    weighed = weigh(data.rows, parameters.idf, in_place=is_mapped)
    labelled = np.flatnonzero(np.diff(data.labels.indptr)).astype(np.int32)
    grow = _Grow(weighed, data.labels, labelled, parameters, tools.seed, is_mapped)
    forest = tools.collect("trees", grow, range(parameters.trees))
    extra = _extra(data, parameters)
    report = report_of(forest, parameters.arity, int(np.count_nonzero(source.census.label_rows)))
    trees = [grown.tree for grown in forest]
    sizes = (data.labels.n_labels, data.rows.n_features)
    return Trained.from_trees(trees, *sizes, "multiway", parameters, extra=extra, report=report)


def _extra(data: TrainingSet, p: LdsmParameters) -> dict[str, NDArray[Any]]:
    """Return the mean rows of the labels, if predictions are re-ranked by them."""
    return rerank_arrays(data.rows, data.labels, p.alpha, p.gamma) if p.rerank == "yes" else {}


def _tree_bytes(data: TrainingSet, p: LdsmParameters) -> int:
    """Return the memory in bytes that growing a tree takes, as in `fit_ldsm`.

    A copy of the rows of the root is added to it.
    """
    feature_bytes = 68 if p.optimiser == "nag" else 32
    label_bytes = 8 * p.arity
    row_bytes = int(4 * p.max_copies * data.rows.n_rows) + 8 * len(data.rows.indices)
    return row_bytes + feature_bytes * data.rows.n_features + label_bytes * data.labels.n_labels


def estimate_ldsm(data: TrainingSet, parameters: LdsmParameters, tools: Tools) -> SizeEstimate:
    """Return a bound on the size of the model that `fit_ldsm` would train.

    It is a proven bound, not a forecast, and therefore far above the usual size. A tree has at most
    nodes - 1 children, and at most arity^(d + 1) of them belong to nodes at depth d. A child has at
    most one weight for each feature that occurs. The children of a depth have together at most
    `arity` weights for each value of the rows that its nodes hold (max_copies times the training
    rows). Nothing is trained, so alpha_per_depth is empty.
    """
    p = parameters
    labelled = np.diff(data.labels.indptr) > 0
    n_entries = int(np.diff(data.rows.indptr)[labelled].sum())
    n_features = len(np.unique(data.rows.indices))
    n_labels = len(np.unique(data.labels.indices))
    entries_max = int(p.max_copies * n_entries) * p.arity
    nodes_left = p.most_nodes(n_labels) - 1
    tree_bound = 0
    for depth in range(p.max_depth):
        n_children = min(
            nodes_left, p.arity ** min(depth + 1, 40), -(-entries_max // max(1, n_features))
        )
        tree_bound += min(n_children * n_features, entries_max)
        nodes_left -= n_children
    bound = p.trees * tree_bound
    tools.progress("estimate", 1, 1)
    n_nodes = p.trees * p.most_nodes(n_labels)
    trees = TreeCounts(
        n_nodes=n_nodes,
        n_chunks=n_nodes,
        n_rows=bound,
        n_columns=data.rows.n_features,
        n_bytes=leaf_bytes(n_nodes, n_nodes * min(p.leaf_labels, n_labels))
        + sum(array.nbytes for array in _extra(data, p).values()),
    )
    return SizeEstimate.from_counts(bound, n_features, n_labels, trees=trees)


LDSM = TrainerSpec(
    name="ldsm",
    about="decision trees of logarithmic depth that may send a row several ways",
    parameters=LdsmParameters,
    fit=fit_ldsm,
    estimate=estimate_ldsm,
    reads="passes",
    alone=lambda p: None,
    worker_bytes=_tree_bytes,
)
