"""Sparse requests of decision trees, whose predictor is asked as ever: the answers are its, to the bit."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from model_store.version import Model
from service.features import Featurizer
from service.features.sparse_request import SparseQuery
from service.features.tensor_request import TensorBodies
from service.inference.answering import Predictions
from service.inference.forest_predictor import ForestPredictor
from service.inference.options import NodeThresholds, PredictOptions
from service.inference.prediction_json import predictions_json, spans_of
from service.inference.sparse_answers import Present, SparseAnswer, SparseForms, TensorsAnswer, identity_of
from service.inference.sparse_steps import ReadsFirst
from service.inference.tensors_json import tensors_json
from service.kernels.search.query import NUMBER, TUNED
from service.kernels.search.sparse_request import is_taken
from service.rows import SparseRows
from service.stages import N_TIMES, StageTimes


class SparseForest(ReadsFirst):
    """Answers sparse requests by decision trees, whose predictor is asked as ever. One call at a time."""

    def __init__(
        self,
        model: Model,
        predictor: ForestPredictor,
        featurizer: Featurizer,
        forms: SparseForms,
        stages: StageTimes,
        mask: NDArray[np.uint8] | None = None,
    ) -> None:
        """Take what `SparseBeam` takes, and the model's predictor."""
        self.times = np.zeros(N_TIMES, np.int64)
        self._stages = stages
        self._reader = TensorBodies(forms.bodies, featurizer)
        self._predictor = predictor
        self._names = model.labels
        self._limits = forms.limits
        self._mask = mask
        self._n_children = predictor.children_scored(1)

    def answer_rows(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        present: Present,
        epoch: int,
        serial: int,
    ) -> SparseAnswer | None:
        """Do as `SparseBeam.answer_rows`."""
        began = perf_counter_ns()
        found = self._predict(rows, asked, number, present.tuned)
        if found is None:
            return None
        searched_at = perf_counter_ns()
        named = present.thresholds[:0] if asked.threshold == TUNED else present.thresholds
        predictions = predictions_json(self._names, named, present.seal_at(epoch), serial, spans_of(found))
        self._count(began, searched_at)
        return SparseAnswer(asked.n_rows, b",".join(predictions), asked.threshold == TUNED)

    def rows_as_tensors(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        form: NDArray[np.int64],
        present: Present,
    ) -> TensorsAnswer | None:
        """Do as `SparseBeam.rows_as_tensors`."""
        began = perf_counter_ns()
        found = self._predict(rows, asked, number, present.tuned)
        if found is None:
            return None
        searched_at = perf_counter_ns()
        tensors = tensors_json(self._names, form, spans_of(found))
        self._count(began, searched_at)
        return TensorsAnswer(asked.n_rows, tensors, identity_of(form), asked.threshold == TUNED)

    def _count(self, began: int, searched_at: int) -> None:
        """Count the stages of a call that has searched and written."""
        self.times[:] = began, began, began, searched_at, perf_counter_ns()
        self._stages.count_times(self.times)

    def _predict(
        self, rows: SparseRows, asked: SparseQuery, number: float, tuned: NodeThresholds | None
    ) -> Predictions | None:
        """Return the answers; None: they are not within the limits, or their thresholds are not known."""
        n_rows, _, top_r, beam_width, kind, is_exact = asked
        if not is_taken(n_rows, top_r, beam_width, self._n_children, self._limits):
            return None
        if kind == TUNED and tuned is None:
            return None
        threshold = tuned if kind == TUNED else number if kind == NUMBER else None
        options = PredictOptions(top_r, beam_width, bool(is_exact), threshold, self._mask)
        return self._predictor.predict(rows, options)
