"""The base classes of predictors: they call a model's traversals on buffers from a pool."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from xylem.base import SparseRows, writeable
from xylem.engine.answering import NO_COSTS, Predictions, empty_answers, gather, in_parts
from xylem.engine.buffers import BufferPool, Buffers, MakeBuffers, Need
from xylem.engine.explain import AnyExplanation
from xylem.engine.kernels.search.calibrated import Knots
from xylem.engine.kernels.search.call import FIRST, LAST, set_answers, set_rows, set_search
from xylem.engine.kernels.search.subtrees import NO_PATHS, Paths, RowSearch, move_thresholds
from xylem.engine.options import (
    ALL_ALLOWED,
    ALL_EQUAL,
    LabelScores,
    NodeThresholds,
    NodeWeights,
    PredictOptions,
    log_thresholds,
    logs_of,
)
from xylem_store import (
    F32,
    I32,
    I64,
    LINK_CODES,
    NO_RERANK,
    U8,
    Model,
    Rerank,
    Uncopyable,
    address_of,
    assemble_calibration,
)

# The most labels that count as predicted for a row: the best ones.
#
# It bounds how many labels one feedback event can change.
PREDICTED_MAX = 1000

_NUMBERS = frozenset({int, float})


@dataclass(frozen=True, slots=True)
class SearchPlan(Uncopyable):
    """How a model's search is done for some options.

    traversal   the kernel that answers a Call
    beam_width  the most nodes of a level, for which the buffers must have room
    top_r       the most labels of a row
    search      the fields of its Search
    stop        the stop flag of the options, or None
    """

    traversal: Callable[..., None]
    beam_width: int
    top_r: int
    search: tuple[Any, ...]
    stop: U8 | None


class Searcher(Uncopyable, ABC):
    """Predicts the labels of rows with one opened version. Several threads may call it at once.

    The answer to a row depends only on the row, the options and the model.

    pool  the idle buffers of the model's traversals
    """

    def __init__(self, model: Model, make_buffers: MakeBuffers, rerank: Rerank = NO_RERANK) -> None:
        """Make a searcher of an opened model of the right kind, whose arrays have been checked.

        make_buffers   makes the buffers that only this traversal uses. It must not refer to this
                       searcher: the cycle would keep the model alive until the garbage collector
                       runs, and a server excludes from collection all that it had at its start
        """
        self._ensemble = model.ensemble
        self._link = LINK_CODES[model.manifest.link]
        self._labels = model.labels
        self.n_labels = model.manifest.n_labels
        self.n_features = model.manifest.n_features
        calibration = assemble_calibration(model.manifest, model.arrays)
        self._knots: Knots = (writeable(calibration.x), writeable(calibration.y))
        self.pool = BufferPool(model.ensemble, rerank, calibration, make_buffers)
        self._addresses: dict[Callable[..., None], int] = {}
        self._row_plan = self._plan(PredictOptions(top_r=1, beam_width=1))
        options = PredictOptions()
        self._last = options, self._plan(options)

    @property
    @abstractmethod
    def nodes_explained(self) -> int:
        """A bound on the nodes of a label's explanation; each node costs a look-up of all features
        of the row.
        """

    @abstractmethod
    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that a search of this beam width scores for a row.

        It is a bound for a level, or for the whole search where it has no levels.
        """

    @abstractmethod
    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i + 1]] for row i.

        They are the scores that an exact search finds.
        """

    @abstractmethod
    def explain(self, rows: SparseRows, row: int, label: int) -> AnyExplanation:
        """Return the explanation of a label's score for one row of `rows`."""

    @abstractmethod
    def node_thresholds(self, thresholds: F32) -> NodeThresholds:
        """Prepare one threshold for each label, float32[K] in [0, 1], for PredictOptions."""

    @abstractmethod
    def node_weights(self, weights: F32) -> NodeWeights:
        """Prepare one weight for each label, float32[K], finite and > 0, for PredictOptions."""

    @abstractmethod
    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need; drop the buffers of these calls.

        They would be some hundred kB of each open version, used or not.
        """

    @abstractmethod
    def label_mask(self, allowed: U8) -> U8:
        """Return the mask, for PredictOptions, of the allowed labels, uint8[K].

        Cost: O(nodes) for label trees, O(labels) for decision trees.
        """

    @abstractmethod
    def _plan(self, options: PredictOptions) -> SearchPlan:
        """Return the plan of the search for some options."""

    def _search(self, options: PredictOptions, beam_width: int, is_sure: bool) -> tuple[Any, ...]:
        """Return the fields of a Search, in their order, for some options."""
        mask = ALL_ALLOWED if options.mask is None else options.mask
        weight = ALL_EQUAL if options.weights is None else options.weights
        log_threshold = log_thresholds(options.threshold, self._knots)
        top_r = min(options.top_r, options.limit or self.n_labels, self.n_labels)
        return self._link, beam_width, top_r, is_sure, mask, weight, log_threshold

    def _block_rows(self, plan: SearchPlan, n_rows: int) -> int:
        """Return how many of n_rows rows should go through the chunks together.

        0 stands for a traversal with a queue.
        """
        return 1

    def _paths(self) -> Paths:
        """Return the paths from labels to the nodes whose thresholds a search compares."""
        return NO_PATHS

    def predict_on_event_loop(
        self, rows: SparseRows, options: PredictOptions
    ) -> Predictions | None:
        """Return the predictions if they certainly take no longer than usual, else None.

        Here it is `predict`; a subclass may return None.
        """
        return self.predict(rows, options)

    def predict(self, rows: SparseRows, options: PredictOptions, threads: int = 1) -> Predictions:
        """Return the predictions of rows, which have the same bits with any number of threads.

        With one thread, the calling thread does it all.
        """
        plan = self._plan_of(options)
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        indptr = arrays[0]
        n_rows = len(indptr) - 1
        if n_rows == 1 and not options.costs:
            return self._answer_row(plan, arrays, indptr.item(1) - indptr.item(0))
        n_together = -(-n_rows // threads)
        longest = int(np.diff(indptr).max(initial=0))
        costs = np.empty((n_rows, 2), np.int64) if options.costs else NO_COSTS
        out = *empty_answers(n_rows, plan.top_r), costs

        def answer(first: int, last: int) -> None:
            buffers = self._take(plan, n_together, longest)
            set_rows(buffers.rows, *arrays)
            set_answers(buffers.answers, *out)
            self._run(plan, buffers, first, last)
            set_answers(buffers.answers, *buffers.row_answers)
            self.pool.give(buffers)

        if threads > 1 and n_rows > 1:
            in_parts(answer, n_rows, threads)
        else:
            answer(0, n_rows)
        return gather(*out)

    def move_thresholds(self, prepared: NodeThresholds, labels: I32, thresholds: F32) -> None:
        """Update `prepared` in place after the thresholds of some labels have changed.

        thresholds  float32[K] in [0, 1], of which thresholds[labels] have changed

        Predictions may run at the same time, see `xylem.thresholds.live.served`; two such calls may
        not. Cost: the labels' paths to the roots of label trees.
        """
        move_thresholds(*self._paths(), self._knots, labels, thresholds, prepared)

    def rows_to_search(self, rows: SparseRows, chosen: I64) -> SparseRows:
        """Return the rows, the chosen ones in the form that `row_search` takes.

        The number of rows stays the same. Here all rows have that form already.
        """
        return rows

    @contextmanager
    def row_search(
        self, threshold: float | NodeThresholds, n_features: int, mask: U8 | None = None
    ) -> Iterator[RowSearch]:
        """Yield the exact search for labels that reach these thresholds, for kernels to call.

        threshold, mask  as in PredictOptions

        Kernels call it for one row at a time, which has at most n_features features.
        """
        options = PredictOptions(top_r=PREDICTED_MAX, exact=True, threshold=threshold, mask=mask)
        address, buffers = self.row_buffers(options, n_features)
        counts, labels, scores, *_ = buffers.row_answers
        yield RowSearch(
            address=address,
            call=buffers.call,
            rows=buffers.rows,
            n_found=counts,
            labels=labels[0],
            scores=scores[0],
            paths=self._paths(),
            knots=self._knots,
        )
        self.pool.give(buffers)

    def row_buffers(self, options: PredictOptions, n_features: int) -> tuple[int, Buffers]:
        """Return the address of the traversal for some options, and buffers for calls of row 0.

        Rows have at most n_features features. The answers go to the buffers' `row_answers`.
        """
        plan = self._plan(options)
        buffers = self._take(plan, 1, n_features)
        buffers.call[FIRST] = 0
        buffers.call[LAST] = 1
        if plan.traversal not in self._addresses:
            self._addresses[plan.traversal] = address_of(plan.traversal, types.none, buffers.call)
        return self._addresses[plan.traversal], buffers

    @contextmanager
    def _row(self, rows: SparseRows, row: int) -> Iterator[Buffers]:
        """Yield buffers whose call is for one row of `rows`."""
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        first, last = arrays[0][row : row + 2].tolist()
        buffers = self._take(self._row_plan, 1, last - first)
        set_rows(buffers.rows, *arrays)
        buffers.call[FIRST] = row
        buffers.call[LAST] = row + 1
        yield buffers
        self.pool.give(buffers)

    def _answer_row(
        self, plan: SearchPlan, arrays: tuple[NDArray[Any], ...], n_features: int
    ) -> Predictions:
        """Answer a single row, into the arrays of pooled buffers.

        New output arrays for the call would cost as much as the search of a small row.
        """
        buffers = self._take(plan, 1, n_features)
        set_rows(buffers.rows, *arrays)
        self._run(plan, buffers, 0, 1)
        counts, labels, scores, exact, costs = buffers.row_answers
        n = counts.item(0)
        predictions = Predictions(
            np.array((0, n)), labels[0, :n].copy(), scores[0, :n].copy(), exact.copy(), costs
        )
        self.pool.give(buffers)
        return predictions

    def _take(self, plan: SearchPlan, n_rows: int, n_features: int) -> Buffers:
        """Return buffers for n_rows rows of up to n_features features, with the plan's search."""
        block_rows = self._block_rows(plan, n_rows)
        buffers = self.pool.take(Need(block_rows, n_features, plan.beam_width, plan.top_r))
        if buffers.plan is not plan:
            set_search(buffers.search, *plan.search)
            buffers.plan = plan
        return buffers

    def _run(self, plan: SearchPlan, buffers: Buffers, first: int, last: int) -> None:
        """Answer the rows first .. last - 1 of a call on this thread."""
        call = buffers.call
        call[FIRST] = first
        call[LAST] = last
        if plan.stop is None:
            plan.traversal(call)
            return
        buffers.watch(plan.stop)
        plan.traversal(call)
        buffers.watch(buffers.work.stop)

    def _plan_of(self, options: PredictOptions) -> SearchPlan:
        """Return the plan for some options, the last call's plan if its options were equal.

        They are equal if each field is the same object or the same number: arrays are not compared.
        """
        last, plan = self._last
        if last is not options and not all(
            a is b or (type(a) in _NUMBERS and type(b) in _NUMBERS and a == b)
            for a, b in zip(last, options, strict=True)
        ):
            plan = self._plan(options)
            self._last = options, plan
        return plan


