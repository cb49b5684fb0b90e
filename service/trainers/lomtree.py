"""Trainer `lomtree`: an online multiclass decision tree that learns from rows as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, exp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy

from model_store.build import build_ensemble
from model_store.ensemble import Chunk, Tree
from service.evaluation.tree_criteria import (
    NodeCounts,
    counts_of,
    criteria_by_splits,
    depths,
    leaf_criteria,
    splits_by_depth,
    sum_to_inner_nodes,
)
from service.kernels.training.lomtree import learn_rows
from service.kernels.training.lomtree_finish import count_leaves, pack_weights, route_rows
from service.kernels.training.lomtree_regressors import make_scratch
from service.kernels.training.lomtree_tables import n_refused
from service.kernels.training.lomtree_tree import (
    LEAF,
    N_ROWS,
    N_SPLITS,
    N_SWAPS,
    N_WRONG,
    NODE_BYTES,
    ROOT,
    WEIGHT,
    Budget,
    make_tree,
)
from service.trainers.bounds import STORED_NODE_BYTES, Bound, Counts
from service.trainers.parameters import Parameters, choice, real, whole
from service.trainers.size import FLAT_WEIGHT_BYTES, WEIGHT_BYTES, SizeEstimate
from service.trainers.spec import Trained, TrainerSpec, TrainingSet
from service.trainers.work import Crew, Progress

LEAVES_A_LABEL = 4
"""Leaves for each label, rare ones counting less, where the parameters say no number."""

STREAM_LEAVES_MAX = 1 << 16
"""The most leaves of a stream whose parameters say no number."""

_LEAVES_MAX = 1 << 20

_BLOCK_ROWS = 4096
"""Rows learnt between two looks at interrupts and progress."""

_FIRST_POINT = 64
"""After so many rows the criteria are noted first; then whenever the rows have doubled."""

_GROWTH_POINTS = 100
"""Points of the criteria against the number of splits that a report keeps."""

_WEIGHT_SLOT_BYTES, _CLASS_SLOT_BYTES = 16, 32
_LOAD = 0.75
"""The share of slots that tables use at most."""


@dataclass(frozen=True)
class LomtreeParameters(Parameters):
    """Parameters of `lomtree`."""

    leaves: int = whole(
        0,
        0,
        _LEAVES_MAX,
        "most leaves; 0: 4 for each label, rare ones counting less; in a stream for each so far, to 65,536",
    )
    passes: int = whole(5, 1, 1000, "how often the rows are learnt; a stream is learnt once")
    order: str = choice("shuffled", ("shuffled", "given"), "of the rows, in each pass; a stream has its own")
    step: float = real(0.5, 0.001, 100.0, "learning rate of the nodes' regressors")
    swap_resistance: float = real(
        4.0,
        1.0,
        1e6,
        "a leaf takes the place of the least-used one when it has so many times its rows with labels other "
        "than the commonest",
    )
    leaf_labels: int = whole(100, 1, 1_000_000, "labels that a leaf answers with, its commonest ones")
    memory_mb: int = whole(
        1024, 1, 65536, "MiB for weights and counts of labels while training; new ones beyond are left out"
    )


class _Counted(NamedTuple):
    """What was counted at the leaves of a tree, by position: int64[leaves] rows, and those of each label."""

    rows: NDArray[np.int64]
    labels: NodeCounts


class OnlineLomtree:
    """A LOMtree that learns from rows as they come, in memory that its parameters bound.

    The same rows in the same order give the same tree, however they are cut into parts.
    """

    def __init__(self, parameters: LomtreeParameters) -> None:
        """Make a tree that is one leaf. Nothing is random in it; passes and order are the caller's affair."""
        self._parameters = parameters
        self._leaves = parameters.leaves or STREAM_LEAVES_MAX
        # two at least: arrays of one are of another type, for which all kernels would be compiled once more
        self._n_nodes = max(2 * self._leaves - 1, 2)
        n_bytes = parameters.memory_mb << 20
        self._tree = make_tree(
            self._n_nodes,
            2 * n_bytes // 3 // _WEIGHT_SLOT_BYTES,
            n_bytes // 3 // _CLASS_SLOT_BYTES,
        )
        self._scratch = make_scratch(0)
        self._points: list[dict[str, float]] = []
        self._noted = (0, 0)

    @property
    def bytes_max(self) -> int:
        """Return what learning takes at most, besides the rows at hand."""
        return (self._parameters.memory_mb << 20) + NODE_BYTES * self._n_nodes

    @property
    def n_rows(self) -> int:
        """Return how many rows have been learnt, those without labels not counted."""
        return int(self._tree.state[N_ROWS])

    def learn(self, data: TrainingSet, order: NDArray[np.int32] | None = None) -> Iterator[int]:
        """Learn from the rows, one after the other; yields now and then how many are done.

        order  int32[..]: which rows, in which order; None: all as they stand

        Rows without labels are passed over. `labels.n_labels` is the number of labels so far.
        """
        rows, labels = data
        if order is None:
            order = np.arange(rows.n_rows, dtype=np.int32)
        longest = int(np.diff(rows.indptr).max(initial=0))
        if longest > len(self._scratch.slot):
            self._scratch = make_scratch(longest)
        leaves = self._leaves
        if not self._parameters.leaves:
            leaves = max(1, min(leaves, LEAVES_A_LABEL * labels.n_labels))
        budget = Budget(leaves - 1, self._parameters.swap_resistance, self._parameters.step)
        done = 0
        while done < len(order):
            point = _FIRST_POINT << len(self._points)
            until = min(len(order), done + min(_BLOCK_ROWS, max(1, point - self.n_rows)))
            learn_rows(self._tree, budget, *rows[:3], *labels[:2], order[done:until], self._scratch)
            done = until
            if self.n_rows >= point:
                self._note_point()
            yield done

    def finish(
        self,
        n_labels: int,
        n_features: int,
        ids: NDArray[np.int32] | None = None,
        recount: TrainingSet | None = None,
    ) -> Trained:
        """Return the tree as it is; learning may go on after.

        ids      int32[labels so far]: the final ids, below n_labels; None: as they are
        recount  rows that the leaves answer with, in place of those that they counted while the tree grew
        """
        if self.n_rows > self._noted[0]:
            self._note_point()
        order, child_ptr = self._breadth_first()
        leaves = order[np.diff(child_ptr) == 0]
        counted = self._counted(leaves) if recount is None else self._recounted(leaves, recount)
        if ids is not None:
            counted = _Counted(counted.rows, counted.labels._replace(label=ids[counted.labels.label]))
        at_leaves = _spread(child_ptr, counted.labels)
        counts = sum_to_inner_nodes(child_ptr, at_leaves)
        rows = _rows_of_nodes(child_ptr, counted.rows)
        chunks = self._chunks(order)
        histograms = _histograms(child_ptr, counts, rows, self._parameters.leaf_labels)
        tree = Tree(child_ptr, np.full(len(order), -1, np.int32), chunks, histograms)
        return Trained(
            ensemble=build_ensemble([tree], n_labels, n_features),
            kind="decision-tree",
            link="argmax",
            parameters=self._parameters.as_dict(),
            n_nonzeros=sum(len(chunk.weight) for chunk in chunks if chunk is not None),
            report=self._report(child_ptr, counts, rows),
        )

    def _breadth_first(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (the nodes breadth-first, child_ptr of model_store.ensemble.Tree)."""
        left, right = self._tree.left, self._tree.right
        level = np.array([self._tree.state[ROOT]])
        levels = []
        while len(level):
            levels.append(level)
            inner = level[left[level] != LEAF]
            level = np.stack([left[inner], right[inner]], axis=1).ravel().astype(np.int64)
        order = np.concatenate(levels)
        child_ptr = np.concatenate([[1], 1 + np.cumsum(2 * (left[order] != LEAF))])
        return order, child_ptr.astype(np.int32)

    def _counted(self, leaves: NDArray[np.int64]) -> _Counted:
        """Return what the leaves have counted while the tree grew."""
        n = int(self._tree.classes.used[leaves].sum())
        leaf, label, count = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n)
        count_leaves(self._tree, leaves, leaf, label, count)
        return _Counted(self._tree.n_rows[leaves], counts_of(len(leaves), leaf, label, count))

    def _recounted(self, leaves: NDArray[np.int64], data: TrainingSet) -> _Counted:
        """Return what the leaves count of these rows, which go down the tree as it is now."""
        rows, labels = data
        reached = np.empty(rows.n_rows, np.int32)
        waiting = np.empty((len(self._tree.left) + 1, 2), np.int64)
        route_rows(self._tree, *rows[:3], np.arange(rows.n_rows, dtype=np.int32), waiting, reached)
        place = np.zeros(len(self._tree.left), np.int64)
        place[leaves] = np.arange(len(leaves))
        leaf, n_labels = place[reached], np.diff(labels.indptr)
        n_rows = np.bincount(leaf[n_labels > 0], minlength=len(leaves))
        ones = np.ones(len(labels.indices))
        return _Counted(n_rows, counts_of(len(leaves), np.repeat(leaf, n_labels), labels.indices, ones))

    def _chunks(self, order: NDArray[np.int64]) -> list[Chunk | None]:
        """Return the scorers of each node's children (none of the left, h of the right), None for a leaf."""
        inner = order[self._tree.left[order] != LEAF]
        used = self._tree.weights.used[inner].astype(np.int64)
        room = np.cumsum(used) - used
        n_weights = np.empty(len(inner), np.int64)
        features, weights = np.empty(used.sum(), np.int32), np.empty(used.sum(), np.float32)
        pack_weights(self._tree, inner, room, n_weights, features, weights)
        most = int(n_weights.max(initial=0))
        row_ptr, child = np.arange(most + 1, dtype=np.int64), np.ones(most, np.int32)
        bias = np.zeros((len(inner), 2), np.float32)
        bias[:, 1] = self._tree.bias[inner, WEIGHT]
        chunks: list[Chunk | None] = [None] * len(order)
        ends = zip(room.tolist(), n_weights.tolist(), bias, strict=True)
        for at, (first, n, biases) in zip(
            np.flatnonzero(self._tree.left[order] != LEAF).tolist(), ends, strict=True
        ):
            entries = slice(first, first + n)
            chunks[at] = Chunk(features[entries], row_ptr[: n + 1], child[:n], weights[entries], biases)
        return chunks

    def _note_point(self) -> None:
        """Note the criteria of the leaves, and the error since the last point."""
        state, before = self._tree.state, self._noted
        leaves = np.flatnonzero(self._tree.left[: int(2 * state[N_SPLITS] + 1)] == LEAF)
        rows, wrong = int(state[N_ROWS]), int(state[N_WRONG])
        criteria = leaf_criteria(self._counted(leaves).labels)
        self._points.append(
            {
                "rows": rows,
                "splits": int(state[N_SPLITS]),
                "swaps": int(state[N_SWAPS]),
                **criteria,
                "progressive_error": (wrong - before[1]) / max(1, rows - before[0]),
            }
        )
        self._noted = (rows, wrong)

    def _report(
        self, child_ptr: NDArray[np.int32], counts: NodeCounts, rows: NDArray[np.int64]
    ) -> dict[str, Any]:
        growth = criteria_by_splits(child_ptr, counts)
        last = len(growth.splits) - 1
        kept = np.unique(np.linspace(0, last, min(last + 1, _GROWTH_POINTS)).astype(np.int64))
        depth, is_leaf = depths(child_ptr), np.diff(child_ptr) == 0
        return {
            "rows": self.n_rows,
            "splits": int(self._tree.state[N_SPLITS]),
            "swaps": int(self._tree.state[N_SWAPS]),
            "depth": int(depth.max()),
            "mean_depth": float((depth * rows)[is_leaf].sum() / max(1, rows[is_leaf].sum())),
            "weights_left_out": n_refused(self._tree.weights),
            "labels_left_out": n_refused(self._tree.classes),
            "while_training": self._points,
            "criteria_by_splits": {name: values[kept].tolist() for name, values in growth._asdict().items()},
            "splits_by_depth": splits_by_depth(child_ptr, counts),
        }


def _spread(child_ptr: NDArray[np.int32], leaves: NodeCounts) -> NodeCounts:
    """Return counts by node from counts by position among the leaves."""
    n_entries = np.zeros(len(child_ptr) - 1, np.int64)
    n_entries[np.diff(child_ptr) == 0] = np.diff(leaves.ptr)
    return leaves._replace(ptr=np.concatenate([[0], np.cumsum(n_entries)]))


def _rows_of_nodes(child_ptr: NDArray[np.int32], at_leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[n]: the rows of each node, from those of the leaves by position."""
    rows = np.zeros(len(child_ptr) - 1, np.int64)
    rows[np.diff(child_ptr) == 0] = at_leaves
    for node in np.flatnonzero(np.diff(child_ptr))[::-1].tolist():
        rows[node] = rows[child_ptr[node] : child_ptr[node + 1]].sum()
    return rows


def _histograms(
    child_ptr: NDArray[np.int32], counts: NodeCounts, rows: NDArray[np.int64], n_kept: int
) -> list[tuple[NDArray[np.int32], NDArray[np.float32]] | None]:
    """Return the label shares of each leaf, None for others: the commonest n_kept labels, equal ones by id.

    A leaf that no row reached answers as the nearest node above it that some did.
    """
    source = np.arange(len(rows))
    for node in np.flatnonzero(np.diff(child_ptr)).tolist():
        for child in range(child_ptr[node], child_ptr[node + 1]):
            if not rows[child]:
                source[child] = source[node]
    leaves = np.flatnonzero(np.diff(child_ptr) == 0)
    of = source[leaves]
    n_entries = np.diff(counts.ptr)[of]
    leaf = np.repeat(np.arange(len(leaves)), n_entries)
    begins = np.cumsum(n_entries) - n_entries
    entry = np.arange(len(leaf)) + np.repeat(counts.ptr[of] - begins, n_entries)
    label, count = counts.label[entry], counts.value[entry]
    best = np.lexsort((label, -count, leaf))
    best = best[np.arange(len(leaf)) - begins[leaf] < n_kept]
    best = best[np.lexsort((label[best], leaf[best]))]
    share = (count[best] / np.maximum(1, rows[of])[leaf[best]]).astype(np.float32)
    ends = np.cumsum(np.minimum(n_entries, n_kept)).tolist()
    found: list[tuple[NDArray[np.int32], NDArray[np.float32]] | None] = [None] * len(rows)
    for node, first, last in zip(leaves.tolist(), [0, *ends], ends, strict=False):
        found[node] = label[best[first:last]], share[first:last]
    return found


def train_lomtree(
    data: TrainingSet, parameters: LomtreeParameters, seed: int, crew: Crew, progress: Progress
) -> Trained:
    """Train a LOMtree in several passes over rows in memory; the leaves are counted anew at the end.

    Source: `lomtree`. The rows of a pass are shuffled by the seed unless order=given.
    Deviation: the leaves count all rows in the final tree; an online tree's have those since they were made.
    One thread. Cost: passes * rows * depth * features of a row. Deterministic.
    """
    online = OnlineLomtree(_with_leaves(data, parameters))
    n_rows, random = data.rows.n_rows, np.random.default_rng(seed)
    for number in range(parameters.passes):
        order = np.arange(n_rows, dtype=np.int32)
        if parameters.order == "shuffled":
            random.shuffle(order)
        for done in online.learn(data, order):
            progress("rows", number * n_rows + done, parameters.passes * n_rows)
    trained = online.finish(data.labels.n_labels, data.rows.n_features, recount=data)
    return _as_asked(trained, parameters)


def _with_leaves(data: TrainingSet, parameters: LomtreeParameters) -> LomtreeParameters:
    """Return the parameters with the number of leaves that they mean for rows in memory.

    As many labels count as would have the entropy of these if all were as frequent: labels of a row or two
    each, of which there may be tens of thousands, are no reason for leaves of a row or two.
    """
    shares = np.bincount(data.labels.indices) / max(1, len(data.labels.indices))
    n_labels = ceil(exp(entropy(shares)) - 1e-6)
    leaves = parameters.leaves or min(_LEAVES_MAX, LEAVES_A_LABEL * n_labels)
    return LomtreeParameters(**{**parameters.as_dict(), "leaves": leaves})  # type: ignore[arg-type]


def _as_asked(trained: Trained, parameters: LomtreeParameters) -> Trained:
    """Return the result with the parameters as the user gave them."""
    return Trained(**{**vars(trained), "parameters": parameters.as_dict()})


def estimate_lomtree(
    data: TrainingSet, parameters: LomtreeParameters, seed: int, crew: Crew, progress: Progress
) -> SizeEstimate:
    """Return the size bound of what `train_lomtree` would train: all features at all nodes, within memory.

    The leaves come on top, with 8 bytes for each of their labels: at most leaves * leaf_labels.
    """
    leaves = _with_leaves(data, parameters).leaves
    n_used = len(np.unique(data.rows.indices))
    slots = 2 * (parameters.memory_mb << 20) // 3 // _WEIGHT_SLOT_BYTES
    bound = min((leaves - 1) * n_used, int(slots * _LOAD))
    flat = n_used * len(np.unique(data.labels.indices))
    progress("estimate", 1, 1)
    return SizeEstimate(
        nonzeros_bound=bound,
        bytes_bound=bound * WEIGHT_BYTES,
        ratio_to_ovr=bound * WEIGHT_BYTES / max(1, flat * FLAT_WEIGHT_BYTES),
        alpha_per_depth=(),
    )


def bound_lomtree(p: LomtreeParameters, c: Counts) -> Bound:
    """Return what a training takes at most: a row meets at most as many nodes as there are leaves."""
    n_leaves = p.leaves or LEAVES_A_LABEL * c.labels
    steps = p.passes * c.values * n_leaves
    weights = min((p.memory_mb << 20) // 16, n_leaves * c.features)
    held = (p.memory_mb << 20) + 2 * n_leaves * STORED_NODE_BYTES + 4 * c.rows + WEIGHT_BYTES * weights
    return Bound(p.passes, steps, weights, 1, 2 * n_leaves, held, 0, n_leaves * min(p.leaf_labels, c.labels))


LOMTREE = TrainerSpec(
    name="lomtree",
    about="an online multiclass decision tree: learns from streams in bounded memory, time log of the labels",
    parameters=LomtreeParameters,
    train=train_lomtree,
    estimate=estimate_lomtree,
    bound=bound_lomtree,
    online=lambda parameters, seed: OnlineLomtree(parameters),
)
