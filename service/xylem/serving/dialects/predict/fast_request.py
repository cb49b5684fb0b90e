"""Requests to one version in a single call of a kernel, from a body's bytes to its answer's JSON.

All buffers are made once, and used by one request after the other, on one thread. A predictor makes
arrays for each call, takes idle buffers and gathers the answers: that is cheap for many rows, but
for one row it costs as much as the search. The predictions are those of `Predictor.predict`, to the
bit.
"""

from abc import ABC, abstractmethod
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from xylem.base import FEATURES, READ, SparseRows, StageTimes
from xylem.engine import (
    ALL_ALLOWED,
    NUMBER,
    TUNED,
    EmbeddedPredictor,
    Featurizer,
    PredictOptions,
    Predictor,
    Searcher,
)
from xylem.serving.dialects.predict.kernels.fast_request import (
    BEGAN,
    GROW,
    HAS_READ,
    HAS_ROWS,
    N_TIMES,
    PREDICTIONS,
    READS,
    TENSORS,
    WRITES,
    FastCall,
    FastLimits,
    FastModel,
    answer_fast,
    is_within_limits,
)
from xylem.serving.dialects.predict.kernels.prediction_json import TOKEN_ROOM, write_predictions
from xylem.serving.dialects.predict.kernels.request_bodies import (
    TEXTS,
    BodyForms,
    BodyQuery,
    RequestBodies,
    read_body,
)
from xylem.serving.dialects.predict.prediction_json import (
    cut_texts,
    predictions_json,
    spans_of,
    text_room,
)
from xylem.serving.dialects.tensors.kernels.tensor_arrays import read_arrays
from xylem.serving.dialects.tensors.kernels.tensors import END, FORM_SIZE, N_OUTPUTS, pack_outputs
from xylem.serving.feedback.prediction_ids import Present, Signed
from xylem_store import I64, U8, Model, address_of, handle_of


class FastForms(NamedTuple):
    """The limits of requests, and the limits and defaults of bodies."""

    limits: FastLimits
    bodies: BodyForms


class FastVersion(NamedTuple):
    """The opened version that answers requests, and its featurizer.

    stages   counts how long reading, searching and writing take
    mask     the labels that answers may have, as `Searcher.label_mask` prepared it; None: all
    """

    model: Model
    featurizer: Featurizer
    forms: FastForms
    stages: StageTimes
    mask: U8 | None


class RowsRead(Struct, frozen=True):
    """Rows that have been read already, and the query for them.

    number  the threshold, if it is one number for all labels, between 0 and 1
    """

    rows: SparseRows
    query: BodyQuery
    number: float


class FastAnswer(Struct, frozen=True):
    """The predictions of an answer; the caller writes the JSON object around them.

    n_rows    the number of rows
    json      the predictions, separated by commas
    is_tuned  whether the labels are those that reach tuned thresholds
    """

    n_rows: int
    json: bytes
    is_tuned: bool


# stands for the handle of the buffers until the first request makes them
_NO_BUFFERS = np.empty(0, np.int64)
_KIND = 4  # the place of the kind of threshold in what a request needed
_FEATURES = b'"features"'  # a key of bodies of named features, which kernels do not read
_BODY_END = b"\n\0"  # the bytes that readers of bodies need behind the body
_NO_DATA = np.frombuffer(_BODY_END, np.uint8)


