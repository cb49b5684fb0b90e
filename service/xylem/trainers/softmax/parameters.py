"""Parameters of the trainers of softmax trees, and the options that follow from them."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from xylem.base import Parameters, fault
from xylem.trainers.softmax.dealing import Rule
from xylem_store import LANES

# The margin of update u of n is that of the last update, times (u / n) to this power.
MARGIN_GROWTH = 3

RATES = {"sgd": 0.5, "adagrad": 0.1}
_EPOCHS = {"labels": 15, "text": 4}

# Most words are rare. With a margin they stay where the first tree has put them, whatever their
# neighbours are, and a learned tree of one novel is hardly better than Huffman's.
_MARGINS = {"labels": 8.0, "text": 0.0}

Margin = Literal["auto"] | Annotated[float, Field(ge=0.0, le=1e6)]


class SoftmaxDescent(NamedTuple):
    """The options of learning the network's parameters.

    epochs          number of passes over the rows
    rate            size of the first step
    is_adaptive     whether to use Adagrad; else it is plain stochastic gradient descent
    is_mean, by_probability  as in `tree.Steps`
    """

    epochs: int
    rate: float
    is_adaptive: bool
    is_mean: bool
    by_probability: bool


class TreeLearning(NamedTuple):
    """The options of learning the tree.

    updates   number of times that labels are reassigned, at even distances in the first `share` of
              all steps
    rule      the rule by which labels are assigned
    by_means  whether statistics are the labels' mean representations; else they are sums of
              probabilities along their paths
    settles   whether the parameters of all nodes are set to 0 after the last update
    """

    updates: int
    share: float
    rule: Rule
    by_means: bool
    settles: bool

    def rule_at(self, update: int, n_updates: int) -> Rule:
        """Return the rule of an update, counted from 1.

        The margin grows from update to update, slowly at first (MARGIN_GROWTH).
        """
        return self.rule._replace(margin=self.rule.margin * (update / n_updates) ** MARGIN_GROWTH)


class SoftmaxParameters(Parameters):
    """Parameters of trees of softmax nodes over embeddings."""

    task: Literal["labels", "text"] = Field(
        default="labels", description="predict labels of rows, or (text) the next words of texts"
    )
    dim: int = Field(default=50, ge=1, le=1024, description="dimensions of the embeddings")
    arity: int = Field(default=20, ge=2, le=4096, description="most children of a node")
    epochs: int = Field(
        default=0, ge=0, le=1000, description="passes over the rows; 0: 15 (task=text: 4)"
    )
    rate: float = Field(
        default=0.0, ge=0.0, le=1e3, description="size of the first step; 0: 0.5 (adagrad: 0.1)"
    )
    optimiser: Literal["auto", "sgd", "adagrad"] = Field(
        default="auto", description="auto: sgd, whose rate falls to 0; adagrad with task=text"
    )
    pooling: Literal["mean", "sum"] = Field(
        default="mean",
        description="labels: a row is the mean or the sum of its features' embeddings",
    )
    gradient: Literal["log-probability", "probability"] = Field(
        default="log-probability",
        description="what a step increases: the logarithm of a child's probability, or the "
        "probability, "
        "as in the paper's algorithm 1",
    )
    window: int = Field(
        default=4, ge=1, le=16, description="text: words before the next one that count"
    )
    transition: Literal["diagonal", "full"] = Field(
        default="diagonal",
        description="text: for each place of the window a factor per dimension, or a matrix",
    )
    min_count: int = Field(
        default=2,
        ge=1,
        le=1_000_000,
        description="text: words that occur less often become one word, <unk>",
    )

    def descent(self) -> SoftmaxDescent:
        """Return the options of learning the network, with defaults for those not set."""
        is_text = self.task == "text"
        optimiser = (
            ("adagrad" if is_text else "sgd") if self.optimiser == "auto" else self.optimiser
        )
        return SoftmaxDescent(
            self.epochs or _EPOCHS[self.task],
            self.rate or RATES[optimiser],
            optimiser == "adagrad",
            not is_text and self.pooling == "mean",
            self.gradient == "probability",
        )

    def first_tree(self) -> str:
        """Return the tree that training begins with."""
        return "huffman"

    def learns(self) -> TreeLearning | None:
        """Return the options of learning the tree; None if the first tree is not changed."""
        return None

    def transitions(self) -> tuple[int, int]:
        """Return (T, R): the number of positions of the window, and of rows of their transitions.

        R is 0 if there are no transitions, 1 if they are diagonal: see `tree.Network`.
        """
        n_rows = 1 if self.transition == "diagonal" else self.dim
        return (1, 0) if self.task == "labels" else (self.window, n_rows)

    def padded_dim(self) -> int:
        """Return the number of dimensions in training: a multiple of LANES, padded with zeros."""
        return -(-self.dim // LANES) * LANES


class HuffmanTreeParameters(SoftmaxParameters):
    """Parameters of `huffman-tree`."""

    tree: Literal["huffman", "random", "kmeans", "clustered", "flat"] = Field(
        default="huffman",
        description="short paths for frequent labels; random; similar labels together, by "
        "rows (kmeans) "
        "or by embeddings (clustered, trains twice); or one node with all labels (flat)",
    )

    def first_tree(self) -> str:
        return self.tree


class LearnedTreeParameters(SoftmaxParameters):
    """Parameters of `learned-tree`."""

    start: Literal["auto", "kmeans", "huffman", "random"] = Field(
        default="auto", description="the first tree; auto: huffman"
    )
    updates: int = Field(
        default=20,
        ge=0,
        le=10_000,
        description="how often labels are assigned to nodes again; 0: the first tree stays",
    )
    learning: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="share of the passes in which the tree is learnt; 0: one pass, at most "
        "half of them",
    )
    depth: int = Field(default=0, ge=0, le=64, description="most levels of nodes; 0: no limit")
    slack: float = Field(
        default=1.3,
        ge=0.0,
        le=4096.0,
        description="a child with slack / arity of its node's rows gets no more labels; 0: "
        "no limit. With "
        "depth=0 and slack=0 the tree is well-formed, as in the paper's algorithm 2",
    )
    alone: float = Field(
        default=0.25,
        ge=0.0,
        le=1.0,
        description="a label with this share of a child's mean number of rows gets its own "
        "leaf; 0: none",
    )
    margin: Margin = Field(
        default="auto",
        description="a label moves if another child is better by this many standard errors (at "
        "the last "
        "update; fewer before); 0: if it is better at all, as in the paper; auto: 8, or 0 with "
        "task=text",
    )
    assignment: Literal["eq10", "eq12"] = Field(
        default="eq10", description="gradient of the paper's J that assigns labels, by its equation"
    )
    statistics: Literal["means", "paths"] = Field(
        default="means",
        description="what is known of a label: its mean representation, or as in the paper the "
        "probabilities on its path",
    )
    settle: Literal["yes", "no"] = Field(
        default="yes",
        description="whether nodes are trained anew when the tree is learnt; the paper: no",
    )

    @model_validator(mode="after")
    def _slack_is_enough(self) -> Self:
        if 0 < self.slack < 1:
            raise fault(f"expected 0 or at least 1, found {self.slack:g}", "slack")
        return self

    def first_tree(self) -> str:
        return "huffman" if self.start == "auto" else self.start

    def learns(self) -> TreeLearning:
        """Return the options of learning the tree, with defaults for those not set."""
        share = self.learning or min(0.5, 1 / self.descent().epochs)
        margin = _MARGINS[self.task] if self.margin == "auto" else self.margin
        rule = Rule(self.depth, self.slack, self.alone, self.assignment == "eq12", margin)
        return TreeLearning(
            self.updates, share, rule, self.statistics == "means", self.settle == "yes"
        )
