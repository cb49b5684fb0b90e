"""Trainer `huffman-tree`: embeddings and a fixed tree of softmax nodes; scores are exact probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from service.trainers.shape import Shape
from service.trainers.softmax.clusters import clustered_shape, label_vectors
from service.trainers.softmax.parameters import SoftmaxParameters
from service.trainers.softmax.shapes import first_shape, topology_of
from service.trainers.softmax.training import estimate_softmax, train_embeddings, train_softmax
from service.trainers.source import RowSource
from service.trainers.spec import Trained, TrainerSpec
from service.trainers.work import Tools


class HuffmanTreeParameters(SoftmaxParameters):
    """Parameters of `huffman-tree`."""

    tree: Literal["huffman", "random", "kmeans", "clustered", "flat"] = Field(
        "huffman",
        description="least deep for frequent labels, random, alike labels together by their rows or by "
        "embeddings (which trains twice), or one node of all labels",
    )


def fit_huffman_tree(source: RowSource, parameters: HuffmanTreeParameters, tools: Tools) -> Trained:
    """Train embeddings and the nodes of a fixed tree, on rows that are read for each pass.

    Source: Jernite, Choromanska and Sontag 2017, section 7 (the baselines); with arity 2 the hierarchical
    softmax of fastText. Raises BadParameter for a flat tree of too many labels, BadData where no row carries
    a label.
    """
    census = source.census
    parameters.check_features(census.n_features)
    census.check_labelled()
    if parameters.tree == "clustered":
        shape = _clustered(source, parameters, tools)
    else:
        shape = first_shape(parameters.tree, parameters.arity, source, tools)
    arity = max(parameters.arity, len(shape.labels)) if parameters.tree == "flat" else parameters.arity
    topology = topology_of(shape, arity, len(census.label_rows))
    return train_softmax(source, parameters, topology, None, tools)


def _clustered(source: RowSource, parameters: HuffmanTreeParameters, tools: Tools) -> Shape:
    """Return the clustering tree of the embeddings that a training on a Huffman tree gives."""
    arity, counts = parameters.arity, source.census.label_rows

    def first_progress(_: str, done: int, total: int) -> None:
        tools.progress("first embeddings", done, total)

    first = topology_of(first_shape("huffman", arity, source, tools), arity, len(counts))
    embedding = train_embeddings(source, parameters, first, replace(tools, progress=first_progress))
    labels = np.flatnonzero(counts).astype(np.int32)
    vectors = label_vectors(source, labels, embedding, parameters.task == "text")
    return clustered_shape(vectors, labels, counts[labels], arity, tools.seeded(0))


HUFFMAN_TREE = TrainerSpec(
    name="huffman-tree",
    about="embeddings and a fixed tree: exact probabilities of all labels, next words of texts",
    parameters=HuffmanTreeParameters,
    fit=fit_huffman_tree,
    estimate=estimate_softmax,
    reads="passes",
    is_exact=True,
)
