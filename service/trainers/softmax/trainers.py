"""Trainers `huffman-tree` and `learned-tree`: embeddings and a tree of softmax nodes, exact probabilities."""

from dataclasses import replace
from typing import Any

import numpy as np

from service.base.errors import BadParameter
from service.base.rows import SparseRows
from service.trainers.shape import Shape
from service.trainers.softmax.extending import SoftmaxGrowth
from service.trainers.softmax.parameters import (
    HuffmanTreeParameters,
    LearnedTreeParameters,
    SoftmaxParameters,
)
from service.trainers.softmax.shapes import clustered_shape, first_shape, label_vectors, topology_of
from service.trainers.softmax.training import estimate_softmax, train_embeddings, train_softmax
from service.trainers.source import RowSource
from service.trainers.spec import Trained, TrainerSpec
from service.trainers.state import PassPlan
from service.trainers.work import Tools


def fit_softmax(source: RowSource, parameters: SoftmaxParameters, tools: Tools) -> Trained:
    """Train embeddings, the nodes of a tree and, of `learned-tree`, the tree, on rows read for each pass.

    Source: Jernite, Choromanska and Sontag 2017: of a fixed tree section 7 (the baselines), with arity 2 the
    hierarchical softmax of fastText; of a learned one algorithms 1 and 2, deviations stand in
    docs/trainers/learned-tree.md. Raises BadParameter for a flat tree of too many labels, a depth that has no
    room for all labels or rows that the task does not take, BadData where no row carries a label.
    """
    parameters.check_features(source.census.n_features)
    source.census.check_labelled()
    if tools.passes.state is not None:
        return train_softmax(source, parameters, None, tools)
    tree, learning = parameters.first_tree(), parameters.learns()
    if tree == "clustered":
        shape = _clustered(source, parameters, tools)
    else:
        shape = first_shape(tree, parameters.arity, source, tools)
    n_labels, depth = len(shape.labels), 0 if learning is None else learning.rule.depth
    if depth and parameters.arity**depth < n_labels:
        room = f"{parameters.arity}^{depth} = {parameters.arity**depth}"
        raise BadParameter(f"depth: expected room for {n_labels} labels, found {room}")
    arity = max(parameters.arity, n_labels) if tree == "flat" else parameters.arity
    topology = topology_of(shape, arity, len(source.census.label_rows))
    return train_softmax(source, parameters, topology, tools)


def _plan(parameters: SoftmaxParameters) -> PassPlan:
    """Return the passes: of a rate that falls, and of a tree that is learnt in a share of them, they stay."""
    p = parameters.descent()
    return PassPlan("epochs", p.epochs, p.is_adaptive and parameters.learns() is None)


def _growth(parameters: SoftmaxParameters, rows: SparseRows) -> SoftmaxGrowth:
    """Return how a tree gets new labels. Raises BadParameter for one of words."""
    if parameters.task == "text":
        raise BadParameter("task: expected labels, found text, whose labels are the words of its vocabulary")
    return SoftmaxGrowth(parameters)


def _clustered(source: RowSource, parameters: SoftmaxParameters, tools: Tools) -> Shape:
    """Return the clustering tree of the embeddings that a training on a Huffman tree gives."""
    arity, counts = parameters.arity, source.census.label_rows

    def first_progress(_: str, done: int, total: int) -> None:
        tools.progress("first embeddings", done, total)

    first = topology_of(first_shape("huffman", arity, source, tools), arity, len(counts))
    embedding = train_embeddings(source, parameters, first, replace(tools, progress=first_progress))
    labels = np.flatnonzero(counts).astype(np.int32)
    vectors = label_vectors(source, labels, embedding, parameters.task == "text")
    return clustered_shape(vectors, labels, counts[labels], arity, tools.seeded(0))


HUFFMAN_TREE: TrainerSpec[Any] = TrainerSpec(
    name="huffman-tree",
    about="embeddings and a fixed tree: exact probabilities of all labels, next words of texts",
    parameters=HuffmanTreeParameters,
    fit=fit_softmax,
    estimate=estimate_softmax,
    reads="passes",
    is_exact=True,
    growth=_growth,
    plan=_plan,
)

LEARNED_TREE = replace(
    HUFFMAN_TREE,
    name="learned-tree",
    about="label tree and embeddings learned together: exact probabilities, next words of texts",
    parameters=LearnedTreeParameters,
)
