"""The training of a tree of softmax nodes and its embeddings: passes over the rows, updates of the
tree, and the state from which a training continues.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadParameter, memory_bytes
from xylem.trainers.shape import huffman_shape
from xylem.trainers.size import DENSE_BYTES, EMBEDDING_BYTES, SPARSE_BYTES, SizeEstimate, TreeCounts
from xylem.trainers.softmax.dealing import Rule
from xylem.trainers.softmax.parameters import SoftmaxParameters, TreeLearning
from xylem.trainers.softmax.shapes import topology_with
from xylem.trainers.softmax.tree import LearningState, Network, SoftmaxTree, Steps, train_rows
from xylem.trainers.softmax.updates import (
    levels_of,
    no_statistics,
    reassign_labels,
    settle,
    update_means,
)
from xylem.trainers.source import (
    Census,
    RowSource,
    Tools,
    TrainingSet,
    derived_random,
    derived_seed,
)
from xylem.trainers.state import LearnerState, check_that, restoring
from xylem.trainers.windows import deal_windows
from xylem_store import I32, I64, U64, padded

PIECE_ROWS = 1 << 16  # most rows that are trained on between two reports of progress

# Words of derived seeds: for shuffling rows, for drawing labels of rows, for first parameters.
_ORDER = 1
_DRAW = 2
_START = 3


class Piece(NamedTuple):
    """Some rows to train on, and the options of the steps.

    order     int32[..]  the rows of `data`, in the order of the steps
    n_before  number of steps before the piece, in all passes
    """

    data: TrainingSet
    order: I32
    steps: Steps
    n_before: int


def marks_of(learning: TreeLearning | None, total: int) -> list[int]:
    """Return the numbers of steps after which labels are reassigned, ascending without repeats.

    total  number of steps of the training
    """
    if learning is None or learning.updates == 0:
        return []
    evenly = np.arange(1, learning.updates + 1) * learning.share * total / learning.updates
    return sorted({max(1, int(mark)) for mark in evenly})


def pieces(
    source: RowSource, parameters: SoftmaxParameters, marks: list[int], tools: Tools
) -> Iterator[Piece]:
    """Yield the rows with labels of all epochs in pieces, which end at the marks.

    The rows are shuffled again for each epoch. The pieces do not depend on how the source cuts its
    rows.
    """
    p = parameters.descent()
    learning = parameters.learns()
    n = source.census.n_labelled
    total = p.epochs * n
    constant = 0.0 if learning is None else learning.share * total

    def rate_at(step: int) -> float:
        return (
            p.rate
            if p.is_adaptive or step <= constant
            else p.rate * ((total - step) / (total - constant))
        )

    cuts = np.unique([*marks, int(constant), *range(0, total, PIECE_ROWS)])
    windows = deal_windows(source, tools)
    for epoch in tools.passes.pass_numbers(p.epochs):
        done = epoch * n
        shuffled = derived_random(tools.seed, _ORDER, epoch)
        for _, window in windows.visit(epoch):
            labelled = np.flatnonzero(np.diff(window.labels.indptr)).astype(np.int32)
            order = shuffled.permutation(labelled)
            begin = done
            end = done + len(labelled)
            for cut in [*cuts[(cuts > begin) & (cuts < end)].tolist(), end]:
                yield Piece(
                    window,
                    order[done - begin : cut - begin],
                    Steps(rate_at(done), rate_at(cut), p.is_mean, p.by_probability, embeds=True),
                    done,
                )
                done = cut


def estimate_softmax(data: TrainingSet, p: SoftmaxParameters, tools: Tools) -> SizeEstimate:
    """Return a bound on the size of a model, before it is trained.

    The number of weights is bounded by that of nodes which use all dimensions and have two children
    each. The stored bytes include the embeddings, and are close for Huffman's tree and a flat one,
    whose shapes are known. Of another tree over n labels the n - 1 binary nodes are counted: wider
    nodes are fewer, and c children are padded to 2 (c - 1) weights at most.
    """
    counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
    labels = np.flatnonzero(counts).astype(np.int32)
    n_used = len(np.unique(data.rows.indices))
    kind = p.first_tree()
    arity = max(p.arity, len(labels)) if kind == "flat" else p.arity
    if kind not in ("huffman", "flat") or p.learns() is not None:
        arity = 2
    shape = huffman_shape(labels, counts[labels], arity)
    n_dense = p.dim * sum(padded(n) for n in np.diff(shape.child_ptr)[shape.inner].tolist())
    n_places, n_turned = p.transitions()
    n_vectors = data.rows.n_features // n_places + n_places * n_turned
    tools.progress("estimate", 1, 1)
    trees = TreeCounts(
        n_nodes=len(shape.first),
        n_chunks=len(shape.inner),
        n_rows=p.dim * len(shape.inner),
        n_columns=p.dim,
        n_bytes=4 * data.labels.n_labels + 4,  # and whether representations are means
    )
    return replace(
        SizeEstimate.from_counts(
            p.dim * 2 * len(labels), n_used, len(labels), trees=trees, alphas=(1.0,)
        ),
        stored_bytes={
            w: n_dense * DENSE_BYTES[w]
            + p.dim * n_vectors * EMBEDDING_BYTES[w]
            + trees.bytes_beside(w)
            for w in SPARSE_BYTES
        },
    )


def descend(
    source: RowSource, parameters: SoftmaxParameters, topology: SoftmaxTree | None, tools: Tools
) -> tuple[LearningState, dict[str, Any], LearnerState | None]:
    """Train the network, and the tree if the parameters ask for it.

    topology  the first tree; None: the training continues from the state in `tools.passes`

    Source: Jernite, Choromanska and Sontag 2017, algorithm 1. Deviations: the rows are shuffled
    again for each pass, within windows, and come one at a time; plain descent ends at rate 0. One
    thread: the bits do not depend on the number of threads, or on how the source cuts its rows.

    Returns (the parameters, the report, the state to continue from; None if it was not asked for).
    Raises BadParameter if parameters are no longer finite.
    """
    p = parameters.descent()
    learning = parameters.learns()
    census = source.census
    previous_state = tools.passes.state
    passes = tools.passes.pass_numbers(p.epochs)
    total = p.epochs * census.n_labelled
    random = np.array([derived_seed(tools.seed, _DRAW)], np.uint64)
    marks = marks_of(learning, total)
    losses = np.zeros(passes.stop)
    stage = "embeddings" if learning is None else "tree and embeddings"
    updates: list[dict[str, Any]] = []
    if previous_state is not None:
        with restoring():
            topology = stored_tree(previous_state, len(census.label_rows))
            updates = list(previous_state.facts["updates"])
            losses[: previous_state.passes] = previous_state.facts["losses"]
    assert topology is not None
    state = _start(census, parameters, topology, tools)
    if previous_state is not None:
        restore(previous_state, state, random)
    for piece in pieces(source, parameters, marks, tools):
        losses[piece.n_before // census.n_labelled] += run_piece(piece, state, random, tools)
        done = piece.n_before + len(piece.order)
        tools.progress(stage, done, total)
        if learning is not None and done in marks:
            number = marks.index(done)
            state, update = _update(
                state, source, p.is_mean, learning.rule_at(number + 1, len(marks))
            )
            if number in np.linspace(0, len(marks) - 1, UPDATES_TOLD_MAX).astype(np.int64):
                updates.append({"rows": done, **update})
            levels = update["levels"]
            share = levels[0]["share"] if levels else 0.0
            stage = (
                f"tree and embeddings, J {share:.0%} of the most, "
                f"{update['share_moved']:.0%} of labels moved"
            )
            if done == marks[-1] and learning.settles:
                settle(state)
    if not all(np.isfinite(part).all() for part in state.network):
        raise BadParameter(
            f"rate: expected one under which parameters stay finite, found {p.rate:g}"
        )
    learner_state = None
    if tools.passes.keeps:
        facts = {"losses": losses.tolist(), "updates": updates}
        arrays: dict[str, Any] = {
            "child": state.tree.child,
            "random": random,
            **state_arrays(state),
        }
        learner_state = LearnerState(passes.stop, facts, arrays)
    report: dict[str, Any] = {
        "log_loss": (losses / census.n_labelled).tolist(),
        **_shape_report(state.tree, census.label_rows),
    }
    if updates:
        update_means(state, source, p.is_mean)
        report["levels"] = levels_of(state, census.label_rows)
        report["updates"] = updates
    return state, report, learner_state


UPDATES_TOLD_MAX = 100  # most updates in a report: evenly spaced ones, and the last


def _update(
    state: LearningState, source: RowSource, is_mean: bool, rule: Rule
) -> tuple[LearningState, dict[str, Any]]:
    """Reassign the labels; return (the new state, a report of the update).

    The report has the quality of the old tree, and how many labels moved.
    """
    counts = source.census.label_rows
    update_means(state, source, is_mean)
    levels = levels_of(state, counts)
    state, n_moved = reassign_labels(state, counts, rule)
    return state, {
        "labels_moved": n_moved,
        "share_moved": round(n_moved / int(np.count_nonzero(counts)), 5),
        "levels": levels,
    }


def run_piece(piece: Piece, state: LearningState, random: U64, tools: Tools) -> float:
    """Train on a piece in a thread that an interrupt can stop; return the sum of the losses."""
    losses: list[float] = []

    def work(_: int) -> float:
        return train_rows(*piece.data, piece.order, state, piece.steps, random, tools.crew.stop)

    tools.crew.run(work, [0], lambda _, loss: losses.append(loss))
    return losses[0]


def _start(
    census: Census, parameters: SoftmaxParameters, tree: SoftmaxTree, tools: Tools
) -> LearningState:
    """Return the state before the first step: embeddings uniform in +-1 / d, weights of nodes 0.

    Raises BadParameter if the memory of this process is too small for embeddings and nodes.
    """
    dim = parameters.dim
    padded = parameters.padded_dim()
    n_places, n_turned = parameters.transitions()
    n_words = census.n_features // n_places
    copies = 2 if parameters.descent().is_adaptive else 1
    needed = 4 * copies * padded * (n_words + tree.child.size)
    limit = memory_bytes()
    if needed > limit:
        raise BadParameter(
            f"dim: expected embeddings of {n_words} words and {tree.child.size} children of "
            "nodes within "
            f"{limit >> 20} MiB of memory, found {needed >> 20} MiB for {dim} dimensions"
        )

    embedding = np.zeros((n_words, padded), np.float32)
    embedding[:, :dim] = derived_random(tools.seed, _START).uniform(
        -1 / dim, 1 / dim, (n_words, dim)
    )
    transition = np.zeros((n_places, padded if n_turned == dim else n_turned, padded), np.float32)
    if n_turned == 1:
        transition[:, 0, :dim] = 1.0
    elif n_turned:
        transition[:, np.arange(dim), np.arange(dim)] = 1.0
    network = Network(
        np.zeros((*tree.child.shape, padded), np.float32),
        np.zeros(tree.child.shape, np.float32),
        embedding,
        transition,
    )
    return LearningState(
        tree,
        network,
        Network(*(np.zeros_like(part if copies == 2 else part[:0]) for part in network)),
        no_statistics(tree, parameters.learns(), padded),
    )


def _shape_report(tree: SoftmaxTree, counts: I64) -> dict[str, float]:
    """Return the report of a tree's shape.

    mean_depth     mean depth of the leaf of a label that is drawn from the rows
    entropy_bound  lower bound on it for all trees of this arity
    max_depth      depth of the deepest leaf
    """
    depth = np.where(tree.leaf_node >= 0, tree.level[np.maximum(tree.leaf_node, 0)] + 1, 0)
    share = counts[counts > 0] / counts.sum()
    entropy = float(-(share * np.log(share)).sum() / np.log(tree.child.shape[1]))
    return {
        "mean_depth": float((counts * depth).sum() / counts.sum()),
        "entropy_bound": entropy,
        "max_depth": int(depth.max()),
    }


def restore(stored: LearnerState, state: LearningState, random: U64) -> None:
    """Write a stored state over the state before the first step, on `stored_tree`.

    Raises Corrupt.
    """
    for name, array in {"random": random, **state_arrays(state)}.items():
        array[...] = stored.take(name, array.dtype.name, *array.shape)


def state_arrays(state: LearningState) -> dict[str, NDArray[Any]]:
    """Return the arrays that steps write, by name.

    The mean representations of labels are not among them: they are computed before each use.
    """
    parts = {"network": state.network, "squares": state.squares}
    arrays = {
        f"{part}/{name}": array for part in parts for name, array in parts[part]._asdict().items()
    }
    sums = {"sums": state.statistics.sums, "counts": state.statistics.counts}
    return {**arrays, **(sums if len(state.statistics.sums) else {})}


def stored_tree(stored: LearnerState, n_labels: int) -> SoftmaxTree:
    """Return the tree of a state. Raises Corrupt.

    Nodes that cannot be reached from the root are not in use.
    """
    child = stored.take("child", "int32", None, None)
    check_that(len(child) > 0, "a root")
    check_that(
        ((child >= -1 - n_labels) & (child < len(child)) & (child != 0)).all(),
        "numbers of nodes and labels",
    )
    inner = child[child > 0]
    leaves = child[child < -1]
    check_that(
        len(np.unique(inner)) == len(inner) and len(np.unique(leaves)) == len(leaves), "a tree"
    )
    return topology_with(child, n_labels)
