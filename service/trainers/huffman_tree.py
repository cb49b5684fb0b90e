"""Trainer `huffman-tree`: embeddings and a fixed tree of softmax nodes; scores are exact probabilities."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.trainers.softmax_bounds import bound_softmax, estimate_softmax
from service.trainers.softmax_parameters import SoftmaxParameters
from service.trainers.softmax_shapes import first_shape, topology_of
from service.trainers.softmax_training import train_softmax
from service.trainers.spec import Trained, TrainerSpec, TrainingSet
from service.trainers.work import Crew, Progress


class HuffmanTreeParameters(SoftmaxParameters):
    """Parameters of `huffman-tree`."""

    tree: Annotated[
        Literal["huffman", "random", "kmeans", "flat"],
        Field(
            description="least deep for frequent labels, random, alike labels together, or one node of all "
            "labels"
        ),
    ] = "huffman"


def train_huffman_tree(
    data: TrainingSet, parameters: HuffmanTreeParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train embeddings and the nodes of a fixed tree.

    Source: Jernite, Choromanska and Sontag 2017, section 7 (the baselines); with arity 2 the hierarchical
    softmax of fastText. Raises BadParameter for a flat tree of too many labels.
    """
    parameters.check_features(data.rows.n_features)
    shape = first_shape(parameters.tree, parameters.arity, data, seed, crew, progress)
    arity = max(parameters.arity, len(shape.labels)) if parameters.tree == "flat" else parameters.arity
    topology = topology_of(shape, arity, data.labels.n_labels)
    return train_softmax(data, parameters, topology, None, seed, crew, progress)


HUFFMAN_TREE = TrainerSpec(
    name="huffman-tree",
    about="embeddings and a fixed tree: exact probabilities of all labels, next words of texts",
    parameters=HuffmanTreeParameters,
    train=train_huffman_tree,
    estimate=estimate_softmax,
    bound=bound_softmax,
)
