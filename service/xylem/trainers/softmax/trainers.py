"""Trainers `huffman-tree` and `learned-tree`: embeddings and a tree of softmax nodes, with exact
probabilities.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import BadParameter, SparseRows
from xylem.trainers.softmax.extending import SoftmaxGrowth
from xylem.trainers.softmax.parameters import (
    HuffmanTreeParameters,
    LearnedTreeParameters,
    SoftmaxParameters,
)
from xylem.trainers.softmax.shapes import (
    clustered_shape,
    first_shape,
    label_vectors,
    topology_of,
    tree_of,
)
from xylem.trainers.softmax.training import descend, estimate_softmax
from xylem.trainers.softmax.tree import SoftmaxTree
from xylem.trainers.source import RowSource, Tools
from xylem.trainers.spec import Trained, TrainerSpec
from xylem.trainers.state import EVERY_PASS, PassPlan
from xylem_store import EMBEDDING, Embedding, group_of


def fit_softmax(source: RowSource, parameters: SoftmaxParameters, tools: Tools) -> Trained:
    """Train embeddings, the nodes of a tree and, for `learned-tree`, the tree.

    The rows are read once for each pass. Source: Jernite, Choromanska and Sontag 2017. A fixed tree
    is that of section 7 (the baselines); with arity 2 it is the hierarchical softmax of fastText. A
    learned tree follows algorithms 1 and 2; docs/trainers/learned-tree.md lists the deviations.
    Raises BadParameter for a flat tree with too many labels, for a depth that has no room for all
    labels, or for rows that do not fit the task; BadData if no row carries a label.
    """
    census = source.census
    dim = parameters.dim
    n_places, transition_rows = parameters.transitions()
    if census.n_features % n_places:
        raise BadParameter(
            f"task: expected labels for rows that are no windows of words, found {parameters.task}"
        )
    census.check_labelled()
    first = _first_tree(source, parameters, tools) if tools.passes.state is None else None
    state, report, learner_state = descend(source, parameters, first, tools)
    fields: dict[str, Any] = {
        "extra": group_of(
            EMBEDDING,
            Embedding(
                np.ascontiguousarray(state.network.embedding[:, :dim]),
                np.ascontiguousarray(state.network.transition[:, :transition_rows, :dim]),
                np.array([int(parameters.descent().is_mean)], np.int32),
            ),
        ),
        "report": report,
        "state": learner_state,
    }
    return Trained.from_trees(
        [tree_of(state.tree, state.network, dim)],
        len(census.label_rows),
        dim,
        "softmax",
        parameters,
        **fields,
    )


def _first_tree(source: RowSource, parameters: SoftmaxParameters, tools: Tools) -> SoftmaxTree:
    """Return the tree that training begins with.

    A clustered tree is made from the embeddings of a first training on Huffman's tree.
    """
    tree = parameters.first_tree()
    arity = parameters.arity
    counts = source.census.label_rows
    learning = parameters.learns()
    if tree == "clustered":

        def first_progress(_: str, done: int, total: int) -> None:
            tools.progress("first embeddings", done, total)

        huffman = topology_of(first_shape("huffman", arity, source, tools), arity, len(counts))
        state, _, _ = descend(
            source, parameters, huffman, replace(tools, progress=first_progress, passes=EVERY_PASS)
        )
        labels = np.flatnonzero(counts).astype(np.int32)
        vectors = label_vectors(
            source,
            labels,
            np.ascontiguousarray(state.network.embedding[:, : parameters.dim]),
            parameters.task == "text",
        )
        shape = clustered_shape(vectors, labels, counts[labels], arity, tools.seeded(0))
    else:
        shape = first_shape(tree, arity, source, tools)
    n_labels = len(shape.labels)
    depth = 0 if learning is None else learning.rule.depth
    if depth and arity**depth < n_labels:
        raise BadParameter(
            f"depth: expected room for {n_labels} labels, found {arity}^{depth} = {arity**depth}"
        )
    return topology_of(shape, max(arity, n_labels) if tree == "flat" else arity, len(counts))


def _growth(parameters: SoftmaxParameters, rows: SparseRows) -> SoftmaxGrowth:
    """Return the object that adds new labels to a tree. Raises BadParameter for task=text."""
    if parameters.task == "text":
        raise BadParameter(
            "task: expected labels, found text, whose labels are the words of its vocabulary"
        )
    return SoftmaxGrowth(parameters)


HUFFMAN_TREE: TrainerSpec[Any] = TrainerSpec(
    name="huffman-tree",
    about="embeddings and a fixed tree: exact probabilities of all labels, next words of texts",
    parameters=HuffmanTreeParameters,
    fit=fit_softmax,
    estimate=estimate_softmax,
    reads="passes",
    is_exact=True,
    growth=_growth,
    # the number of passes cannot change later if the rate falls over them, or if the tree is
    # learnt in a share of them
    plan=lambda p: PassPlan(
        "epochs", p.descent().epochs, p.descent().is_adaptive and p.learns() is None
    ),
)

LEARNED_TREE = replace(
    HUFFMAN_TREE,
    name="learned-tree",
    about="label tree and embeddings learned together: exact probabilities, next words of texts",
    parameters=LearnedTreeParameters,
)
