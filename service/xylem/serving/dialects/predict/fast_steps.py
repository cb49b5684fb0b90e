"""Fast requests in two steps, for models for which one kernel cannot do both: first the rows are
read, then they are answered.
"""

from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import TypeAlias

import numpy as np

from xylem.base import FEATURES, READ, StageTimes
from xylem.engine import (
    NUMBER,
    TUNED,
    EmbeddedPredictor,
    Featurizer,
    PredictOptions,
    Predictor,
    Searcher,
)
from xylem.serving.dialects.predict.fast_request import (
    BeamRequests,
    FastAnswer,
    FastForms,
    FastVersion,
    RowsRead,
)
from xylem.serving.dialects.predict.kernels.fast_request import (
    BEGAN,
    HAS_READ,
    HAS_ROWS,
    N_TIMES,
    is_within_limits,
)
from xylem.serving.dialects.predict.kernels.request_bodies import TEXTS, RequestBodies
from xylem.serving.dialects.predict.prediction_json import predictions_json, spans_of
from xylem.serving.feedback.prediction_ids import Present, Signed
from xylem_store import I64, U8, Model


class TwoSteps(ABC):
    """Answers requests as `BeamRequests` does, but in two steps. One call at a time.

    times  as in `BeamRequests`; subclasses set it
    """

    times: I64
    reads_tensors = False

    def __init__(self, version: FastVersion) -> None:
        self._reader = RequestBodies(version.forms.bodies, version.featurizer)
        self._stages = version.stages

    def prepare(self) -> None:
        """Do nothing: unlike `BeamRequests.prepare`, there are no buffers to make here."""
        return

    def answer(self, message: bytes, start: int, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer`."""
        start_time = perf_counter_ns()
        query = self._reader.read(message, start)
        read_time = perf_counter_ns() if query.n_values == TEXTS else None
        rows_and_query = self._reader.rows_read(query)
        if rows_and_query is None:
            return None
        answer = self.answer_rows(RowsRead(*rows_and_query), signed)
        if answer is not None:
            self._begin_at(start_time, read_time)
        return answer

    def _begin_at(self, start_time: int, read_time: int | None) -> None:
        """Add the reading of the body to the times and stages of an answer.

        `answer_rows` has set the times as if the request had begun with its own call, but the body
        was read before that call.

        start_time  when the reading of the body began
        read_time   when the texts had been read, and the making of their rows began; None: the body
                    had no texts
        """
        times = self.times
        rows_time = self.times.item(HAS_ROWS)
        times[BEGAN] = start_time
        times[HAS_READ] = rows_time if read_time is None else read_time
        self._stages.count_one(READ, times.item(HAS_READ) - start_time)
        if read_time is not None:
            self._stages.count_one(FEATURES, rows_time - read_time)

    @abstractmethod
    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer_rows`."""

    def answer_tensors(
        self, data: bytes, start: int, form: I64, number: float, signed: Signed
    ) -> tuple[bytes, list[int]] | None:
        """Return None: no kernel reads tensors and searches in two steps."""
        return None


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

    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer_rows`."""
        dense = self._embedding.rows(rows.rows)
        query = rows.query._replace(n_values=len(dense.indices))
        return self._beam.answer_rows(RowsRead(dense, query, rows.number), signed)


class PredictorRequests(TwoSteps):
    """Answers requests by calling a predictor's `predict`, for kinds without a fast kernel."""

    def __init__(self, version: FastVersion, predictor: Searcher) -> None:
        super().__init__(version)
        self.times = np.zeros(N_TIMES, np.int64)
        self._version = version
        self._predictor = predictor
        self._n_children = predictor.children_scored(1)

    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer_rows`."""
        start_time = perf_counter_ns()
        options = self._options(rows, signed[0])
        if options is None:
            return None
        predictions = self._predictor.predict(rows.rows, options)
        search_end = perf_counter_ns()
        present, epoch, serial = signed
        is_tuned = rows.query.threshold == TUNED
        written = predictions_json(
            self._version.model.labels,
            present.thresholds[:0] if is_tuned else present.thresholds,
            present.seal_at(epoch),
            serial,
            spans_of(predictions),
            present.unlearned,
        )
        self.times[:] = start_time, start_time, start_time, search_end, perf_counter_ns()
        self._stages.count_times(self.times)
        return FastAnswer(rows.query.n_rows, b",".join(written), is_tuned)

    def _options(self, read: RowsRead, present: Present) -> PredictOptions | None:
        """Return the options that a query asks for.

        Return None if it is not within the limits, or asks for tuned thresholds and there are none.
        """
        n_rows, _, top_r, beam_width, kind, is_exact = read.query
        if (kind == TUNED and present.tuned is None) or not is_within_limits(
            n_rows, top_r, beam_width, self._n_children, self._version.forms.limits
        ):
            return None
        threshold = present.tuned if kind == TUNED else read.number if kind == NUMBER else None
        return PredictOptions(
            top_r,
            beam_width,
            bool(is_exact),
            threshold,
            self._version.mask,
            limit=present.limit if kind == TUNED else None,
        )


FastRequests: TypeAlias = BeamRequests | TwoSteps


def fast_requests(
    model: Model,
    predictor: Searcher,
    featurizer: Featurizer,
    forms: FastForms,
    stages: StageTimes | None = None,
    mask: U8 | None = None,
) -> FastRequests:
    """Return the object that answers requests to an opened version; `predictor` is made of it.

    stages   counts how long reading, searching and writing take; None: nothing is counted
    mask     the labels that answers may have, as `Searcher.label_mask` prepared it; None: all
    """
    version = FastVersion(model, featurizer, forms, stages or StageTimes(), mask)
    if isinstance(predictor, EmbeddedPredictor):
        return EmbeddedRequests(version, predictor)
    if isinstance(predictor, Predictor):
        return BeamRequests(version, predictor)
    return PredictorRequests(version, predictor)
