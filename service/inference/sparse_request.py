"""Sparse requests of one version: a body's bytes in, the JSON of its predictions out.

What is needed for it is made once and used by one request after the other, on one thread. The predictors make
arrays for each call, look for idle buffers and gather the answers: that is little beside many rows, and as
much as the search itself beside one. The predictions are those of `Predictor.predict`, to the bit.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.calls import address_of
from model_store.compiled.handles import handle_of
from model_store.ensemble import LINK_CODES
from model_store.version import Model
from service.features import Featurizer
from service.features.sparse_request import SparseQuery, data_of, read_body
from service.features.tensor_request import TensorBodies, read_tensors
from service.features.weights import NORM_CODES
from service.inference.answering import NOT_WANTED
from service.inference.buffers import FIRST, Need
from service.inference.embedded import EmbeddedPredictor
from service.inference.forest_predictor import ForestPredictor
from service.inference.options import ALL_ALLOWED, ALL_EQUAL
from service.inference.prediction_json import cut, text_room
from service.inference.predictor import Predictor
from service.inference.searcher import Searcher
from service.inference.sparse_answers import Present, SparseAnswer, SparseForms, TensorsAnswer, identity_of
from service.inference.sparse_forest import SparseForest
from service.inference.sparse_steps import ReadsFirst
from service.inference.tensors_json import tensors_of
from service.kernels.search.beam import beam_rows
from service.kernels.search.call import set_rows
from service.kernels.search.query import TUNED
from service.kernels.search.sparse_request import (
    GROW,
    PREDICTIONS,
    READS,
    SEARCHES,
    TENSORS,
    WRITES,
    SparseCall,
    SparseModel,
    answer_sparse,
)
from service.kernels.text.prediction_json import TOKEN_ROOM, write_predictions
from service.kernels.text.tensors import write_tensors
from service.rows import SparseRows
from service.stages import N_TIMES, StageTimes

_FIRST_NEED = Need(1, 256, 10, 10)
_KIND = 4
"""The place of the kind of threshold among what was asked."""

_NO_DATA = data_of(b"")


class SparseBeam:
    """Answers sparse requests by the beam search of a label tree. One call at a time.

    times   int64[N_TIMES]  of the last answer's call (`service.stages`)
    """

    def __init__(
        self,
        model: Model,
        predictor: Predictor,
        featurizer: Featurizer,
        forms: SparseForms,
        stages: StageTimes,
        mask: NDArray[np.uint8] | None = None,
    ) -> None:
        """Take a predictor, its model, and what makes its rows; `forms` says what is answered.

        stages   where the kernel counts how long it reads, searches and writes
        mask     what Predictor.label_mask prepared, for all answers; None: all labels are allowed
        """
        ensemble, shape = model.ensemble, predictor.shape
        self.times = np.zeros(N_TIMES, np.int64)
        self._stages = stages
        self._pool = predictor.pool
        self._bodies = TensorBodies(forms.bodies, featurizer)
        self._limits = handle_of(forms.limits)
        self._names = model.labels
        self._allowed = ALL_ALLOWED if mask is None else mask
        self._given = np.zeros(len(SparseQuery._fields), np.int64)
        self._asked = np.zeros(5, np.int64)
        self._constants = SparseModel(
            reading=0,
            searching=0,
            writing=0,
            reading_tensors=0,
            writing_tensors=0,
            n_features=featurizer.n_features,
            norm=NORM_CODES[featurizer.parameters.norm],
            top_r=forms.bodies.top_r,
            beam_width=forms.bodies.beam_width,
            link=LINK_CODES[model.manifest.link],
            n_labels=model.manifest.n_labels,
            n_chunks=len(ensemble.directory),
            n_levels=shape.n_levels,
            n_trees=shape.n_trees,
            n_children=int(np.diff(ensemble.child_ptr).max()),
        )
        self._make(_FIRST_NEED, _FIRST_NEED.top_r, text_room(1, _FIRST_NEED.top_r))

    def answer(
        self, message: bytes, start: int, present: Present, epoch: int, serial: int
    ) -> SparseAnswer | None:
        """Return the answer to the body message[start:]; None if it is not sparse, or not within the limits.

        epoch   that of the thresholds; serial: the first prediction's number, of which `rows_max` are taken
        """
        return self._answer(data_of(message), start, len(message), present, epoch, serial)

    def answer_tensors(self, message: bytes, span: tuple[int, int], present: Present) -> TensorsAnswer | None:
        """Return the answer to the tensors whose JSON is message[span[0] : span[1]]; the rest as `answer`."""
        return self._answer_tensors(data_of(message), *span, present)

    def answer_rows(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        present: Present,
        epoch: int,
        serial: int,
    ) -> SparseAnswer | None:
        """Return the answer for rows that were read elsewhere, of texts for example; the rest as `answer`.

        asked   what is asked for them; number: the threshold if it is one for all labels, between 0 and 1
        """
        if not self._give(rows, asked, number):
            return None
        try:
            return self._answer(_NO_DATA, 0, 0, present, epoch, serial)
        finally:
            self._given[0] = 0

    def rows_as_tensors(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        form: NDArray[np.int64],
        present: Present,
    ) -> TensorsAnswer | None:
        """Return the answer for rows that were read elsewhere, as tensors; `form` says which."""
        if not self._give(rows, asked, number):
            return None
        self._bodies.form[:] = form
        try:
            return self._answer_tensors(_NO_DATA, 0, 0, present)
        finally:
            self._given[0] = 0

    def _give(self, rows: SparseRows, asked: SparseQuery, number: float) -> bool:
        """Hand the kernel rows, and what is asked for them; return whether there is room for them."""
        indptr, indices, values, number_out = self._bodies.arrays
        n_values = len(rows.indices)
        if rows.n_rows >= len(indptr) or n_values > len(indices):
            return False
        indptr[: rows.n_rows + 1], number_out[0] = rows.indptr, number
        indices[:n_values], values[:n_values] = rows.indices, rows.values
        self._given[:] = asked
        return True

    def _answer(
        self, data: NDArray[np.uint8], start: int, end: int, present: Present, epoch: int, serial: int
    ) -> SparseAnswer | None:
        at = present.at
        while (
            n_rows := answer_sparse(data, start, end, PREDICTIONS, self._handle, at, epoch, serial)
        ) == GROW:
            self._grow()
        if n_rows == 0:
            return None
        is_tuned = self._asked.item(_KIND) == TUNED
        if n_rows == 1:
            return SparseAnswer(1, bytes(self._text[: self._call.text_ends.item(0)]), is_tuned)
        return SparseAnswer(n_rows, b",".join(cut(self._call.text, self._call.text_ends[:n_rows])), is_tuned)

    def _answer_tensors(
        self, data: NDArray[np.uint8], start: int, end: int, present: Present
    ) -> TensorsAnswer | None:
        at = present.at
        while (n_rows := answer_sparse(data, start, end, TENSORS, self._handle, at, 0, 0)) == GROW:
            self._grow()
        if n_rows == 0:
            return None
        form = self._bodies.form
        tensors = tensors_of(self._text, form)
        return TensorsAnswer(n_rows, tensors, identity_of(form), self._asked.item(_KIND) == TUNED)

    def _grow(self) -> None:
        """Make room for what was asked for last; if there was, then for its text."""
        n_rows, n_values, top_r, beam_width, _ = self._asked.tolist()
        room = self._buffers.room
        need = Need(
            1, max(room.n_features, n_values), max(room.beam_width, beam_width), max(room.top_r, top_r)
        )
        n_places, n_bytes = max(n_rows * top_r, len(self._call.labels)), len(self._call.text)
        if need == room and n_places == len(self._call.labels):
            n_bytes *= 4
        self._make(need, n_places, max(n_bytes, text_room(n_rows, n_rows * top_r)))

    def _make(self, need: Need, n_places: int, n_bytes: int) -> None:
        """Make the buffers of the search, so many places for answers, and room for text."""
        n_rows = len(self._bodies.arrays[0]) - 1
        self._buffers = buffers = self._pool.take(need)
        set_rows(buffers.rows, *self._bodies.arrays[:3])
        buffers.call[FIRST] = 0
        spans = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        names = self._names.offsets, self._names.utf8
        token, text, text_ends = (
            np.empty(TOKEN_ROOM + 4 * need.top_r, np.uint8),
            np.empty(n_bytes, np.uint8),
            np.empty(n_rows, np.int64),
        )
        labels, scores = np.empty(n_places, np.int32), np.empty(n_places, np.float32)
        exact = np.empty(n_rows, np.uint8)
        searching = address_of(beam_rows, SEARCHES, buffers.call)
        seal = np.empty(0, np.uint64), 0, 0, 0, 0
        written = (*spans, labels, scores, exact), scores, names, seal, 0
        writing = address_of(write_predictions, WRITES, *written, token, text, text_ends)
        bodies, form = self._bodies, self._bodies.form
        read_to = bodies.constants, bodies.arrays[:3], bodies.arrays[3]
        tensors = _NO_DATA, (0, 0), *read_to, form, bodies.texts_at
        model = self._constants._replace(
            reading=address_of(read_body, READS, _NO_DATA, 0, *read_to, bodies.texts_at),
            searching=searching,
            writing=writing,
            reading_tensors=address_of(read_tensors, READS, *tensors),
            writing_tensors=address_of(write_tensors, WRITES, written[0], names, form, text),
        )
        self._model = handle_of(model)
        self._call = SparseCall(
            self._model,
            self._limits,
            buffers.call,
            buffers.search,
            buffers.answers,
            self._given,
            self._asked,
            np.array(buffers.room[1:], np.int64),
            *bodies.arrays,
            texts=bodies.texts_at,
            form=form,
            allowed=self._allowed,
            none=ALL_EQUAL,
            no_costs=NOT_WANTED,
            starts=spans[0],
            ends=spans[1],
            counts=np.empty(n_rows, np.int64),
            labels=labels,
            scores=scores,
            exact=exact,
            offsets=names[0],
            utf8=names[1],
            token=token,
            text=text,
            text_ends=text_ends,
            times=self.times,
            bounds_ns=self._stages.bounds_ns,
            stage_counts=self._stages.counts,
            total_ns=self._stages.total_ns,
        )
        self._handle = handle_of(self._call)
        self._text = text.data


class EmbeddedBeam(ReadsFirst):
    """Answers sparse requests by a label tree whose rows an embedding makes. One call at a time."""

    def __init__(
        self,
        model: Model,
        predictor: EmbeddedPredictor,
        featurizer: Featurizer,
        forms: SparseForms,
        stages: StageTimes,
        mask: NDArray[np.uint8] | None = None,
    ) -> None:
        """Take what `SparseBeam` takes."""
        self._beam = SparseBeam(model, predictor, featurizer, forms, stages, mask)
        self.times = self._beam.times
        self._stages = stages
        self._reader = TensorBodies(forms.bodies, featurizer)
        self._embedding = predictor.embedding

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
        return self._beam.answer_rows(*self._embedded(rows, asked), number, present, epoch, serial)

    def rows_as_tensors(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        form: NDArray[np.int64],
        present: Present,
    ) -> TensorsAnswer | None:
        """Do as `SparseBeam.rows_as_tensors`."""
        return self._beam.rows_as_tensors(*self._embedded(rows, asked), number, form, present)

    def _embedded(self, rows: SparseRows, asked: SparseQuery) -> tuple[SparseRows, SparseQuery]:
        dense = self._embedding.rows(rows)
        return dense, asked._replace(n_values=len(dense.indices))


SparseAnswers: TypeAlias = SparseBeam | ReadsFirst


def sparse_answers(
    model: Model,
    predictor: Searcher,
    featurizer: Featurizer,
    forms: SparseForms,
    stages: StageTimes | None = None,
    mask: NDArray[np.uint8] | None = None,
) -> SparseAnswers:
    """Return what answers sparse requests from an opened version that `predictor` serves.

    stages   where it is counted how long reading, searching and writing take; None: nobody asks
    mask     of the labels that all answers may have, as `Searcher.label_mask` prepared it; None: all
    """
    stages = stages or StageTimes()
    if isinstance(predictor, ForestPredictor):
        return SparseForest(model, predictor, featurizer, forms, stages, mask)
    if isinstance(predictor, EmbeddedPredictor):
        return EmbeddedBeam(model, predictor, featurizer, forms, stages, mask)
    if isinstance(predictor, Predictor):
        return SparseBeam(model, predictor, featurizer, forms, stages, mask)
    raise TypeError(f"expected a predictor of trees, found {type(predictor).__name__}")
