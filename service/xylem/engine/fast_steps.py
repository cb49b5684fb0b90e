"""Fast requests in two steps, for models for which one kernel cannot do both: first the rows are
read, then they are answered.
"""

from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import TypeAlias

import numpy as np

from xylem.base import BEGAN, FEATURES, HAS_READ, MADE, N_TIMES, READ, StageTimes
from xylem.engine.fast_request import (
    BeamRequests,
    FastAnswer,
    FastForms,
    FastVersion,
    RowsRead,
    Signed,
    Writer,
    with_identity,
)
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.tensor_request import TensorBodies
from xylem.engine.kernels.search.call import NUMBER, TUNED
from xylem.engine.kernels.search.fast_request import TENSORS, is_within_limits
from xylem.engine.kernels.text.texts import TEXTS
from xylem.engine.options import NodeThresholds, PredictOptions
from xylem.engine.prediction_json import spans_of
from xylem.engine.predictor import EmbeddedPredictor, Predictor
from xylem.engine.searcher import LabelSearcher, Searcher
from xylem_store import I64, U8, Model


class TwoSteps(ABC):
    """Answers requests as `BeamRequests` does, but in two steps. One call at a time.

    times  as of `BeamRequests`; subclasses set it
    """

    times: I64

    def __init__(self, version: FastVersion) -> None:
        self._reader = TensorBodies(version.forms.bodies, version.featurizer)
        self._stages = version.stages

    def prepare(self) -> None:
        """Do nothing: unlike `BeamRequests.prepare`, there are no buffers to make here."""
        return

    def answer(
        self,
        message: bytes,
        span: tuple[int, int],
        writer: Writer,
        signed: Signed,
        read: RowsRead | None = None,
    ) -> FastAnswer | None:
        """Do as `BeamRequests.answer`."""
        if read is not None:
            return self._answer_rows(read, writer, signed)
        start_time = perf_counter_ns()
        query = writer.read(self._reader, message, span)
        read_time = perf_counter_ns() if query.n_values == TEXTS else None
        rows_and_query = self._reader.rows_read(query)
        if rows_and_query is None:
            return None
        answer = self._answer_rows(RowsRead(*rows_and_query, self._reader.form), writer, signed)
        if answer is None:
            return None
        self._begin_at(start_time, read_time)
        is_tensors = writer.kind == TENSORS
        return with_identity(answer, message, self._reader.form) if is_tensors else answer

    def _begin_at(self, start_time: int, read_time: int | None) -> None:
        """Let an answer whose rows were read before its call have begun then.

        read_time  when its texts had been read, whose rows were made from then on; None: it had
                   none
        """
        times = self.times
        rows_time = self.times.item(MADE)
        times[BEGAN] = start_time
        times[HAS_READ] = rows_time if read_time is None else read_time
        self._stages.count_one(READ, times.item(HAS_READ) - start_time)
        if read_time is not None:
            self._stages.count_one(FEATURES, rows_time - read_time)

    @abstractmethod
    def _answer_rows(self, read: RowsRead, writer: Writer, signed: Signed) -> FastAnswer | None:
        """Return the answer for rows, None if it is not within the limits."""


class EmbeddedRequests(TwoSteps):
    """Answers requests by label trees that take dense rows, which an embedding makes."""

    def __init__(self, version: FastVersion, predictor: EmbeddedPredictor) -> None:
        super().__init__(version)
        self._beam = BeamRequests(version, predictor)
        self.times = self._beam.times
        self._embedding = predictor.embedding

    def prepare(self) -> None:
        """Do as `BeamRequests.prepare`."""
        self._beam.prepare()

    def _answer_rows(self, read: RowsRead, writer: Writer, signed: Signed) -> FastAnswer | None:
        dense = self._embedding.rows(read.rows)
        query = read.query._replace(n_values=len(dense.indices))
        return self._beam.answer(
            b"", (0, 0), writer, signed, RowsRead(dense, query, read.number, read.form)
        )


class PredictorRequests(TwoSteps):
    """Answers requests by calling a predictor's `predict`, for kinds without a fast kernel."""

    def __init__(self, version: FastVersion, predictor: Searcher) -> None:
        super().__init__(version)
        self.times = np.zeros(N_TIMES, np.int64)
        self._version = version
        self._predictor = predictor
        self._n_children = predictor.children_scored(1)

    def _answer_rows(self, read: RowsRead, writer: Writer, signed: Signed) -> FastAnswer | None:
        start_time = perf_counter_ns()
        options = self._options(read, signed[0].tuned)
        if options is None:
            return None
        predictions = self._predictor.predict(read.rows, options)
        search_end = perf_counter_ns()
        answer = writer.write(self._version.model.labels, read, spans_of(predictions), signed)
        self.times[:] = start_time, start_time, start_time, search_end, perf_counter_ns()
        self._stages.count_times(self.times)
        return answer

    def _options(self, read: RowsRead, tuned: NodeThresholds | None) -> PredictOptions | None:
        """Return the options that a query asks for.

        Return None if it is not within the limits, or asks for tuned thresholds and there are none.
        """
        n_rows, _, top_r, beam_width, kind, is_exact = read.query
        if not is_within_limits(
            n_rows, top_r, beam_width, self._n_children, self._version.forms.limits
        ):
            return None
        if kind == TUNED and tuned is None:
            return None
        threshold = tuned if kind == TUNED else read.number if kind == NUMBER else None
        return PredictOptions(top_r, beam_width, bool(is_exact), threshold, self._version.mask)


FastRequests: TypeAlias = BeamRequests | TwoSteps


def fast_requests(
    model: Model,
    predictor: Searcher,
    featurizer: Featurizer,
    forms: FastForms,
    stages: StageTimes | None = None,
    mask: U8 | None = None,
) -> FastRequests:
    """Return the object that answers requests to an opened version, of which `predictor` is made.

    stages   counts how long reading, searching and writing take; None: it is not counted
    mask     the labels that answers may have, as `Searcher.label_mask` prepared it; None: all
    """
    version = FastVersion(model, featurizer, forms, stages or StageTimes(), mask)
    if isinstance(predictor, LabelSearcher):
        return PredictorRequests(version, predictor)
    if isinstance(predictor, EmbeddedPredictor):
        return EmbeddedRequests(version, predictor)
    if isinstance(predictor, Predictor):
        return BeamRequests(version, predictor)
    raise TypeError(f"expected a predictor of trees, found {type(predictor).__name__}")
