"""Trainers `fastxml` and `pfastrexml`: forests of decision trees whose splits rank labels well."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from xylem.base import Parameters, SparseRows
from xylem.evaluation import A, B, propensities
from xylem.trainers.ranking.tree import GrownTree, Growth, TrainingRows, grow_tree
from xylem.trainers.representations import rerank_arrays
from xylem.trainers.size import SizeEstimate, TreeCounts, leaf_bytes
from xylem.trainers.source import RowSource, Tools, TrainingSet, all_rows, derived_seed
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
from xylem.trainers.tree_criteria import shares_by_depth
from xylem.trainers.weighing import weigh
from xylem_store import F32, I32, U8, Chunk, Tree

# In an estimate, each further tree is allowed this many times the weights of the first one; in
# fact they differ by a few percent.
SPARE = 1.25


class FastXmlParameters(Parameters):
    """Parameters of `fastxml`; `cost` and `eps` were chosen on held-out training rows."""

    trees: DecisionTrees = 50
    max_leaf: int = Field(
        default=10, ge=1, le=1_000_000, description="nodes up to this size are not split"
    )
    max_depth: MaxDepth = 64
    leaf_labels: LeafLabels = 100
    cost: float = Field(
        default=0.45,
        ge=1e-6,
        le=1e6,
        description="weight of the separators' logistic loss against their L1 penalty, for "
        "values of about 1",
    )
    eps: float = Field(
        default=0.1,
        ge=1e-6,
        le=0.99,
        description="stop a separator when its violations are this share of the first ones",
    )
    max_steps: int = Field(
        default=10, ge=1, le=10_000, description="maximum number of Newton steps for one separator"
    )
    prune: Prune = 0.0
    idf: Idf = "auto"

    def label_weights(self, data: TrainingSet) -> F32:
        """Return the weight of each label in the nDCG of splits, float32[K], > 0."""
        return np.ones(data.labels.n_labels, np.float32)

    def extra(self, data: TrainingSet) -> dict[str, NDArray[Any]]:
        """Return the arrays of the version besides its trees, by "group/name"."""
        return {}


class PfastreXmlParameters(FastXmlParameters):
    """Parameters of `pfastrexml`; alpha and gamma were chosen on held-out training rows."""

    propensity_a: float = Field(
        default=A, ge=0.0, le=10.0, description="constant A of the propensities of labels"
    )
    propensity_b: float = Field(
        default=B, ge=0.0, le=1e6, description="constant B of the propensities of labels"
    )
    rerank: Rerank = "yes"
    alpha: Alpha = 0.5
    gamma: Gamma = 30.0

    def label_weights(self, data: TrainingSet) -> F32:
        """Return 1 / propensity of each label, float32[K], >= 1."""
        counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
        label_propensities = propensities(
            counts, data.rows.n_rows, self.propensity_a, self.propensity_b
        )
        return (1.0 / label_propensities).astype(np.float32)

    def extra(self, data: TrainingSet) -> dict[str, NDArray[Any]]:
        """Return the mean rows of the labels, if predictions are re-ranked by them."""
        return (
            rerank_arrays(data.rows, data.labels, self.alpha, self.gamma)
            if self.rerank == "yes"
            else {}
        )


def typical_value(rows: SparseRows) -> float:
    """Return the mean absolute value, weighted by the squares of the values; 1 if all are 0.

    An L1 penalty depends on the scale: for rows that are s times as long, the cost must be divided
    by s to keep the same number of weights. The length of the rows does not measure this scale: if
    a row of length 1 has many values of about the same size, its values are small.
    """
    sizes = np.abs(rows.values.astype(np.float64))
    squares = float((sizes**2).sum())
    return float((sizes**3).sum()) / squares if squares else 1.0


@dataclass(frozen=True)
class _Grow:
    """A step that grows a tree; the tree's number determines its seed.

    labelled  int32[..]  the rows that carry labels
    """

    rows: TrainingRows
    labelled: I32
    growth: Growth
    seed: int

    def workspace(self) -> None:
        """Return None: the step needs no workspace."""

    def run(self, number: int, workspace: None, stop: U8) -> GrownTree:
        """Return the tree of that number."""
        seed = derived_seed(self.seed, number)
        return grow_tree(self.rows, self.labelled.copy(), self.growth, seed, stop)


def grow_forest(
    data: TrainingSet, parameters: FastXmlParameters, label_weight: F32, n_trees: int, tools: Tools
) -> list[GrownTree]:
    """Grow the first n_trees trees, each on all rows that carry labels.

    label_weight  float32[K], > 0: gain of each label in the nDCG of the splits

    Each thread grows a tree at a time; the bits do not depend on the number of threads. Cost and
    memory: see `grow_tree`, for each thread.
    """
    weighed = weigh(data.rows, parameters.idf)
    data = data._replace(rows=weighed.rows)
    discount = 1.0 / np.log2(np.arange(data.labels.n_labels) + 2.0)
    rows = TrainingRows(*data, label_weight, discount, np.concatenate([[0.0], np.cumsum(discount)]))
    p = parameters
    cost = parameters.cost / typical_value(data.rows)
    growth = Growth(
        max_leaf=p.max_leaf,
        max_depth=p.max_depth,
        leaf_labels=p.leaf_labels,
        cost=cost,
        eps=p.eps,
        steps=p.max_steps,
        prune=p.prune,
    )
    labelled = np.flatnonzero(np.diff(data.labels.indptr)).astype(np.int32)
    forest = tools.collect("trees", _Grow(rows, labelled, growth, tools.seed), range(n_trees))
    # one tree after the other, so that only one tree's weights are in memory twice
    for number, grown in enumerate(forest):
        forest[number] = grown._replace(weight=weighed.plain(grown.feature, grown.weight))
    return forest


def tree_of(grown: GrownTree, leaf_weight: F32) -> Tree:
    """Return a tree in the form of the store.

    The value of a label in a leaf is its share of the leaf's rows, times its leaf_weight.
    """
    n_nodes = len(grown.n_rows)
    is_inner = np.diff(grown.child_ptr) > 0
    share = grown.leaf_count / np.repeat(grown.n_rows, np.diff(grown.leaf_ptr))
    value = (share * leaf_weight[grown.leaf_label]).astype(np.float32)
    chunks: list[Chunk | None] = [None] * n_nodes
    histograms: list[tuple[I32, F32] | None] = [None] * n_nodes
    for node in range(n_nodes):
        if is_inner[node]:
            weight_range = slice(grown.weight_ptr[node], grown.weight_ptr[node + 1])
            n_weights = weight_range.stop - weight_range.start
            chunks[node] = Chunk(
                features=grown.feature[weight_range],
                row_ptr=np.arange(n_weights + 1),
                child=np.ones(n_weights, np.int32),
                weight=grown.weight[weight_range],
                bias=np.array([0.0, grown.bias[grown.child_ptr[node] + 1]], np.float32),
            )
        else:
            label_range = slice(grown.leaf_ptr[node], grown.leaf_ptr[node + 1])
            histograms[node] = grown.leaf_label[label_range], value[label_range]
    return Tree(grown.child_ptr, np.full(n_nodes, -1, np.int32), chunks, histograms)


def fit_forest(source: RowSource, parameters: FastXmlParameters, tools: Tools) -> Trained:
    """Train nDCG splits with sparse linear separators; a leaf has the label shares of its rows.

    Source: Prabhu, Varma 2014, "FastXML: a fast, accurate and stable tree-classifier for extreme
    multi-label learning", algorithms 1 and 2; deviations: `grow_tree`, `solve_separator`. Rows
    without labels are left out of the trees.

    PFastreXML: Jain, Prabhu, Varma 2016, "Extreme multi-label loss functions for recommendation,
    tagging, ranking & other missing label applications": a label gains 1 / its propensity in the
    splits' nDCG; its value in a leaf is its propensity-scored share, scaled by the least propensity
    into [0, 1]; re-ranking: `rerank_arrays`. Deviation: gamma and alpha as measured (the authors'
    code: 30 and 0.8).
    """
    data = all_rows(source)
    label_weights = parameters.label_weights(data)
    forest = grow_forest(data, parameters, label_weights, parameters.trees, tools)
    trees = [tree_of(grown, label_weights / label_weights.max()) for grown in forest]
    extra = parameters.extra(data)
    sizes = (data.labels.n_labels, data.rows.n_features)
    return Trained.from_trees(trees, *sizes, "argmax", parameters, extra=extra)


def estimate_forest(data: TrainingSet, parameters: FastXmlParameters, tools: Tools) -> SizeEstimate:
    """Return an estimate of the size of a forest, from its first tree.

    The number of weights of a separator is only known after it is solved. Therefore the first tree
    is grown as in the training, and each further tree is allowed SPARE times its weights, and one
    separator with a weight for every feature. This is a forecast with a margin, not a proven bound.
    alpha_per_depth is that of the first tree. Cost: that of growing a tree, and of the mean rows
    for re-ranking.
    """
    first = grow_forest(data, parameters, parameters.label_weights(data), 1, tools)[0]
    n_weights = len(first.weight)
    n_features = len(np.unique(data.rows.indices))
    n_labels = len(np.unique(data.labels.indices))
    bound = n_weights + (parameters.trees - 1) * (int(SPARE * n_weights) + n_features)
    sums, n_nodes = shares_by_depth(first.child_ptr, first.n_used, np.ones(len(first.n_used))).T
    n_leaf_bytes = leaf_bytes(len(first.n_rows), len(first.leaf_label))
    many = 1 + SPARE * (parameters.trees - 1)
    trees = TreeCounts(
        n_nodes=int(many * len(first.n_rows)),
        n_chunks=int(many * np.count_nonzero(np.diff(first.child_ptr))),
        n_rows=bound,
        n_columns=data.rows.n_features,
        n_bytes=int(many * n_leaf_bytes) + sum(a.nbytes for a in parameters.extra(data).values()),
    )
    alphas = tuple((sums / n_nodes).tolist())
    return SizeEstimate.from_counts(bound, n_features, n_labels, trees=trees, alphas=alphas)


FASTXML: TrainerSpec[Any] = TrainerSpec(
    name="fastxml",
    about="decision trees with nDCG splits: few sparse products a row, whatever the number "
    "of labels",
    parameters=FastXmlParameters,
    fit=fit_forest,
    estimate=estimate_forest,
    alone=lambda p: None,
    worker_bytes=lambda data, p: 8 * len(data.rows.indices) + 150 * data.n_rows,  # see `grow_tree`
)

PFASTREXML = replace(
    FASTXML,
    name="pfastrexml",
    about="fastxml for rare labels: gains by propensity, and re-ranking by the labels' mean rows",
    parameters=PfastreXmlParameters,
)
