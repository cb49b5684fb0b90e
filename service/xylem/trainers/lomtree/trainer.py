"""Trainer `lomtree`: an online multiclass decision tree that learns from rows as they come."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil, exp
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from xylem.base import LabelRows, Parameters, offsets
from xylem.trainers.lomtree.finish import (
    LeafCounts,
    breadth_first,
    chunks_of,
    count_leaves,
    histograms_of,
    recount_leaves,
    report_of,
    restore_tree,
    rows_of_nodes,
    tree_arrays,
)
from xylem.trainers.lomtree.learning import learn_rows, make_scratch
from xylem.trainers.lomtree.tree import Budget, make_tree
from xylem.trainers.size import SizeEstimate, TreeCounts, leaf_bytes
from xylem.trainers.source import Census, RowSource, Tools, TrainingSet, all_rows, count
from xylem.trainers.spec import LeafLabels, Trained, TrainerSpec
from xylem.trainers.state import LearnerState, PassPlan, check_that, restoring
from xylem.trainers.tree_criteria import NodeCounts, counts_of, parents_of
from xylem.trainers.windows import deal_windows
from xylem_store import I32, Tree

# default number of leaves for each label; rare labels count less
LEAVES_A_LABEL = 4
STREAM_LEAVES_MAX = 1 << 16  # most leaves by default, for a stream
_LEAVES_MAX = 1 << 20

_BLOCK_ROWS = 4096  # rows learnt before interrupts are handled and progress is reported
_WEIGHT_SLOT_BYTES = 16
_CLASS_SLOT_BYTES = 32
_LOAD = 0.75  # the share of slots that tables use at most


class LomtreeParameters(Parameters):
    """Parameters of `lomtree`."""

    leaves: int = Field(
        default=0,
        ge=0,
        le=_LEAVES_MAX,
        description="most leaves; 0: 4 for each label, fewer for rare ones; in a stream 4 "
        "for each label "
        "so far, up to 65,536",
    )
    passes: int = Field(
        default=5, ge=1, le=1000, description="passes over the rows; standard input is learnt once"
    )
    order: Literal["shuffled", "given"] = Field(
        default="shuffled", description="order of rows in a pass; standard input is not shuffled"
    )
    step: float = Field(
        default=0.5, ge=0.001, le=100.0, description="learning rate of the nodes' regressors"
    )
    swap_resistance: float = Field(
        default=4.0,
        ge=1.0,
        le=1e6,
        description="a leaf replaces the least-used leaf when its rows without its most "
        "frequent label "
        "are this many times the rows of that leaf",
    )
    leaf_labels: LeafLabels = 100
    memory_mb: int = Field(
        default=1024,
        ge=1,
        le=65536,
        description="MiB for weights and label counts while training; when full, new ones "
        "are left out",
    )


class OnlineLomtree:
    """A LOMtree that learns from rows as they arrive, in memory that is bounded by its parameters.

    The same rows in the same order give the same tree, however they are cut into parts. It begins
    as one leaf, and uses no random numbers; the caller chooses the passes and the order of the
    rows.

    leaves  most leaves; 0: LEAVES_A_LABEL for each label so far, up to STREAM_LEAVES_MAX
    """

    def __init__(self, parameters: LomtreeParameters, leaves: int = 0) -> None:
        self._parameters = parameters
        self._follows = not leaves
        self._leaves = leaves or STREAM_LEAVES_MAX
        # at least two: views of an array of one node are contiguous, which is another type for
        # numba, and would compile all kernels again
        n_nodes = max(2 * self._leaves - 1, 2)
        n_bytes = parameters.memory_mb << 20
        self._tree = make_tree(
            n_nodes,
            weight_slots=2 * n_bytes // 3 // _WEIGHT_SLOT_BYTES,
            class_slots=n_bytes // 3 // _CLASS_SLOT_BYTES,
        )
        self._scratch = make_scratch(0)
        self._n_labels = 0

    def learn(self, data: TrainingSet, order: I32 | None = None) -> Iterator[int]:
        """Learn from the rows, one after the other; yield from time to time how many are done.

        order  int32[..]: the rows to learn from, in this order; None: all rows in their order

        Rows without labels are skipped. If the number of leaves depends on the labels so far, these
        must be numbered in the order in which they appear.
        """
        rows, labels = data
        if order is None:
            order = np.arange(rows.n_rows, dtype=np.int32)
        longest = int(np.diff(rows.indptr).max(initial=0))
        if longest > len(self._scratch.slot):
            self._scratch = make_scratch(longest)
        for first, last, leaves in self._pieces(labels, order):
            budget = Budget(leaves - 1, self._parameters.swap_resistance, self._parameters.step)
            for begin in range(first, last, _BLOCK_ROWS):
                end = min(last, begin + _BLOCK_ROWS)
                learn_rows(self._tree, budget, rows, labels, order[begin:end], self._scratch)
                yield end

    def _pieces(self, labels: LabelRows, order: I32) -> Iterator[tuple[int, int, int]]:
        """Yield (first, last, leaves): order[first:last] is learnt with at most `leaves` leaves.

        If the number of leaves depends on the labels so far, it is computed for each row, so that
        it does not depend on how the rows are cut into parts.
        """
        if not self._follows:
            yield 0, len(order), self._leaves
            return
        n_labels = np.full(labels.n_rows, self._n_labels)
        np.maximum.at(
            n_labels,
            np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr)),
            labels.indices + 1,
        )
        n_labels = np.maximum.accumulate(n_labels[order])
        self._n_labels = int(n_labels.max(initial=self._n_labels))
        leaves = np.clip(LEAVES_A_LABEL * n_labels, 1, self._leaves)
        cuts = [0, *(1 + np.flatnonzero(np.diff(leaves))).tolist(), len(order)]
        for first, last in itertools.pairwise(cuts):
            if first < last:
                yield first, last, int(leaves[first])

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything that further learning depends on: facts (JSON) and arrays, by name."""
        return {"n_labels": self._n_labels, "leaves": self._leaves}, tree_arrays(self._tree)

    def restore(self, state: LearnerState, n_labels: int) -> None:
        """Continue from the state of a tree that may have as many leaves as this one.

        n_labels  every label of the state must be less than this

        Raises Corrupt.
        """
        restore_tree(state, self._tree, n_labels)
        self._n_labels = int(state.facts["n_labels"])

    def finish(
        self,
        n_labels: int,
        n_features: int,
        ids: I32 | None = None,
        recount: TrainingSet | None = None,
    ) -> Trained:
        """Return the model of the current tree; the tree can learn more rows afterwards.

        ids      int32[labels so far]: the final id of each label, below n_labels; None: the labels
                 have their final ids
        recount  rows from which the leaves count their labels; None: they have the counts that they
                 collected while the tree grew
        """
        order, child_ptr = breadth_first(self._tree)
        leaves = order[np.diff(child_ptr) == 0]
        leaf_counts = (
            count_leaves(self._tree, leaves)
            if recount is None
            else recount_leaves(self._tree, leaves, recount)
        )
        if ids is not None:
            leaf_counts = LeafCounts(
                leaf_counts.rows, leaf_counts.labels._replace(label=ids[leaf_counts.labels.label])
            )
        n_entries = np.zeros(len(order), np.int64)
        n_entries[np.diff(child_ptr) == 0] = np.diff(leaf_counts.labels.ptr)
        counts = sum_to_inner_nodes(child_ptr, leaf_counts.labels._replace(ptr=offsets(n_entries)))
        rows = rows_of_nodes(child_ptr, leaf_counts.rows)
        tree = Tree(
            child_ptr,
            np.full(len(order), -1, np.int32),
            chunks_of(self._tree, order),
            histograms_of(child_ptr, counts, rows, self._parameters.leaf_labels),
        )
        return Trained.from_trees(
            [tree],
            n_labels,
            n_features,
            "argmax",
            self._parameters,
            report=report_of(self._tree, child_ptr, counts, rows),
        )


