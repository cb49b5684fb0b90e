"""Trainer `learned-tree`: label tree and embeddings learned together; scores are exact probabilities."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from service.base.errors import BadParameter
from service.base.faults import fault
from service.trainers.softmax.dealing import Rule
from service.trainers.softmax.parameters import SoftmaxParameters
from service.trainers.softmax.passes import TreeLearning
from service.trainers.softmax.shapes import first_shape, topology_of
from service.trainers.softmax.training import estimate_softmax, train_softmax
from service.trainers.source import RowSource
from service.trainers.spec import Trained, TrainerSpec
from service.trainers.work import Tools


class LearnedTreeParameters(SoftmaxParameters):
    """Parameters of `learned-tree`."""

    start: Literal["auto", "kmeans", "huffman", "random"] = Field(
        "auto", description="the first tree; auto: huffman, with task=text random"
    )
    updates: int = Field(
        50, ge=0, le=10_000, description="how often labels are dealt to nodes anew; 0: the first tree stays"
    )
    learning: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="the tree is learnt over this share of the passes; 0: one pass, or half of one",
    )
    depth: int = Field(0, ge=0, le=64, description="the most levels of nodes; 0: no bound")
    slack: float = Field(
        1.3,
        ge=0.0,
        le=4096.0,
        description="a child has at most slack / arity of its node's labels; 0: no bound. With depth=0 "
        "and slack=0 the tree is well-formed, as the paper's algorithm 2 has it",
    )
    assignment: Literal["eq10", "eq12"] = Field(
        "eq10", description="by which gradient of the paper's J labels are dealt"
    )
    statistics: Literal["means", "paths"] = Field(
        "means",
        description="what is known of a label: its mean representation, or as in the paper the "
        "probabilities on its path",
    )
    settle: Literal["yes", "no"] = Field(
        "yes", description="whether nodes begin anew once the tree is learnt; the paper's go on"
    )

    @model_validator(mode="after")
    def _slack_is_enough(self) -> Self:
        if 0 < self.slack < 1:
            raise fault(f"expected 0 or at least 1, found {self.slack:g}", "slack")
        return self

    def first_tree(self) -> str:
        """Return the tree that training begins with."""
        if self.start != "auto":
            return self.start
        return "random" if self.task == "text" else "huffman"

    def learns(self) -> TreeLearning:
        """Return how the tree is learnt, with what was left open."""
        p = self.descent()
        share = self.learning or min(0.5, 1 / p.epochs)
        rule = Rule(self.depth, self.slack, self.assignment == "eq12")
        return TreeLearning(self.updates, share, rule, self.statistics == "means", self.settle == "yes")


def fit_learned_tree(source: RowSource, parameters: LearnedTreeParameters, tools: Tools) -> Trained:
    """Train embeddings, nodes and the tree, on rows that are read for each pass.

    Source: Jernite, Choromanska and Sontag 2017, algorithms 1 and 2; deviations stand in
    docs/trainers/learned-tree.md. Raises BadParameter for a depth that has no room for all labels, BadData
    where no row carries a label.
    """
    census = source.census
    parameters.check_features(census.n_features)
    census.check_labelled()
    shape = first_shape(parameters.first_tree(), parameters.arity, source, tools)
    n_labels, depth = len(shape.labels), parameters.depth
    if depth and parameters.arity**depth < n_labels:
        room = f"{parameters.arity}^{depth} = {parameters.arity**depth}"
        raise BadParameter(f"depth: expected room for {n_labels} labels, found {room}")
    topology = topology_of(shape, parameters.arity, len(census.label_rows))
    return train_softmax(source, parameters, topology, parameters.learns(), tools)


LEARNED_TREE = TrainerSpec(
    name="learned-tree",
    about="label tree and embeddings learned together: exact probabilities, next words of texts",
    parameters=LearnedTreeParameters,
    fit=fit_learned_tree,
    estimate=estimate_softmax,
    reads="passes",
    is_exact=True,
)