class LabelSearcher(Searcher):
    """Predicts exactly, whatever the beam width; masks, thresholds and weights apply to the labels'
    scores.

    A label that the search does not find for a row has the score 0.
    """

    traversal: Callable[..., None]

    @abstractmethod
    def _options_for(self, row: SparseRows, labels: I32) -> PredictOptions:
        """Return the options of a search that finds the scores of some labels for one row."""

    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i + 1]] for row i.

        A label that is not found has the score 0. Cost: that of predicting the rows, and O(labels)
        for each row.
        """
        scores = np.zeros(len(labels), np.float32)
        score_of_label = np.zeros(self.n_labels, np.float32)
        for row in range(rows.n_rows):
            single_row = rows.cut(row, row + 1)
            row_span = slice(label_ptr[row], label_ptr[row + 1])
            predictions = self.predict(single_row, self._options_for(single_row, labels[row_span]))
            score_of_label[predictions.labels] = predictions.scores
            scores[row_span] = score_of_label[labels[row_span]]
            score_of_label[predictions.labels] = 0
        return LabelScores(scores, logs_of(scores))

    def node_thresholds(self, thresholds: F32) -> NodeThresholds:
        """Prepare one threshold for each label, float32[K] in [0, 1], for PredictOptions.

        Cost: O(labels).
        """
        return NodeThresholds(logs_of(thresholds, self._knots))

    def node_weights(self, weights: F32) -> NodeWeights:
        """Return the weights of labels, float32[K], finite and > 0, unchanged."""
        return NodeWeights(writeable(weights))

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need, by predicting an empty row."""
        no_features = np.empty(0, np.int32), np.empty(0, np.float32)
        row = SparseRows(np.zeros(2, np.int64), *no_features, self.n_features)
        mask = self.label_mask(np.ones(self.n_labels, np.uint8))
        self.predict(row, PredictOptions(threshold=0.5, mask=mask))
        self.explain(row, 0, 0)
        self.pool.clear()

    def _plan(self, options: PredictOptions) -> SearchPlan:
        search = self._search(options, 1, options.exact or options.threshold is not None)
        return SearchPlan(self.traversal, 1, search[2], search, options.stop)