_SAMPLE_MAX = 1 << 16  # most rows whose labels are stored; if there are more, every n-th row
_SHARE = 10  # the first and the last of this many parts of the rows are compared
_EXCESS = 0.25  # there is a warning if `LabelOrder.difference` is larger than this


@dataclass
class LabelOrder:
    """Compares the labels of the first tenth of the rows with those of the last tenth.

    Memory: 4 bytes for each of at most 65,536 rows. The result does not depend on how the rows are
    cut into parts.

    labels  int32[..]  first label of each row whose number is a multiple of `step`
    n_rows  number of rows with labels so far
    """

    labels: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    step: int = 1
    n_rows: int = 0

    def add(self, labels: LabelRows) -> None:
        """Add the next rows, each with its first label; rows without labels are skipped."""
        labelled_rows = np.flatnonzero(np.diff(labels.indptr))
        rows = np.arange(self.n_rows, self.n_rows + len(labelled_rows))
        first = labels.indices[labels.indptr[labelled_rows]]
        self.n_rows += len(labelled_rows)
        self.labels = np.concatenate([self.labels, first[rows % self.step == 0]])
        while len(self.labels) > _SAMPLE_MAX:
            self.labels = self.labels[::2]
            self.step = 2 * self.step

    def difference(self) -> float:
        """Return the excess of the difference between the first and the last tenth, from 0 to 1.

        It is their difference, minus the difference between two mixtures of both tenths. A
        difference is the total variation distance: half the sum over the labels of the absolute
        difference of their shares.
        """
        n = len(self.labels) // _SHARE
        if n < 2:
            return 0.0
        first = self.labels[:n]
        last = self.labels[-n:]
        both = np.concatenate([first, last])
        return max(0.0, _variation(first, last) - _variation(both[::2], both[1::2]))

    def warnings(self) -> list[str]:
        """Return a warning if the labels of the two tenths differ much, else an empty list."""
        difference = self.difference()
        if difference <= _EXCESS:
            return []
        return [
            "rows are learnt in their order, and those of the last tenth have other labels "
            "than those of the "
            f"first ({difference:.0%} more than by chance): shuffled rows may be learnt better"
        ]


