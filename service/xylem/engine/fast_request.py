"""Requests to one version in a single call of a kernel, from a body's bytes to its answer's JSON.

All buffers are made once, and used by one request after the other, on one thread. A predictor makes
arrays for each call, takes idle buffers and gathers the answers: that is cheap for many rows, but
for one row it costs as much as the search. The predictions are those of `Predictor.predict`, to the
bit.
"""

from functools import partial

import numpy as np

from xylem.engine.answering import NO_COSTS
from xylem.engine.buffers import FIRST, Need
from xylem.engine.fast_answers import FastAnswer, FastVersion, PackedOutputs, RowsRead, Signed
from xylem.engine.features.named import NamedFeaturizer
from xylem.engine.features.request_bodies import BodyQuery, RequestBodies, read_body
from xylem.engine.features.rows import NORM_CODES
from xylem.engine.features.tensor_arrays import read_arrays
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.call import TUNED, set_rows
from xylem.engine.kernels.search.fast_request import (
    GROW,
    N_TIMES,
    PREDICTIONS,
    READS,
    SEARCHES,
    TENSORS,
    WRITES,
    FastCall,
    FastModel,
    answer_fast,
)
from xylem.engine.kernels.search.fast_request import FastLimits as FastLimits
from xylem.engine.kernels.text.prediction_json import TOKEN_ROOM, write_predictions
from xylem.engine.kernels.text.tensors import END, FORM_SIZE, N_OUTPUTS, pack_outputs
from xylem.engine.options import ALL_ALLOWED
from xylem.engine.prediction_json import (
    cut_texts,
    text_room,
)
from xylem.engine.predictor import Predictor
from xylem_store import (
    I64,
    LINK_CODES,
    U8,
    address_of,
    handle_of,
)

_FIRST_NEED = Need(1, 256, 10, 10)
# stands for the handle of the buffers until the first request makes them
_NO_BUFFERS = np.empty(0, np.int64)
_KIND = 4  # the place of the kind of threshold in `FastCall.requested`
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
        ensemble = model.ensemble
        shape = predictor.shape
        self.times = np.zeros(N_TIMES, np.int64)
        self._pool = predictor.pool
        self._bodies = RequestBodies(forms.bodies, featurizer)
        self._limits = handle_of(forms.limits)
        self._is_named = isinstance(featurizer, NamedFeaturizer)
        self._names = model.labels
        self._allowed = ALL_ALLOWED if mask is None else mask
        self._ready_query = np.zeros(len(BodyQuery._fields), np.int64)
        self._requested = np.zeros(5, np.int64)
        self._form = np.zeros(FORM_SIZE, np.int64)
        self._model_with = partial(
            FastModel,
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
        self._handle = _NO_BUFFERS

    def prepare(self) -> None:
        """Make the first buffers and load the kernels, so that the first answer need not do it."""
        self._make(_FIRST_NEED, _FIRST_NEED.top_r, text_room(1, _FIRST_NEED.top_r))

    def answer(self, message: bytes, start: int, signed: Signed) -> FastAnswer | None:
        """Return the answer to the body message[start:], as JSON of predictions.

        Return None if the kernel does not read the body, or it is not within the limits. At most
        `rows_max` serial numbers are used.
        """
        if self._is_named and _FEATURES in message:
            return None
        data = np.frombuffer(message + _BODY_END, np.uint8)
        return self._read_text(self._run(data, start, PREDICTIONS, signed))

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
    ) -> PackedOutputs | None:
        """Return the outputs for the tensors data[start:]; None if the kernel does not answer them.

        form     int64[FORM_SIZE], the form of the request (`xylem.engine.kernels.text.tensors`)
        number   the threshold, if it is one number for all labels, between 0 and 1
        """
        self._form[:] = form
        self._bodies.arrays[3][0] = number
        array = np.frombuffer(data + _BODY_END, np.uint8)
        if self._run(array, start, TENSORS, signed) == 0:
            return None
        ends = self._form[END : END + self._form.item(N_OUTPUTS)].tolist()
        return PackedOutputs(bytes(self._text[: ends[-1]]), ends)

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
        parts = cut_texts(self._text, self._call.text_ends[:n_rows])
        return FastAnswer(n_rows, b",".join(parts), is_tuned)

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
        n_rows, n_values, top_r, beam_width, _ = self._requested.tolist()
        room = self._buffers.room
        need = Need(
            1,
            max(room.n_features, n_values),
            max(room.beam_width, beam_width),
            max(room.top_r, top_r),
        )
        n_places = max(n_rows * top_r, len(self._call.labels))
        n_bytes = len(self._call.text)
        if need == room and n_places == len(self._call.labels):
            n_bytes *= 4
        self._make(need, n_places, max(n_bytes, text_room(n_rows, n_rows * top_r)))

    def _make(self, need: Need, n_places: int, n_bytes: int) -> None:
        """Make the search's buffers, n_places places for labels, and n_bytes bytes for the text."""
        n_rows = len(self._bodies.arrays[0]) - 1
        self._buffers = buffers = self._pool.take(need)
        set_rows(buffers.rows, *self._bodies.arrays[:3])
        buffers.call[FIRST] = 0
        spans = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        names = self._names.offsets, self._names.utf8
        token = np.empty(TOKEN_ROOM + 4 * need.top_r, np.uint8)
        text = np.empty(n_bytes, np.uint8)
        text_ends = np.empty(n_rows, np.int64)
        labels = np.empty(n_places, np.int32)
        scores = np.empty(n_places, np.float32)
        exact = np.empty(n_rows, np.uint8)
        searching = address_of(beam_rows, SEARCHES, buffers.call)
        seal = np.empty(0, np.uint64), 0, 0, 0, 0
        written = (*spans, labels, scores, exact), scores, (*names, ALL_ALLOWED), seal, 0
        writing = address_of(write_predictions, WRITES, *written, token, text, text_ends)
        bodies = self._bodies
        read_to = bodies.constants, bodies.arrays[:3], bodies.arrays[3]
        tensors = (_NO_DATA, 0, bodies.constants, bodies.arrays[:3], self._form, bodies.texts_at)
        model = self._model_with(
            reading=address_of(read_body, READS, _NO_DATA, 0, *read_to, bodies.texts_at),
            searching=searching,
            writing=writing,
            reading_tensors=address_of(read_arrays, READS, *tensors),
            writing_tensors=address_of(pack_outputs, WRITES, written[0], names, self._form, text),
        )
        self._model = handle_of(model)
        self._call = FastCall(
            self._model,
            self._limits,
            buffers.call,
            buffers.search,
            buffers.answers,
            self._ready_query,
            self._requested,
            np.array(buffers.room[1:], np.int64),
            *bodies.arrays,
            texts=bodies.texts_at,
            form=self._form,
            allowed=self._allowed,
            no_costs=NO_COSTS,
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
