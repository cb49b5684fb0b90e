"""Fast requests in two steps: their rows are read, and answered then,
where one kernel does not do both.
"""

from abc import ABC, abstractmethod
from time import perf_counter_ns
from typing import TypeAlias

import numpy as np

from xylem.base import BEGAN, FEATURES, HAS_READ, MADE, N_TIMES, READ, StageTimes
from xylem.engine.answering import Predictions
from xylem.engine.fast_request import (
    BeamRequests,
    FastAnswer,
    FastForms,
    FastVersion,
    PackedOutputs,
    RowsRead,
    Signed,
)
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.request_bodies import RequestBodies
from xylem.engine.kernels.search.call import NUMBER, TUNED
from xylem.engine.kernels.search.fast_request import is_taken
from xylem.engine.kernels.text.texts import TEXTS
from xylem.engine.options import NodeThresholds, PredictOptions
from xylem.engine.prediction_json import predictions_json, spans_of
from xylem.engine.predictor import EmbeddedPredictor, Predictor
from xylem.engine.searcher import LabelSearcher, Searcher
from xylem_store import I64, U8, Model


class TwoSteps(ABC):
    """Answers requests as `BeamRequests` does, in two steps. One call at a time."""

    times: I64

    def __init__(self, version: FastVersion) -> None:
        self._reader = RequestBodies(version.forms.bodies, version.featurizer)
        self._stages = version.stages

    def prepare(self) -> None:
        """Do as `BeamRequests.prepare`: there is nothing to make here."""
        return

    def answer(self, message: bytes, start: int, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer`."""
        began = perf_counter_ns()
        asked = self._reader.read(message, start)
        has_read = perf_counter_ns() if asked.n_values == TEXTS else None
        found = self._reader.rows_read(asked)
        if found is None:
            return None
        answer = self.answer_rows(RowsRead(*found), signed)
        if answer is not None:
            self._begin_at(began, has_read)
        return answer

    def _begin_at(self, began: int, has_read: int | None) -> None:
        """Let an answer whose rows were read before its call have begun then.

        has_read   when its texts had been read, whose rows were made from then on; None: it had
                   none
        """
        times = self.times
        made = self.times.item(MADE)
        times[BEGAN] = began
        times[HAS_READ] = made if has_read is None else has_read
        self._stages.count_one(READ, times.item(HAS_READ) - began)
        if has_read is not None:
            self._stages.count_one(FEATURES, made - has_read)

    @abstractmethod
    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer_rows`."""

    def answer_tensors(
        self, data: bytes, start: int, form: I64, number: float, signed: Signed
    ) -> PackedOutputs | None:
        """Return None: no kernel reads tensors and searches in two steps."""
        return None


class EmbeddedRequests(TwoSteps):
    """Answers requests by a label tree whose rows an embedding makes."""

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
        return self._beam.answer_rows(self._embedded(rows), signed)

    def _embedded(self, read: RowsRead) -> RowsRead:
        """Return the rows that the embedding makes of others."""
        dense = self._embedding.rows(read.rows)
        return RowsRead(dense, read.asked._replace(n_values=len(dense.indices)), read.number)


class PredictorRequests(TwoSteps):
    """Answers requests by a predictor that is asked as ever; the same bits."""

    def __init__(self, version: FastVersion, predictor: Searcher) -> None:
        super().__init__(version)
        self.times = np.zeros(N_TIMES, np.int64)
        self._version = version
        self._predictor = predictor
        self._n_children = predictor.children_scored(1)

    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Do as `BeamRequests.answer_rows`."""
        began = perf_counter_ns()
        found = self._predict(rows, signed)
        if found is None:
            return None
        searched_at = perf_counter_ns()
        present, epoch, serial = signed
        is_tuned = rows.asked.threshold == TUNED
        thresholds = present.thresholds[:0] if is_tuned else present.thresholds
        predictions = predictions_json(
            self._version.model.labels,
            thresholds,
            present.seal_at(epoch),
            serial,
            spans_of(found),
            present.unlearned,
        )
        self.times[:] = began, began, began, searched_at, perf_counter_ns()
        self._stages.count_times(self.times)
        return FastAnswer(rows.asked.n_rows, b",".join(predictions), is_tuned)

    def _predict(self, read: RowsRead, signed: Signed) -> Predictions | None:
        """Return the labels of rows; None if these are not within the limits."""
        options = self._options(read, signed[0].tuned)
        return None if options is None else self._predictor.predict(read.rows, options)

    def _options(self, read: RowsRead, tuned: NodeThresholds | None) -> PredictOptions | None:
        """Return what is asked for; None: it is not within the limits, or thresholds
        are not known.
        """
        n_rows, _, top_r, beam_width, kind, is_exact = read.asked
        if not is_taken(n_rows, top_r, beam_width, self._n_children, self._version.forms.limits):
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
    """Return what answers requests from an opened version that `predictor` serves.

    stages   where it is counted how long reading, searching and writing take; None: nobody asks
    mask     of the labels that all answers may have, as `Searcher.label_mask` prepared it; None:
             all
    """
    version = FastVersion(model, featurizer, forms, stages or StageTimes(), mask)
    if isinstance(predictor, LabelSearcher):
        return PredictorRequests(version, predictor)
    if isinstance(predictor, EmbeddedPredictor):
        return EmbeddedRequests(version, predictor)
    if isinstance(predictor, Predictor):
        return BeamRequests(version, predictor)
    raise TypeError(f"expected a predictor of trees, found {type(predictor).__name__}")