def _variation(first: I32, second: I32) -> float:
    n = 1 + int(max(first.max(), second.max()))
    shares = [np.bincount(part, minlength=n) / len(part) for part in (first, second)]
    return float(np.abs(shares[0] - shares[1]).sum()) / 2


def fit_lomtree(source: RowSource, parameters: LomtreeParameters, tools: Tools) -> Trained:
    """Train a LOMtree, in several passes if the rows can be read several times, else in one.

    Source: see `learning`. The rows of a pass are shuffled, depending on the seed, unless
    order=given. Deviation: if the rows are in memory, the leaves count the labels of all rows in
    the final tree; the leaves of an online tree have counted only the rows since they were made.
    One thread. Cost: passes * rows * depth * features of a row. Deterministic. Raises BadData if no
    row carries a label.
    """
    is_once = source.reads == "once"
    previous_state = tools.passes.state
    leaves = parameters.leaves if is_once else _leaves_of(source.census, parameters)
    if is_once and previous_state is not None and previous_state.facts.get("once") is not True:
        leaves = previous_state.facts.get("leaves", 0)
        check_that(type(leaves) is int and 0 < leaves <= _LEAVES_MAX, "a number of leaves")
    online = OnlineLomtree(parameters, leaves)
    passes = tools.passes.pass_numbers(parameters.passes)
    n_rows = total = 0
    if not is_once:
        n_rows = passes.start * source.census.n_rows
        total = passes.stop * source.census.n_rows
    label_order = LabelOrder()
    random = np.random.default_rng(tools.seed)
    if previous_state is not None:
        with restoring():
            online.restore(previous_state, len(previous_state.arrays["ids"]))
            step, n_seen = map(int, previous_state.facts["label_order"])
            label_order = LabelOrder(previous_state.take("labels", "int32", None), step, n_seen)
            random.bit_generator.state = previous_state.facts["random"]
    for data, order in _ordered_rows(source, parameters, tools, random):
        if order is None and (is_once or n_rows < source.census.n_rows):
            label_order.add(data.labels)
        for done in online.learn(data, order):
            tools.progress("rows", n_rows + done, total)
        n_rows += data.n_rows
    census = source.census
    census.check_labelled()
    state = None
    if tools.passes.keeps:
        facts, arrays = online.state()
        arrays |= {
            "labels": label_order.labels,
            "ids": np.arange(len(census.label_rows), dtype=np.int32)
            if source.final_ids is None
            else source.final_ids,
        }
        facts |= {
            "label_order": [label_order.step, label_order.n_rows],
            "random": random.bit_generator.state,
            "once": is_once,
        }
        state = LearnerState(0 if is_once else passes.stop, facts, arrays)
    return replace(
        online.finish(
            len(census.label_rows),
            census.n_features,
            ids=source.final_ids,
            recount=all_rows(source) if source.reads == "rows" else None,
        ),
        warnings=label_order.warnings(),
        state=state,
    )


