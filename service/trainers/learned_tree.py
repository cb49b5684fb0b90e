"""Trainer `learned-tree`: label tree and embeddings learned together; scores are exact probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from service.errors import BadParameter
from service.kernels.training.softmax_assign import Rule
from service.trainers.parameters import choice, real, whole
from service.trainers.softmax_bounds import bound_softmax, estimate_softmax
from service.trainers.softmax_parameters import SoftmaxParameters
from service.trainers.softmax_shapes import first_shape, topology_of
from service.trainers.softmax_training import Learning, train_softmax
from service.trainers.spec import Trained, TrainerSpec, TrainingSet
from service.trainers.work import Crew, Progress


@dataclass(frozen=True)
class LearnedTreeParameters(SoftmaxParameters):
    """Parameters of `learned-tree`."""

    start: str = choice(
        "auto", ("auto", "kmeans", "huffman", "random"), "the first tree; auto: huffman, text: random"
    )
    updates: int = whole(
        50, 0, 10_000, "how often labels are dealt to the nodes anew; 0: the first tree stays"
    )
    learning: float = real(
        0.0, 0.0, 1.0, "the tree is learnt over this share of the passes; 0: half, with settle one pass"
    )
    depth: int = whole(0, 0, 64, "the most levels of nodes; 0: no bound")
    slack: float = real(
        1.3,
        0.0,
        4096.0,
        "a child has at most slack / arity of its node's labels; 0: no bound. With depth=0 "
        "and slack=0 the tree is well-formed, as algorithm 2 has it",
    )
    assignment: str = choice("eq10", ("eq10", "eq12"), "by which gradient of the paper's J labels are dealt")
    statistics: str = choice(
        "means",
        ("means", "paths"),
        "what is known of a label: its mean representation, or as in the paper the probabilities on its path",
    )
    settle: str = choice(
        "auto", ("auto", "yes", "no"), "whether nodes begin anew once the tree is learnt; auto: with adagrad"
    )

    def validate(self) -> None:
        """Raise BadParameter when a value is out of its range, also beside another."""
        super().validate()
        if 0 < self.slack < 1:
            raise BadParameter(f"slack: expected 0 or at least 1, found {self.slack:g}")

    def first_tree(self) -> str:
        """Return the tree that training begins with."""
        if self.start != "auto":
            return self.start
        return "random" if self.task == "text" else "huffman"

    def learns(self) -> Learning:
        """Return how the tree is learnt, with what was left open."""
        p = self.descent()
        settles = p.is_adaptive if self.settle == "auto" else self.settle == "yes"
        share = self.learning or (min(0.5, 1 / p.epochs) if settles else 0.5)
        rule = Rule(self.depth, self.slack, self.assignment == "eq12")
        return Learning(self.updates, share, rule, self.statistics == "means", settles)


def train_learned_tree(
    data: TrainingSet, parameters: LearnedTreeParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train embeddings, nodes and the tree.

    Source: Jernite, Choromanska and Sontag 2017, algorithms 1 and 2; deviations stand in
    docs/trainers/learned-tree.md. Raises BadParameter for a depth that has no room for all labels.
    """
    parameters.check_features(data.rows.n_features)
    shape = first_shape(parameters.first_tree(), parameters.arity, data, seed, crew, progress)
    n_labels, depth = len(shape.labels), parameters.depth
    if depth and parameters.arity**depth < n_labels:
        room = f"{parameters.arity}^{depth} = {parameters.arity**depth}"
        raise BadParameter(f"depth: expected room for {n_labels} labels, found {room}")
    topology = topology_of(shape, parameters.arity, data.labels.n_labels)
    return train_softmax(data, parameters, topology, parameters.learns(), seed, crew, progress)


LEARNED_TREE = TrainerSpec(
    name="learned-tree",
    about="label tree and embeddings learned together: exact probabilities, next words of texts",
    parameters=LearnedTreeParameters,
    train=train_learned_tree,
    estimate=estimate_softmax,
    bound=bound_softmax,
)
