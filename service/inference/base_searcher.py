"""What predictors of both kinds share: calls of traversals on pooled buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, SupportsIndex

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.calibration import assemble_calibration
from model_store.compiled.calls import address_of
from model_store.compiled.uncopyable import Uncopyable, refuse_copy
from model_store.ensemble import LINK_CODES, Kind
from model_store.rerank import Rerank
from model_store.version import Model
from service.errors import Unavailable
from service.inference.answering import NOT_WANTED, Predictions, gather, in_parts, places_for, writeable
from service.inference.buffers import FIRST, LAST, BufferPool, Buffers, MakeOwn, Need
from service.inference.options import PredictOptions
from service.kernels.search.calibrated import Knots
from service.kernels.search.call import set_answers, set_rows, set_search
from service.kernels.search.threshold_update import Paths, RowSearch
from service.rows import SparseRows

_NUMBERS = frozenset({int, float})


class SearchPlan(NamedTuple):
    """What options mean for a model.

    traversal   answers a Call
    beam_width  the most nodes of a level that there must be room for
    search      the fields of its Search
    """

    traversal: Callable[..., None]
    beam_width: int
    top_r: int
    search: tuple[Any, ...]
    stop: NDArray[np.uint8] | None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied."""
        refuse_copy(self)


def check_kind(model: Model, kind: Kind) -> None:
    """Raise Unavailable for a model of another kind."""
    if model.manifest.kind != kind:
        raise Unavailable(f"expected a model of kind {kind}, found {model.manifest.kind}")


class BaseSearcher(Uncopyable, ABC):
    """Answers rows from one opened version. Safe to call from several threads at once.

    pool  the idle buffers of the model's traversals
    """

    def __init__(self, model: Model, kind: Kind, rerank: Rerank, make_own: MakeOwn) -> None:
        """Take an opened model, whose arrays have been checked. Raises Unavailable for another kind.

        make_own   makes a traversal's own buffers. It does not hold this searcher: a cycle would keep the
                   model until the collector comes, which looks at nothing that a server began with
        """
        check_kind(model, kind)
        self._ensemble = model.ensemble
        self._link = LINK_CODES[model.manifest.link]
        self._labels = model.labels
        self.n_labels = model.manifest.n_labels
        self.n_features = model.manifest.n_features
        calibration = assemble_calibration(model.manifest, model.arrays)
        self._knots: Knots = (writeable(calibration.x), writeable(calibration.y))
        self.pool = BufferPool(model.ensemble, rerank, calibration, make_own)
        self._row_searching = 0
        self._row_plan = self._plan(PredictOptions(top_r=1, beam_width=1))
        options = PredictOptions()
        self._last = options, self._plan(options)

    @abstractmethod
    def _plan(self, options: PredictOptions) -> SearchPlan:
        """Return what the options mean here."""

    @abstractmethod
    def _block_rows(self, plan: SearchPlan, n_rows: int) -> int:
        """Return how many of n_rows rows are to go through the chunks together; 0: it is by a queue."""

    @abstractmethod
    def _paths(self) -> Paths:
        """Return the paths from labels to what a search compares thresholds with."""

    def predict(self, rows: SparseRows, options: PredictOptions) -> Predictions:
        """Answer rows one after the other, on the calling thread.

        The answer to a row depends on the row, the options and the model only.
        """
        return self._answer(rows, options, 1)

    def predict_batch(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        """Answer rows on `threads` threads; the same bits as `predict`."""
        return self._answer(rows, options, threads)

    def rows_to_search(self, rows: SparseRows, chosen: NDArray[np.int64]) -> SparseRows:
        """Return rows of which those chosen are what `row_search` takes: here all are, as they are."""
        return rows

    @contextmanager
    def row_search(self, options: PredictOptions, n_features: int) -> Iterator[RowSearch]:
        """Return the exact search for prepared thresholds, for a kernel that calls it row by row.

        Rows have so many features at most.
        """
        plan = self._plan(options)
        buffers = self._take(plan, 1, n_features)
        buffers.call[FIRST], buffers.call[LAST] = 0, 1
        if self._row_searching == 0:
            self._row_searching = address_of(plan.traversal, types.none, buffers.call)
        counts, labels, *_ = buffers.kept
        found = labels[0]
        yield RowSearch(
            self._row_searching, buffers.call, buffers.rows, counts, found, self._paths(), self._knots
        )
        self.pool.give(buffers)

    @contextmanager
    def _row(self, rows: SparseRows, row: int) -> Iterator[Buffers]:
        """Hand out buffers whose call is for one row."""
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        first, last = arrays[0][row : row + 2].tolist()
        buffers = self._take(self._row_plan, 1, last - first)
        set_rows(buffers.rows, *arrays)
        buffers.call[FIRST], buffers.call[LAST] = row, row + 1
        yield buffers
        self.pool.give(buffers)

    def _answer(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
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

    def _answer_one(self, plan: SearchPlan, arrays: tuple[NDArray[Any], ...], n_features: int) -> Predictions:
        """Answer a row alone, on buffers that are kept: arrays made for a call cost as much as small rows."""
        buffers = self._take(plan, 1, n_features)
        set_rows(buffers.rows, *arrays)
        self._run(plan, buffers, 0, 1)
        counts, labels, scores, exact, costs = buffers.kept
        n = counts.item(0)
        found = Predictions(np.array((0, n)), labels[0, :n].copy(), scores[0, :n].copy(), exact.copy(), costs)
        self.pool.give(buffers)
        return found

    def _take(self, plan: SearchPlan, n_rows: int, n_features: int) -> Buffers:
        """Return buffers for n_rows rows of up to n_features features, whose call has the plan's search."""
        block_rows = self._block_rows(plan, n_rows)
        buffers = self.pool.take(Need(block_rows, n_features, plan.beam_width, plan.top_r))
        if buffers.plan is not plan:
            set_search(buffers.search, *plan.search)
            buffers.plan = plan
        return buffers

    def _run(self, plan: SearchPlan, buffers: Buffers, first: int, last: int) -> None:
        """Answer rows first .. last - 1 of a call on this thread."""
        call = buffers.call
        call[FIRST], call[LAST] = first, last
        if plan.stop is None:
            plan.traversal(call)
            return
        buffers.watch(plan.stop)
        plan.traversal(call)
        buffers.watch(buffers.work.stop)

    def _plan_of(self, options: PredictOptions) -> SearchPlan:
        """Return what the options mean here; the same as for the call before if they say the same."""
        last, plan = self._last
        if last is not options and not _say_the_same(last, options):
            plan = self._plan(options)
            self._last = options, plan
        return plan


def _say_the_same(one: PredictOptions, other: PredictOptions) -> bool:
    """Return whether all is the same object, or the same number: arrays are not looked into."""
    return all(a is b or (type(a) in _NUMBERS and a == b) for a, b in zip(one, other, strict=True))
