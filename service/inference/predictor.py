"""The predictor: an opened model and sparse rows in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.compiled.calls import address_of
from model_store.compiled.handles import lend
from model_store.ensemble import LANES, LINK_CODES
from model_store.version import Model
from service.errors import Unavailable
from service.inference.allowed import allowed_labels
from service.inference.answering import NOT_WANTED, Predictions, gather, in_parts, places_for, writeable
from service.inference.buffers import BufferPool, Need
from service.inference.explain import Explanation, explain_path
from service.kernels.search.beam import beam_rows
from service.kernels.search.beam_workspace import BeamShape, widest_level
from service.kernels.search.best_first import best_first_rows
from service.kernels.search.ensemble_handle import ENSEMBLE_KINDS
from service.kernels.search.explain import depth_of, explain_leaf
from service.kernels.search.subtrees import greatest_weights, least_thresholds, mark_allowed
from service.kernels.search.threshold import threshold_rows
from service.kernels.search.threshold_update import RowSearch, move_thresholds, set_logs
from service.rows import SparseRows

_ALL_ALLOWED = np.empty(0, np.uint8)
_ALL_EQUAL = np.empty(0, np.float32)
_ALL_PASS = np.empty(0, np.float32)
_ANY_DTYPES = _ALL_ALLOWED, _ALL_ALLOWED

_BLOCK_ROWS_MIN = 32
"""From so many rows on, rows that need the same chunk are answered together."""

_BLOCK_ENTRIES_MAX = 1 << 16
"""Rows of a block times trees times the beam width, and times top_r, at most: a few megabytes."""


class NodeThresholds(NamedTuple):
    """Thresholds of labels, prepared: as `service.kernels.search.query.Search.log_threshold` has them.

    For decision trees float32[K], the labels' logarithms.
    """

    log: NDArray[np.float32]


class NodeWeights(NamedTuple):
    """Weights of labels, prepared: float32[N], a logarithm a node; for decision trees float32[K], weights."""

    prepared: NDArray[np.float32]


class PredictOptions(NamedTuple):
    """How to predict.

    top_r       at most so many labels a row, >= 1
    beam_width  inner nodes kept a level, >= 1; without effect when exact
    exact       search until the answer is surely right, instead of with a beam
    threshold   labels with at least this probability only: a number in [0, 1], which is exact whatever
                `exact` says, because it costs less than a beam; or what Predictor.node_thresholds prepared
    mask        what Predictor.label_mask prepared, or None: all labels are allowed
    weights     what Predictor.node_weights prepared, or None: labels are ranked by their probability alone
    costs       whether to count what each row costs
    stop        uint8[1] or None: once another thread sets it, the answer is what was found until then, and if
                exact and without a threshold, those labels of it that are surely the best
    """

    top_r: int = 5
    beam_width: int = 10
    exact: bool = False
    threshold: float | NodeThresholds | None = None
    mask: NDArray[np.uint8] | None = None
    weights: NodeWeights | None = None
    costs: bool = False
    stop: NDArray[np.uint8] | None = None


class _Plan(NamedTuple):
    """What options mean for a model.

    beam_width  the most nodes of a level that there must be room for
    search      what the kernel takes between the rows and the buffers
    """

    kernel: Callable[..., None]
    is_beam: bool
    beam_width: int
    top_r: int
    search: tuple[Any, ...]
    stop: NDArray[np.uint8] | None


class Predictor:
    """Answers rows from one opened version. Safe to call from several threads at once."""

    def __init__(self, model: Model) -> None:
        """Take an opened model, whose arrays have been checked. Raises Unavailable for a kind not served."""
        if model.manifest.kind != "label-tree":
            raise Unavailable(f"expected a model of kind label-tree, found {model.manifest.kind}")
        self._ensemble = model.ensemble
        self._lent = lend(model.ensemble, ENSEMBLE_KINDS)
        self._samples = (np.empty(0, model.ensemble.sparse.dtype), np.empty(0, model.ensemble.dense.dtype))
        self._model = self._lent, *self._samples
        self._link = LINK_CODES[model.manifest.link]
        self._labels = model.labels
        self.n_labels = model.manifest.n_labels
        self.n_features = model.manifest.n_features
        self._n_chunks = len(model.ensemble.directory)
        self._widest = int(np.diff(model.ensemble.child_ptr).max())
        self._shape = BeamShape(model.ensemble)
        self._buffers = BufferPool(model.ensemble, self._shape)
        options = PredictOptions()
        self._last = options, self._plan(options)
        self._row_searching = 0

    def predict(self, rows: SparseRows, options: PredictOptions) -> Predictions:
        """Answer rows one after the other, on the calling thread.

        The answer to a row depends on the row, the options and the model only.
        """
        return self._answer(rows, options, threads=1)

    def predict_shortly(self, rows: SparseRows, options: PredictOptions) -> Predictions | None:
        """Return what `predict` does if no more than a beam search is needed for it, else None.

        What is asked for exactly is searched with a beam first: most often that finds the exact answer, and
        knows that it is (in an ensemble hardly ever, so there it is not tried). Costs, and scores that
        weights change, would not be those of the exact search.
        """
        threshold = options.threshold
        is_number = threshold is not None and not isinstance(threshold, NodeThresholds)
        if not (options.exact or is_number):
            return self.predict(rows, options)
        if self._shape.n_trees > 1 or options.costs or options.weights is not None:
            return None
        prepared = NodeThresholds(log_thresholds(threshold)) if is_number else threshold
        found = self.predict(rows, options._replace(exact=False, threshold=prepared))
        return found if found.exact.all() else None

    def predict_batch(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        """Answer rows on `threads` threads; the same bits as `predict`."""
        return self._answer(rows, options, threads=threads)

    def explain(self, rows: SparseRows, row: int, label: int) -> Explanation:
        """Return how one row of `rows` comes by its score for a label, tree by tree.

        Cost: for each node on the label's paths its chunk, and a look at the weight of each of the features.
        """
        first, last = rows.indptr[row], rows.indptr[row + 1]
        indices, values = (writeable(array)[first:last] for array in (rows.indices, rows.values))
        buffers = self._buffers.take(Need(1, len(indices), 1, 1))
        paths = []
        for leaf in self._ensemble.label_leaf[:, label].tolist():
            depth = depth_of(self._ensemble.parent, leaf) if leaf >= 0 else 0

            def walk(leaf: int, *outputs: NDArray[Any]) -> None:
                explain_leaf(
                    self._lent, *self._samples, self._link, indices, values, leaf, buffers.lent[0], *outputs
                )

            paths.append(explain_path(walk, leaf, depth, indices) if depth else [])
        self._buffers.give(buffers)
        return Explanation(paths)

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that a beam search scores a row and level, over all trees."""
        return self._shape.n_trees * min(beam_width, self._n_chunks) * self._widest

    def label_mask(
        self, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None
    ) -> NDArray[np.uint8] | None:
        """Return the mask for PredictOptions of the labels that are allowed (None: all) and not denied.

        Raises UnknownLabel. Cost: O(nodes).
        """
        if allow is None and deny is None:
            return None
        allowed = allowed_labels(self._labels, self.n_labels, allow, deny)
        mask = np.empty(len(self._ensemble.parent), np.uint8)
        mark_allowed(self._ensemble, allowed, mask)
        return mask

    def node_thresholds(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Prepare one threshold a label, float32[K] in [0, 1], for PredictOptions. Cost: O(nodes)."""
        n_nodes = len(self._ensemble.parent)
        log = np.full(n_nodes + LANES, np.inf, np.float32)
        least_thresholds(self._ensemble, logs_of(thresholds), log[:n_nodes])
        return NodeThresholds(log)

    def node_weights(self, weights: NDArray[np.float32]) -> NodeWeights:
        """Prepare one weight a label, float32[K], finite and > 0, for PredictOptions. Cost: O(nodes)."""
        log = np.empty(len(self._ensemble.parent), np.float32)
        greatest_weights(self._ensemble, logs_of(weights), log)
        return NodeWeights(log)

    def move_thresholds(
        self, prepared: NodeThresholds, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring `prepared` up to date in place where thresholds[labels], float32[K] in [0, 1], have changed.

        Predictions may go on meanwhile, see `served`; two such calls may not. Cost: the
        labels' paths to the roots.
        """
        trees = self._ensemble
        move_thresholds(trees.child_ptr, trees.parent, trees.label_leaf, labels, thresholds, prepared.log)

    @contextmanager
    def row_search(self, options: PredictOptions, n_features: int) -> Iterator[RowSearch]:
        """Lend the exact search for prepared thresholds; rows have so many features at most."""
        plan = self._plan(options)
        buffers = self._buffers.take(Need(0, n_features, plan.beam_width, plan.top_r))
        counts, labels, scores, is_exact = places_for(1, plan.top_r)
        search = *plan.search, *buffers.lent, counts, labels, scores, is_exact, NOT_WANTED
        if self._row_searching == 0:
            rows = np.zeros(2, np.int64), labels[0], scores[0], 0, 1
            self._row_searching = address_of(plan.kernel, types.none, *self._model, *rows, *search)
        trees = self._ensemble
        paths = trees.child_ptr, trees.parent, trees.label_leaf
        model = self._lent, *_ANY_DTYPES  # the kernel at the address is the one for the model's
        yield RowSearch(self._row_searching, model, search, counts, labels[0], paths)
        self._buffers.give(buffers)

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need, by answering empty rows in every way."""
        nothing = np.empty(0, np.int32), np.empty(0, np.float32), self.n_features
        row = SparseRows(np.zeros(2, np.int64), *nothing)
        self.predict(SparseRows(np.zeros(_BLOCK_ROWS_MIN + 1, np.int64), *nothing), PredictOptions())
        thresholds = self.node_thresholds(np.ones(self.n_labels, np.float32))
        self.move_thresholds(thresholds, np.zeros(1, np.int32), np.ones(self.n_labels, np.float32))
        mask = self.label_mask(deny=())
        weights = self.node_weights(np.ones(self.n_labels, np.float32))
        for options in (
            PredictOptions(),
            PredictOptions(exact=True, weights=weights),
            PredictOptions(exact=True, threshold=1.0, mask=mask),
            PredictOptions(exact=True, threshold=thresholds),
        ):
            self.predict(row, options)
        self.explain(row, 0, int(self._ensemble.node_label.max()))

    def _answer(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        plan = self._plan_of(options)
        indptr, indices, values = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        arrays = indptr, indices, values
        n_rows = len(indptr) - 1
        costs = np.empty((n_rows, 2), np.int64) if options.costs else NOT_WANTED
        out = *places_for(n_rows, plan.top_r), costs
        if n_rows == 1:
            self._run(plan, 1, indptr.item(1) - indptr.item(0), arrays, 0, 1, out)
        else:
            block_rows = self._block_rows(plan, -(-n_rows // threads))
            longest = int(np.diff(indptr).max(initial=0))

            def answer(first: int, last: int) -> None:
                self._run(plan, block_rows, longest, arrays, first, last, out)

            if threads == 1:
                answer(0, n_rows)
            else:
                in_parts(answer, n_rows, threads)
        return gather(*out)

    def _plan_of(self, options: PredictOptions) -> _Plan:
        """Return what the options mean here; the same as for the call before if they are the same object."""
        last, plan = self._last
        if last is not options:
            plan = self._plan(options)
            self._last = options, plan
        return plan

    def _plan(self, options: PredictOptions) -> _Plan:
        beam_width, top_r = min(options.beam_width, self._n_chunks), min(options.top_r, self.n_labels)
        mask = _ALL_ALLOWED if options.mask is None else options.mask
        weight = _ALL_EQUAL if options.weights is None else options.weights.prepared
        kernel, log_threshold = _traversal(options), log_thresholds(options.threshold)
        search = self._link, beam_width, top_r, mask, weight, log_threshold
        widest = widest_level(beam_width, self._shape.n_levels, self._n_chunks, len(log_threshold) > 0)
        return _Plan(kernel, kernel is beam_rows, widest, top_r, search, options.stop)

    def _run(
        self,
        plan: _Plan,
        block_rows: int,
        longest: int,
        arrays: tuple[NDArray[Any], ...],
        first: int,
        last: int,
        out: tuple[NDArray[Any], ...],
    ) -> None:
        """Answer rows first .. last - 1, of at most `longest` features, on this thread."""
        need = Need(block_rows if plan.is_beam else 0, longest, plan.beam_width, plan.top_r)
        buffers = self._buffers.take(need)
        if plan.stop is not None:
            buffers.watch(plan.stop)
        plan.kernel(*self._model, *arrays, first, last, *plan.search, *buffers.lent, *out)
        if plan.stop is not None:
            buffers.watch(buffers.work.stop)
        self._buffers.give(buffers)

    def _block_rows(self, plan: _Plan, n_rows: int) -> int:
        """Return how many of a part's rows beam search is to take through the chunks together."""
        if n_rows < _BLOCK_ROWS_MIN:
            return 1
        in_entries = _BLOCK_ENTRIES_MAX // (self._shape.n_trees * max(plan.beam_width, plan.top_r))
        most = max(1, min(in_entries, self._shape.rows_at_once(plan.beam_width)))
        n_blocks = -(-n_rows // most)
        return -(-n_rows // n_blocks)


def _traversal(options: PredictOptions) -> Callable[..., None]:
    """Return the kernel for the options."""
    if options.threshold is None:
        return best_first_rows if options.exact else beam_rows
    is_one_for_all = not isinstance(options.threshold, NodeThresholds)
    return threshold_rows if options.exact or is_one_for_all else beam_rows


def log_thresholds(threshold: float | NodeThresholds | None) -> NDArray[np.float32]:
    """Return the logarithms of thresholds as kernels take them: none, one, or those prepared."""
    if threshold is None:
        return _ALL_PASS
    if isinstance(threshold, NodeThresholds):
        return threshold.log
    return logs_of(np.array([threshold], np.float32))


def logs_of(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logarithms of thresholds or weights, as traversals compare them."""
    logs = np.empty(len(numbers), np.float32)
    set_logs(writeable(numbers), logs)
    return logs
