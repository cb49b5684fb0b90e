"""What answers rows from an opened model, whatever its kind: calls of traversals on
pooled buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from xylem.base import SparseRows, UnknownLabel, writeable
from xylem.engine.answering import NOT_WANTED, Predictions, gather, in_parts, places_for
from xylem.engine.buffers import FIRST, LAST, BufferPool, Buffers, MakeOwn, Need
from xylem.engine.explain import AnyExplanation
from xylem.engine.kernels.search.calibrated import Knots
from xylem.engine.kernels.search.call import set_answers, set_rows, set_search
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
    NameTable,
    Rerank,
    Uncopyable,
    address_of,
    assemble_calibration,
    find_all,
)

PREDICTED_MAX = 1000
"""Labels that a row counts as predicted, at most: the best ones. A
finite bound on what an event touches.
"""

_NUMBERS = frozenset({int, float})


@dataclass(frozen=True, slots=True)
class SearchPlan(Uncopyable):
    """What options mean for a model.

    traversal   answers a Call
    beam_width  the most nodes of a level that there must be room for
    search      the fields of its Search
    """

    traversal: Callable[..., None]
    beam_width: int
    top_r: int
    search: tuple[Any, ...]
    stop: U8 | None


class Searcher(Uncopyable, ABC):
    """Answers rows from one opened version. Safe to call from several threads at once.

    The answer to a row depends on the row, the options and the model only.

    pool  the idle buffers of the model's traversals
    """

    def __init__(self, model: Model, make_own: MakeOwn, rerank: Rerank = NO_RERANK) -> None:
        """Take an opened model of the kind that it answers, whose arrays have been checked.

        make_own   makes a traversal's own buffers. It does not hold this searcher: a cycle would
                   keep the model until the collector comes, which looks at nothing that a server
                   began with
        """
        self._ensemble = model.ensemble
        self._link = LINK_CODES[model.manifest.link]
        self._labels = model.labels
        self.n_labels = model.manifest.n_labels
        self.n_features = model.manifest.n_features
        calibration = assemble_calibration(model.manifest, model.arrays)
        self._knots: Knots = (writeable(calibration.x), writeable(calibration.y))
        self.pool = BufferPool(model.ensemble, rerank, calibration, make_own)
        self._addresses: dict[Callable[..., None], int] = {}
        self._row_plan = self._plan(PredictOptions(top_r=1, beam_width=1))
        options = PredictOptions()
        self._last = options, self._plan(options)

    @property
    @abstractmethod
    def nodes_explained(self) -> int:
        """A bound on the nodes of a label's explanation, each with
        a look at all features of the row.
        """

    @abstractmethod
    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that a search of this width scores for a row at once."""

    @abstractmethod
    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i +
        1]] for row i, as an exact search's.
        """

    @abstractmethod
    def explain(self, rows: SparseRows, row: int, label: int) -> AnyExplanation:
        """Return how one row of `rows` comes by its score for a label."""

    @abstractmethod
    def node_thresholds(self, thresholds: F32) -> NodeThresholds:
        """Prepare one threshold a label, float32[K] in [0, 1], for PredictOptions."""

    @abstractmethod
    def node_weights(self, weights: F32) -> NodeWeights:
        """Prepare one weight a label, float32[K], finite and > 0, for PredictOptions."""

    @abstractmethod
    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need."""

    @abstractmethod
    def _mask_of(self, allowed: U8) -> U8:
        """Return the mask of labels that are allowed, uint8[K], as searches take it."""

    @abstractmethod
    def _plan(self, options: PredictOptions) -> SearchPlan:
        """Return what the options mean here."""

    def _search(self, options: PredictOptions, beam_width: int, is_sure: bool) -> tuple[Any, ...]:
        """Return the fields of a Search."""
        mask = ALL_ALLOWED if options.mask is None else options.mask
        weight = ALL_EQUAL if options.weights is None else options.weights
        log_threshold = log_thresholds(options.threshold, self._knots)
        top_r = min(options.top_r, self.n_labels)
        return self._link, beam_width, top_r, is_sure, mask, weight, log_threshold

    def _block_rows(self, plan: SearchPlan, n_rows: int) -> int:
        """Return how many of n_rows rows are to go through the
        chunks together; 0: it is by a queue.
        """
        return 1

    def _paths(self) -> Paths:
        """Return the paths from labels to what a search compares thresholds with."""
        return NO_PATHS

    def predict_on_event_loop(
        self, rows: SparseRows, options: PredictOptions
    ) -> Predictions | None:
        """Return what `predict` does if that surely takes no longer than usual, as
        here; else None.
        """
        return self.predict(rows, options)

    def predict(self, rows: SparseRows, options: PredictOptions, threads: int = 1) -> Predictions:
        """Answer rows on so many threads, the same bits with any number; 1: on the
        calling thread.
        """
        plan = self._plan_of(options)
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        indptr = arrays[0]
        n_rows = len(indptr) - 1
        if n_rows == 1 and not options.costs:
            return self._answer_one(plan, arrays, indptr.item(1) - indptr.item(0))
        n_together = -(-n_rows // threads)
        longest = int(np.diff(indptr).max(initial=0))
        costs = np.empty((n_rows, 2), np.int64) if options.costs else NOT_WANTED
        out = *places_for(n_rows, plan.top_r), costs

        def answer(first: int, last: int) -> None:
            buffers = self._take(plan, n_together, longest)
            set_rows(buffers.rows, *arrays)
            set_answers(buffers.answers, *out)
            self._run(plan, buffers, first, last)
            set_answers(buffers.answers, *buffers.kept)
            self.pool.give(buffers)

        if threads > 1 and n_rows > 1:
            in_parts(answer, n_rows, threads)
        else:
            answer(0, n_rows)
        return gather(*out)

    def label_mask(
        self,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        among: U8 | None = None,
    ) -> U8 | None:
        """Return the mask for PredictOptions of the labels that are
        allowed (None: all) and not denied.

        among  uint8[K], 0 for labels that are denied in any case; None: there are none

        Raises UnknownLabel. Cost: O(nodes) of label trees, O(labels) of decision trees.
        """
        if allow is None and deny is None and among is None:
            return None
        allowed = np.full(self.n_labels, allow is None, np.uint8)
        allowed[label_ids(self._labels, allow or (), "allow_labels")] = 1
        allowed[label_ids(self._labels, deny or (), "deny_labels")] = 0
        return self._mask_of(allowed if among is None else allowed & among)

    def move_thresholds(self, prepared: NodeThresholds, labels: I32, thresholds: F32) -> None:
        """Bring `prepared` up to date in place where thresholds[labels],
        float32[K] in [0, 1], have changed.

        Predictions may go on meanwhile, see `xylem.thresholds.live.served`; two such calls may not.
        Cost: the labels' paths to the roots of label trees.
        """
        move_thresholds(*self._paths(), self._knots, labels, thresholds, prepared)

    def rows_to_search(self, rows: SparseRows, chosen: I64) -> SparseRows:
        """Return rows of which those chosen are what `row_search` takes: here all
        are, as they are.
        """
        return rows

    @contextmanager
    def row_search(self, prepared: NodeThresholds, n_features: int) -> Iterator[RowSearch]:
        """Return the exact search for labels that reach these thresholds,
        for a kernel that calls it by rows.

        Rows have so many features at most.
        """
        options = PredictOptions(top_r=PREDICTED_MAX, exact=True, threshold=prepared)
        address, buffers = self.row_buffers(options, n_features)
        counts, labels, *_ = buffers.kept
        yield RowSearch(
            address=address,
            call=buffers.call,
            rows=buffers.rows,
            n_found=counts,
            found=labels[0],
            paths=self._paths(),
            knots=self._knots,
        )
        self.pool.give(buffers)

    def row_buffers(self, options: PredictOptions, n_features: int) -> tuple[int, Buffers]:
        """Return the address of the traversal for some options,
        and buffers whose call is for row 0.

        Rows have so many features at most. The buffers' answers are `kept`.
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
        """Hand out buffers whose call is for one row."""
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        first, last = arrays[0][row : row + 2].tolist()
        buffers = self._take(self._row_plan, 1, last - first)
        set_rows(buffers.rows, *arrays)
        buffers.call[FIRST] = row
        buffers.call[LAST] = row + 1
        yield buffers
        self.pool.give(buffers)

    def _answer_one(
        self, plan: SearchPlan, arrays: tuple[NDArray[Any], ...], n_features: int
    ) -> Predictions:
        """Answer a row alone, on buffers that are kept: arrays made for
        a call cost as much as small rows.
        """
        buffers = self._take(plan, 1, n_features)
        set_rows(buffers.rows, *arrays)
        self._run(plan, buffers, 0, 1)
        counts, labels, scores, exact, costs = buffers.kept
        n = counts.item(0)
        found = Predictions(
            np.array((0, n)), labels[0, :n].copy(), scores[0, :n].copy(), exact.copy(), costs
        )
        self.pool.give(buffers)
        return found

    def _take(self, plan: SearchPlan, n_rows: int, n_features: int) -> Buffers:
        """Return buffers for n_rows rows of up to n_features
        features, whose call has the plan's search.
        """
        block_rows = self._block_rows(plan, n_rows)
        buffers = self.pool.take(Need(block_rows, n_features, plan.beam_width, plan.top_r))
        if buffers.plan is not plan:
            set_search(buffers.search, *plan.search)
            buffers.plan = plan
        return buffers

    def _run(self, plan: SearchPlan, buffers: Buffers, first: int, last: int) -> None:
        """Answer rows first .. last - 1 of a call on this thread."""
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
        """Return what the options mean here; the same as for the call before if they say the same.

        That is, if all is the same object, or the same number: arrays are not looked into.
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
    """Answers rows exactly, whatever the beam; masks, thresholds and
    weights apply to the labels' scores.

    A label that no search finds for a row has the score 0.
    """

    traversal: Callable[..., None]

    @abstractmethod
    def _options_for(self, row: SparseRows, named: I32) -> PredictOptions:
        """Return the options that find the scores of some labels for one row."""

    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i +
        1]] for row i: 0 of one not found.

        Cost: that of answering the rows, and a look at all labels for each.
        """
        scores = np.zeros(len(labels), np.float32)
        of_label = np.zeros(self.n_labels, np.float32)
        for row in range(rows.n_rows):
            alone = rows.cut(row, row + 1)
            at = slice(label_ptr[row], label_ptr[row + 1])
            found = self.predict(alone, self._options_for(alone, labels[at]))
            of_label[found.labels] = found.scores
            scores[at] = of_label[labels[at]]
            of_label[found.labels] = 0
        return LabelScores(scores, logs_of(scores))

    def node_thresholds(self, thresholds: F32) -> NodeThresholds:
        """Prepare one threshold a label, float32[K] in [0, 1], for PredictOptions.

        Cost: O(labels).
        """
        return NodeThresholds(logs_of(thresholds, self._knots))

    def node_weights(self, weights: F32) -> NodeWeights:
        """Prepare one weight a label, float32[K], finite and > 0, for PredictOptions:
        as they are.
        """
        return NodeWeights(writeable(weights))

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need, by answering an empty row."""
        nothing = np.empty(0, np.int32), np.empty(0, np.float32)
        row = SparseRows(np.zeros(2, np.int64), *nothing, self.n_features)
        self.predict(row, PredictOptions(threshold=0.5, mask=self.label_mask(deny=())))
        self.explain(row, 0, 0)

    def _plan(self, options: PredictOptions) -> SearchPlan:
        is_sure = options.exact or options.threshold is not None
        search = self._search(options, 1, is_sure)
        return SearchPlan(self.traversal, 1, search[2], search, options.stop)


def label_ids(labels: NameTable, names: Sequence[str], where: str) -> I32:
    """Return the ids of labels, int32[m].

    Raises UnknownLabel, which says where in a request they are.
    """
    ids = find_all(labels, names)
    if len(ids) and ids.min() < 0:
        raise UnknownLabel(
            f"{where}: expected labels of the model, found {names[int(ids.argmin())]!r}"
        )
    return ids
