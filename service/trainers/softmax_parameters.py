"""Parameters that trainers of softmax trees share, and what they mean together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.errors import BadParameter
from service.trainers.parameters import Parameters, choice, real, whole

TASKS = ("labels", "text")

_RATES = {"sgd": 0.5, "adagrad": 0.1}
_EPOCHS = {"labels": 15, "text": 4}


class Descent(NamedTuple):
    """How parameters are learnt: `is_adaptive` is Adagrad, else plain stochastic gradient descent."""

    epochs: int
    rate: float
    is_adaptive: bool
    is_mean: bool
    by_probability: bool


@dataclass(frozen=True)
class SoftmaxParameters(Parameters):
    """Parameters of trees of softmax nodes over embeddings."""

    task: str = choice("labels", TASKS, "labels of rows; or text: the next words of texts, without labels")
    dim: int = whole(50, 1, 1024, "dimensions of the representation of rows")
    arity: int = whole(20, 2, 4096, "most children of a node")
    epochs: int = whole(0, 0, 1000, "passes over the rows; 0: 15, with task=text 4")
    rate: float = real(0.0, 0.0, 1e3, "the first step; 0: 0.5, with adagrad 0.1")
    optimiser: str = choice(
        "auto", ("auto", "sgd", "adagrad"), "auto: sgd, whose rate falls to 0; with task=text adagrad"
    )
    pooling: str = choice(
        "mean", ("mean", "sum"), "labels: a row is the mean or the sum of its features' embeddings"
    )
    gradient: str = choice(
        "log-probability",
        ("log-probability", "probability"),
        "what steps raise: the logarithm of a child's probability, or the probability, as the paper has it",
    )
    window: int = whole(4, 1, 16, "text: how many words before the next one count")
    transition: str = choice(
        "diagonal",
        ("diagonal", "full"),
        "text: a factor a dimension for each place of the window, or a matrix",
    )
    min_count: int = whole(2, 1, 1_000_000, "text: words that occur less often are one word, <unk>")

    def descent(self) -> Descent:
        """Return how parameters are learnt, with what was left open."""
        is_text = self.task == "text"
        optimiser = ("adagrad" if is_text else "sgd") if self.optimiser == "auto" else self.optimiser
        return Descent(
            self.epochs or _EPOCHS[self.task],
            self.rate or _RATES[optimiser],
            optimiser == "adagrad",
            not is_text and self.pooling == "mean",
            self.gradient == "probability",
        )

    def transitions(self) -> tuple[int, int]:
        """Return (T, R): the places of the window, and the rows of what turns a word at each of them."""
        if self.task == "labels":
            return 1, 0
        return self.window, 1 if self.transition == "diagonal" else self.dim

    def check_features(self, n_features: int) -> None:
        """Raise BadParameter unless rows of so many features are what the task takes."""
        if n_features % self.transitions()[0]:
            raise BadParameter(
                f"task: expected labels for rows that are no windows of words, found {self.task}"
            )
