"""The predictor of decision trees: an opened model and sparse rows in, labels and scores out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.compiled.calls import address_of
from model_store.compiled.handles import lend
from model_store.ensemble import LINK_CODES
from model_store.rerank import assemble_tail, has_tail
from model_store.version import Model
from service.errors import Unavailable
from service.inference.allowed import allowed_labels
from service.inference.answering import NOT_WANTED, Predictions, gather, in_parts, places_for, writeable
from service.inference.explain import ReachedLeaf, RoutedExplanation, RoutedStep, top_features
from service.inference.forest_buffers import RoutingBufferPool, RoutingBuffers, RoutingNeed
from service.inference.predictor import NodeThresholds, NodeWeights, PredictOptions, log_thresholds, logs_of
from service.kernels.search.ensemble_handle import ENSEMBLE_KINDS
from service.kernels.search.explain import depth_of
from service.kernels.search.routing import reach_leaves, route_rows
from service.kernels.search.routing_explain import explain_route
from service.kernels.search.routing_rerank import NO_TAIL, TAIL_KINDS
from service.kernels.search.routing_workspace import RoutingShape
from service.kernels.search.threshold_update import NO_PATHS, RowSearch, move_thresholds
from service.rows import SparseRows

_ALL_ALLOWED = np.empty(0, np.uint8)
_ALL_EQUAL = np.empty(0, np.float32)
_ANY_DTYPES = _ALL_ALLOWED, _ALL_ALLOWED


class ForestPredictor:
    """Answers rows from one opened version of decision trees. Safe to call from several threads at once.

    The methods are those of `service.inference.predictor.Predictor`. The answers are always exact; only
    labels that a reached leaf names are answered, whatever the threshold.
    """

    def __init__(self, model: Model) -> None:
        """Take an opened model, whose arrays have been checked. Raises Unavailable for another kind."""
        if model.manifest.kind != "decision-tree":
            raise Unavailable(f"expected a model of kind decision-tree, found {model.manifest.kind}")
        self._ensemble = model.ensemble
        self._lent = lend(model.ensemble, ENSEMBLE_KINDS)
        self._samples = (np.empty(0, model.ensemble.sparse.dtype), np.empty(0, model.ensemble.dense.dtype))
        self._tail = assemble_tail(model.manifest, model.arrays) if has_tail(model.arrays) else NO_TAIL
        self._lent_tail = lend(self._tail, TAIL_KINDS)
        self._link = LINK_CODES[model.manifest.link]
        self._labels = model.labels
        self.n_labels = model.manifest.n_labels
        self.n_features = model.manifest.n_features
        n_mapped = self.n_features if len(self._tail.parameters) else 0
        self._shape = RoutingShape(model.ensemble, self.n_labels, n_mapped)
        self._n_levels = _n_levels(model.ensemble.child_ptr)
        self._buffers = RoutingBufferPool(model.ensemble, self._shape)
        self._row_searching = 0

    def predict(self, rows: SparseRows, options: PredictOptions) -> Predictions:
        """Answer rows on the calling thread.

        The answer to a row depends on the row, the options and the model only.
        """
        return self._answer(rows, options, threads=1)

    def predict_shortly(self, rows: SparseRows, options: PredictOptions) -> Predictions | None:
        """Return what `predict` does: every answer is exact, and none takes longer for it."""
        return self.predict(rows, options)

    def predict_batch(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        """Answer rows on `threads` threads; the same bits as `predict`."""
        return self._answer(rows, options, threads=threads)

    def explain(self, rows: SparseRows, row: int, label: int) -> RoutedExplanation:
        """Return how one row of `rows` comes by its score for a label: the leaves with it that it reached.

        Cost: that of answering the row; for each node on the paths to these leaves its chunk, and a look at
        the weight of each of the features.
        """
        first, last = rows.indptr[row], rows.indptr[row + 1]
        indices, values = (writeable(array)[first:last] for array in (rows.indices, rows.values))
        indptr = np.array([0, last - first])
        buffers = self._buffers.take(RoutingNeed(len(indices), 1, 1))
        n_leaves = reach_leaves(
            self._lent, *self._samples, indptr, indices, values, 0, self._link, *buffers.lent, NOT_WANTED
        )
        nodes, trees = buffers.routing.leaf_node[:n_leaves], buffers.routing.leaf_tree[:n_leaves]
        weights = 1 / np.bincount(trees)[trees] / self._ensemble.child_ptr[0]
        leaves = []
        for leaf, tree, weight in zip(nodes.tolist(), trees.tolist(), weights.tolist(), strict=True):
            value = self._value_at(leaf, label)
            if value > 0:
                path = self._path_to(leaf, indices, values, buffers)
                leaves.append(ReachedLeaf(tree, leaf, value, np.float32(weight), path))
        self._buffers.give(buffers)
        return RoutedExplanation(leaves)

    def leaves_reached(
        self, rows: SparseRows, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the leaves that some rows reach, level by level of all trees, empty ones left out.

        (ptr int64[n + 1], leaves int32[..]): of the i-th of `chosen`, leaves[ptr[i] : ptr[i + 1]].
        """
        indptr, indices, values = (writeable(array) for array in rows[:3])
        buffers = self._buffers.take(RoutingNeed(int(np.diff(indptr).max(initial=0)), 1, 1))
        found = []
        for row in chosen.tolist():
            n_leaves = reach_leaves(
                self._lent,
                *self._samples,
                indptr,
                indices,
                values,
                row,
                self._link,
                *buffers.lent,
                NOT_WANTED,
            )
            found.append(buffers.routing.leaf_node[:n_leaves].copy())
        self._buffers.give(buffers)
        ptr = np.concatenate([[0], np.cumsum([len(leaves) for leaves in found], dtype=np.int64)])
        return ptr, np.concatenate([np.empty(0, np.int32), *found])

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that an argmax routing scores a row, over all levels and trees.

        There is no beam. A multiway row that enters many children costs more.
        """
        child_ptr = self._ensemble.child_ptr
        return int(child_ptr[0]) * self._n_levels * int(np.diff(child_ptr).max())

    def label_mask(
        self, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None
    ) -> NDArray[np.uint8] | None:
        """Return the mask for PredictOptions of the labels that are allowed (None: all) and not denied.

        Raises UnknownLabel. Cost: O(labels).
        """
        if allow is None and deny is None:
            return None
        return allowed_labels(self._labels, self.n_labels, allow, deny)

    def node_thresholds(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Prepare one threshold a label, float32[K] in [0, 1], for PredictOptions. Cost: O(labels).

        They apply to the labels' scores, so there is one logarithm a label instead of one a node.
        """
        return NodeThresholds(logs_of(thresholds))

    def move_thresholds(
        self, prepared: NodeThresholds, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring `prepared` up to date in place where thresholds[labels], float32[K] in [0, 1], have changed.

        Predictions may go on meanwhile, see `service.thresholds.live.served`.
        """
        move_thresholds(*NO_PATHS, labels, thresholds, prepared.log)

    @contextmanager
    def row_search(self, options: PredictOptions, n_features: int) -> Iterator[RowSearch]:
        """Lend the search that options with prepared thresholds mean; rows have so many features at most."""
        top_r, log_threshold = min(options.top_r, self.n_labels), log_thresholds(options.threshold)
        buffers = self._buffers.take(RoutingNeed(n_features, top_r, 1))
        counts, labels, scores, _ = places_for(1, top_r)
        wanted = self._link, 1, top_r, log_threshold, _ALL_ALLOWED, _ALL_EQUAL, True
        search = *wanted, *buffers.lent, counts, labels, scores, NOT_WANTED
        if self._row_searching == 0:
            rows = np.zeros(2, np.int64), labels[0], scores[0], 0, 1
            model = self._lent, *self._samples, self._lent_tail
            self._row_searching = address_of(route_rows, types.none, *model, *rows, *search)
        lent = self._lent, *_ANY_DTYPES, self._lent_tail  # the kernel there is the one for the model's
        yield RowSearch(self._row_searching, lent, search, counts, labels[0], NO_PATHS)
        self._buffers.give(buffers)

    def node_weights(self, weights: NDArray[np.float32]) -> NodeWeights:
        """Prepare one weight a label, float32[K], finite and > 0, for PredictOptions.

        They apply to the labels' scores, as they are: nothing is prepared for nodes.
        """
        return NodeWeights(writeable(weights))

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need, by answering an empty row."""
        nothing = np.empty(0, np.int32), np.empty(0, np.float32)
        row = SparseRows(np.zeros(2, np.int64), *nothing, self.n_features)
        self.predict(row, PredictOptions(threshold=0.5, mask=self.label_mask(deny=())))
        self.explain(row, 0, 0)
        buffers = self._buffers.take(RoutingNeed(0, 1, 1))
        self._path_to(len(self._ensemble.parent) - 1, *nothing, buffers)
        self._buffers.give(buffers)

    def _value_at(self, leaf: int, label: int) -> np.float32:
        """Return a label's value in a leaf, 0 where the leaf does not name it."""
        first, last = self._ensemble.leaf_ptr[leaf : leaf + 2].tolist()
        at = first + int(np.searchsorted(self._ensemble.leaf_label[first:last], label))
        is_there = at < last and self._ensemble.leaf_label[at] == label
        return self._ensemble.leaf_value[at] if is_there else np.float32(0.0)

    def _path_to(
        self, leaf: int, indices: NDArray[np.int32], values: NDArray[np.float32], buffers: RoutingBuffers
    ) -> list[RoutedStep]:
        depth = depth_of(self._ensemble.parent, leaf)
        nodes, margins = np.empty(depth, np.int32), np.empty(depth, np.float32)
        added = np.empty((depth, len(indices)), np.float32)
        explain_route(
            self._lent, *self._samples, indices, values, leaf, buffers.lent[0], nodes, margins, added
        )
        return [
            RoutedStep(node, margin, top_features(indices, shares))
            for node, margin, shares in zip(nodes.tolist(), margins, added, strict=True)
        ]

    def _answer(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        indptr, indices, values = (writeable(array) for array in rows[:3])
        n_rows = len(indptr) - 1
        longest = int(np.diff(indptr).max(initial=0))
        top_r = min(options.top_r, self.n_labels)
        block_rows = self._shape.block_rows(-(-n_rows // threads))
        counts, labels, scores, exact = places_for(n_rows, top_r)
        costs = np.empty((n_rows, 2), np.int64) if options.costs else NOT_WANTED
        mask = _ALL_ALLOWED if options.mask is None else options.mask
        weight = _ALL_EQUAL if options.weights is None else options.weights.prepared
        log_threshold = log_thresholds(options.threshold)
        is_sure = options.exact or options.threshold is not None

        def answer(first: int, last: int) -> None:
            buffers = self._buffers.take(RoutingNeed(longest, top_r, block_rows))
            if options.stop is not None:
                buffers.watch(options.stop)
            route_rows(
                self._lent,
                *self._samples,
                self._lent_tail,
                indptr,
                indices,
                values,
                first,
                last,
                self._link,
                block_rows,
                top_r,
                log_threshold,
                mask,
                weight,
                is_sure,
                *buffers.lent,
                counts,
                labels,
                scores,
                costs,
            )
            if options.stop is not None:
                buffers.watch(buffers.work.stop)
            self._buffers.give(buffers)

        if threads > 1 and n_rows > 1:
            in_parts(answer, n_rows, threads)
        else:
            answer(0, n_rows)
        was_stopped = options.stop is not None and bool(options.stop[0])
        exact[:] = not was_stopped
        return gather(counts, labels, scores, exact, costs)


def _n_levels(child_ptr: NDArray[np.int32]) -> int:
    """Return the number of levels that have inner nodes: the length of the longest path of the forest."""
    first, last, n_levels = 0, int(child_ptr[0]), 0
    while child_ptr[first] < child_ptr[last]:
        first, last, n_levels = last, int(child_ptr[last]), n_levels + 1
    return n_levels