def _ordered_rows(
    source: RowSource, parameters: LomtreeParameters, tools: Tools, random: np.random.Generator
) -> Iterator[tuple[TrainingSet, I32 | None]]:
    """Yield (rows, the order in which they are learnt) of all passes.

    The order is None for rows that are learnt in the order of the source.
    """
    passes = tools.passes.pass_numbers(parameters.passes)
    if source.reads == "once" or parameters.order == "given":
        for _ in range(1) if source.reads == "once" else passes:
            for part in source.parts():
                yield part, None
        return
    windows = deal_windows(source, tools)
    for number in passes:
        for _, window in (
            [(0, all_rows(source))] if source.reads == "rows" else windows.visit(number)
        ):
            order = np.arange(window.n_rows, dtype=np.int32)
            random.shuffle(order)
            yield window, order


def _leaves_of(census: Census, parameters: LomtreeParameters) -> int:
    """Return the most leaves of a tree, from the parameters and the counts of all rows.

    By default it is LEAVES_A_LABEL times the effective number of labels: the exponential of the
    entropy of their shares. Tens of thousands of labels with one or two rows each should not cause
    as many leaves with one or two rows.
    """
    shares = census.label_rows / max(1, int(census.label_rows.sum()))
    shares = shares[shares > 0]
    n_labels = ceil(exp(-np.sum(shares * np.log(shares))) - 1e-6)
    return parameters.leaves or min(_LEAVES_MAX, LEAVES_A_LABEL * n_labels)


def estimate_lomtree(
    data: TrainingSet, parameters: LomtreeParameters, tools: Tools
) -> SizeEstimate:
    """Return a bound on the size of the model that `fit_lomtree` would train.

    It counts all features at all nodes, as far as memory_mb allows, and for each leaf as many
    labels as it may have.
    """
    leaves = _leaves_of(count(data), parameters)
    n_used = len(np.unique(data.rows.indices))
    slots = 2 * (parameters.memory_mb << 20) // 3 // _WEIGHT_SLOT_BYTES
    bound = min((leaves - 1) * n_used, int(slots * _LOAD))
    tools.progress("estimate", 1, 1)
    n_labels = len(np.unique(data.labels.indices))
    return SizeEstimate.from_counts(
        bound,
        n_used,
        n_labels,
        trees=TreeCounts(
            n_nodes=2 * leaves - 1,
            n_chunks=leaves - 1,
            n_rows=bound,
            n_columns=data.rows.n_features,
            n_bytes=leaf_bytes(2 * leaves - 1, leaves * min(parameters.leaf_labels, n_labels)),
        ),
    )


LOMTREE = TrainerSpec(
    name="lomtree",
    about="an online multiclass decision tree: learns from streams in bounded memory, time "
    "log of the labels",
    parameters=LomtreeParameters,
    fit=fit_lomtree,
    estimate=estimate_lomtree,
    reads="once",
    plan=lambda p: PassPlan("passes", p.passes, True),
)


def sum_to_inner_nodes(child_ptr: I32, leaves: NodeCounts) -> NodeCounts:
    """Return counts of every node from those of the leaves (an inner node's entries are ignored).

    For trees where a row goes to one leaf. Cost: O(depth * entries).
    """
    parent = parents_of(child_ptr).astype(np.int64)
    entry = np.flatnonzero(np.diff(child_ptr)[leaves.node] == 0)
    node = leaves.node[entry]
    levels = [(node, entry)]
    while len(node):
        has_parent = parent[node] >= 0
        entry = entry[has_parent]
        node = parent[node[has_parent]]
        levels.append((node, entry))
    nodes, entries = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    return counts_of(len(child_ptr) - 1, nodes, leaves.label[entries], leaves.value[entries])
