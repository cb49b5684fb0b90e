"""Parameters that trainers of softmax trees share, and what they mean together."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from service.base.errors import BadParameter
from service.base.parameters import Parameters

_RATES = {"sgd": 0.5, "adagrad": 0.1}
_EPOCHS = {"labels": 15, "text": 4}


class SoftmaxDescent(NamedTuple):
    """How parameters are learnt: `is_adaptive` is Adagrad, else plain stochastic gradient descent."""

    epochs: int
    rate: float
    is_adaptive: bool
    is_mean: bool
    by_probability: bool


class SoftmaxParameters(Parameters):
    """Parameters of trees of softmax nodes over embeddings."""

    task: Literal["labels", "text"] = Field(
        "labels", description="labels of rows; or text: the next words of texts, without labels"
    )
    dim: int = Field(50, ge=1, le=1024, description="dimensions of the representation of rows")
    arity: int = Field(20, ge=2, le=4096, description="most children of a node")
    epochs: int = Field(0, ge=0, le=1000, description="passes over the rows; 0: 15, with task=text 4")
    rate: float = Field(0.0, ge=0.0, le=1e3, description="the first step; 0: 0.5, with adagrad 0.1")
    optimiser: Literal["auto", "sgd", "adagrad"] = Field(
        "auto", description="auto: sgd, whose rate falls to 0; with task=text adagrad"
    )
    pooling: Literal["mean", "sum"] = Field(
        "mean", description="labels: a row is the mean or the sum of its features' embeddings"
    )
    gradient: Literal["log-probability", "probability"] = Field(
        "log-probability",
        description="what steps raise: the logarithm of a child's probability, or the probability, as "
        "the paper's algorithm 1",
    )
    window: int = Field(4, ge=1, le=16, description="text: how many words before the next one count")
    transition: Literal["diagonal", "full"] = Field(
        "diagonal", description="text: a factor a dimension for each place of the window, or a matrix"
    )
    min_count: int = Field(
        2, ge=1, le=1_000_000, description="text: words that occur less often are one word, <unk>"
    )

    def descent(self) -> SoftmaxDescent:
        """Return how parameters are learnt, with what was left open."""
        is_text = self.task == "text"
        optimiser = ("adagrad" if is_text else "sgd") if self.optimiser == "auto" else self.optimiser
        return SoftmaxDescent(
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