class BeamRequests:
    """Answers requests by the beam search of label trees. One call at a time.

    times           int64[N_TIMES]: when the steps of the last answer ended (BEGAN to WRITTEN)
    reads_tensors   whether `answer_tensors` answers any request
    """

    reads_tensors = True

    def __init__(self, version: FastVersion, predictor: Predictor) -> None:
        """Prepare to answer requests to a version; `predictor` is made of its model."""
        model, featurizer, forms, self._stages, mask = version
        self.times = np.zeros(N_TIMES, np.int64)
        self._bodies = RequestBodies(forms.bodies, featurizer)
        self._beams = predictor.ready_beams(self._bodies.arrays[:3], self._bodies.arrays[3], mask)
        self._requested = self._beams.requested
        self._limits = handle_of(forms.limits)
        self._is_named = featurizer.kind == "named"
        self._names = model.labels
        self._ready_query = np.zeros(len(BodyQuery._fields), np.int64)
        self._form = np.zeros(FORM_SIZE, np.int64)
        self._model_with = partial(
            FastModel,
            n_features=featurizer.n_features,
            norm=featurizer.norm_code,
            top_r=forms.bodies.top_r,
            beam_width=forms.bodies.beam_width,
        )
        self._handle = _NO_BUFFERS

    def prepare(self) -> None:
        """Make the first buffers and load the kernels, so that the first answer need not do it."""
        self._beams.prepare()
        self._make(text_room(1, self._beams.top_r_max))

    def answer(self, message: bytes, start: int, signed: Signed) -> FastAnswer | None:
        """Return the answer to the body message[start:], as JSON of predictions.

        Return None if the kernel does not read the body, or it is not within the limits. At most
        `rows_max` serial numbers are used.
        """
        if self._is_named and _FEATURES in message:
            return None
        return self._read_text(
            self._run(np.frombuffer(message + _BODY_END, np.uint8), start, PREDICTIONS, signed)
        )

    def answer_rows(self, rows: RowsRead, signed: Signed) -> FastAnswer | None:
        """Return the answer to rows that were read elsewhere, as `answer` does."""
        if self._handle is _NO_BUFFERS:
            self.prepare()
        if not self._copy_rows(rows):
            return None
        try:
            return self._read_text(self._run(_NO_DATA, 0, PREDICTIONS, signed))
        finally:
            self._ready_query[0] = 0

    def answer_tensors(
        self, data: bytes, start: int, form: I64, number: float, signed: Signed
    ) -> tuple[bytes, list[int]] | None:
        """Return the outputs for the tensors data[start:]; None if the kernel does not answer them.

        They are binary data, one behind the other, and where each of them ends.

        form     int64[FORM_SIZE], the form of the request (`dialects.tensors.kernels.tensors`)
        number   the threshold, if it is one number for all labels, between 0 and 1
        """
        self._form[:] = form
        self._bodies.arrays[3][0] = number
        if self._run(np.frombuffer(data + _BODY_END, np.uint8), start, TENSORS, signed) == 0:
            return None
        ends = self._form[END : END + self._form.item(N_OUTPUTS)].tolist()
        return bytes(self._text[: ends[-1]]), ends

    def _run(self, data: U8, start: int, kind: int, signed: Signed) -> int:
        """Call the kernel; return how many rows it has answered, 0 if it answers none."""
        if self._handle is _NO_BUFFERS:
            self.prepare()
        present, epoch, serial = signed
        while (
            n_rows := answer_fast(data, start, kind, self._handle, present.handle, epoch, serial)
        ) == GROW:
            self._grow()
        return n_rows

    def _read_text(self, n_rows: int) -> FastAnswer | None:
        """Return the answer that the kernel has written as text; None if it has answered no row."""
        if n_rows == 0:
            return None
        is_tuned = self._requested.item(_KIND) == TUNED
        if n_rows == 1:
            return FastAnswer(1, bytes(self._text[: self._call.text_ends.item(0)]), is_tuned)
        return FastAnswer(
            n_rows, b",".join(cut_texts(self._text, self._call.text_ends[:n_rows])), is_tuned
        )

    def _copy_rows(self, read: RowsRead) -> bool:
        """Copy rows and their query to the kernel's buffers; return whether there is room."""
        rows = read.rows
        indptr, indices, values, number_out = self._bodies.arrays
        n_values = len(rows.indices)
        if rows.n_rows >= len(indptr) or n_values > len(indices):
            return False
        indptr[: rows.n_rows + 1] = rows.indptr
        number_out[0] = read.number
        indices[:n_values] = rows.indices
        values[:n_values] = rows.values
        self._ready_query[:] = read.query
        return True

    def _grow(self) -> None:
        """Make larger buffers for the last request, or a larger text if only that was too small."""
        n_bytes = len(self._call.text)
        if not self._beams.grow():
            n_bytes *= 4
        n_rows, _, top_r, _, _ = self._requested.tolist()
        self._make(max(n_bytes, text_room(n_rows, n_rows * top_r)))

    def _make(self, n_bytes: int) -> None:
        """Make the arrays of a call, with n_bytes bytes for the text, on the buffers of now."""
        bodies = self._bodies
        beam = self._beams.beam
        n_rows = len(bodies.arrays[0]) - 1
        spans = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        names = self._names.offsets, self._names.utf8
        token = np.empty(TOKEN_ROOM + 4 * self._beams.top_r_max, np.uint8)
        text = np.empty(n_bytes, np.uint8)
        text_ends = np.empty(n_rows, np.int64)
        answers = (*spans, beam.labels, beam.scores, beam.exact)
        seal = np.empty(0, np.uint64), 0, 0, 0, 0
        written = answers, beam.scores, (*names, ALL_ALLOWED), seal, 0
        read_to = bodies.constants, bodies.arrays[:3], bodies.arrays[3]
        tensors = (_NO_DATA, 0, bodies.constants, bodies.arrays[:3], self._form, bodies.texts_at)
        self._model = handle_of(
            self._model_with(
                reading=address_of(read_body, READS, _NO_DATA, 0, *read_to, bodies.texts_at),
                writing=address_of(write_predictions, WRITES, *written, token, text, text_ends),
                reading_tensors=address_of(read_arrays, READS, *tensors),
                writing_tensors=address_of(pack_outputs, WRITES, answers, names, self._form, text),
            )
        )
        self._call = FastCall(
            self._model,
            self._limits,
            self._beams.handle,
            self._ready_query,
            *bodies.arrays,
            texts=bodies.texts_at,
            form=self._form,
            starts=spans[0],
            ends=spans[1],
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
