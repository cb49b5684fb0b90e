"""Requests to one version in a single call of a kernel, from a body's bytes to its answer's JSON.

All buffers are made once, and used by one request after the other, on one thread. A predictor makes
arrays for each call, takes idle buffers and gathers the answers: that is cheap for many rows, but
for one row it costs as much as the search. The predictions are those of `Predictor.predict`, to the
bit.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from xylem.base import N_TIMES, SparseRows, StageTimes
from xylem.engine.answering import NO_COSTS
from xylem.engine.buffers import FIRST, Need
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.named import NamedFeaturizer
from xylem.engine.features.request_bodies import BodyForms, BodyQuery, read_body
from xylem.engine.features.rows import NORM_CODES
from xylem.engine.features.tensor_request import TensorBodies, read_tensors
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.call import TUNED, set_rows
from xylem.engine.kernels.search.fast_request import (
    GROW,
    PREDICTIONS,
    READS,
    SEARCHES,
    TENSORS,
    WRITES,
    FastCall,
    FastModel,
    FastPresent,
    answer_fast,
)
from xylem.engine.kernels.search.fast_request import FastLimits as FastLimits
from xylem.engine.kernels.text.prediction_json import TOKEN_ROOM, write_predictions
from xylem.engine.kernels.text.tensors import IDENTITY, IDENTITY_END, write_tensors
from xylem.engine.options import ALL_ALLOWED, NodeThresholds
from xylem.engine.prediction_json import (
    Seal,
    Spans,
    cut_texts,
    predictions_json,
    tensors_json,
    tensors_of,
    text_room,
)
from xylem.engine.predictor import Predictor
from xylem_store import (
    F32,
    I64,
    LINK_CODES,
    U8,
    Model,
    NameTable,
    Uncopyable,
    address_of,
    handle_of,
)

_NO_THRESHOLDS = np.empty(0, np.float32)
NO_FORM = np.empty(0, np.int64)
"""The form of an answer of predictions."""


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


class Present(Uncopyable):
    """The thresholds and the seal of answers, until the arrays or the seal are replaced.

    It is immutable, but the values of the thresholds may change.

    thresholds  float32[K] that a label's score must reach to be listed in its prediction's id
    tuned       the same, prepared for searches; None: requests for tuned thresholds are not
                answered
    seal        signs the ids, at epoch 0
    unlearned   uint8[K], 1 for labels that are not learned; [0]: all are learned
    handle      the handle of the fields that kernels need
    """

    __slots__ = ("handle", "seal", "thresholds", "tuned", "unlearned")

    def __init__(
        self, thresholds: F32, tuned: NodeThresholds | None, seal: Seal, unlearned: U8 = ALL_ALLOWED
    ) -> None:
        self.unlearned = unlearned
        self.thresholds = thresholds
        self.tuned = tuned
        self.seal = seal._replace(epoch=0)
        log_threshold = _NO_THRESHOLDS if tuned is None else tuned
        signing = seal.keyed, seal.model, seal.version, seal.expiry
        self.handle = handle_of(FastPresent(thresholds, log_threshold, *signing))

    def seal_at(self, epoch: int) -> Seal:
        """Return the seal for predictions that are made while the thresholds have this epoch."""
        return self.seal._replace(epoch=epoch)


Signed: TypeAlias = tuple[Present, int, int]
"""(the Present that signs predictions, the epoch of its thresholds, the first serial number)."""


class RowsRead(Struct, frozen=True):
    """Rows that have been read already, and the query for them.

    number  the threshold, if it is one number for all labels, between 0 and 1
    form    the form of an answer of tensors; [0] if the answer is predictions
    """

    rows: SparseRows
    query: BodyQuery
    number: float
    form: I64 = NO_FORM


class FastAnswer(Struct, frozen=True):
    """The inner part of an answer; the caller writes the JSON object around it.

    n_rows    the number of rows
    json      the predictions, or the outputs, separated by commas
    is_tuned  whether the labels are those that reach tuned thresholds
    binary    the outputs' binary data
    identity  the id of a request of tensors, which the answer repeats
    """

    n_rows: int
    json: bytes
    is_tuned: bool
    binary: bytes = b""
    identity: str | None = None


_FIRST_NEED = Need(1, 256, 10, 10)
# stands for the handle of the buffers until the first request makes them
_NOT_MADE = np.empty(0, np.int64)
_KIND = 4  # the place of the kind of threshold in `FastCall.requested`
_FEATURES = b'"features"'  # a key of bodies of named features, which kernels do not read
_BODY_END = b"\n\0"  # the bytes that readers of bodies need behind the body
_NO_DATA = np.frombuffer(_BODY_END, np.uint8)


class Writer(NamedTuple):
    """The functions that read bodies of one kind, and write its answers.

    kind   PREDICTIONS or TENSORS, for kernels
    read   (reader, message, span): reads the body whose JSON is message[span[0] : span[1]] into a
           reader, and returns its query
    take   (n_rows, is_tuned, text, ends, form): returns the answer that a kernel has written to
           `text`; `ends` or `form` say where
    write  (names, rows, spans, signed): returns the answer for labels that have been found
    """

    kind: int
    read: Callable[[TensorBodies, bytes, tuple[int, int]], BodyQuery]
    take: Callable[[int, bool, memoryview, I64, I64], FastAnswer]
    write: Callable[[NameTable, RowsRead, Spans, Signed], FastAnswer]


def _take_predictions(
    n_rows: int, is_tuned: bool, text: memoryview, ends: I64, _: I64
) -> FastAnswer:
    if n_rows == 1:
        return FastAnswer(1, bytes(text[: ends.item(0)]), is_tuned)
    return FastAnswer(n_rows, b",".join(cut_texts(text, ends[:n_rows])), is_tuned)


def _write_predictions(
    names: NameTable, read: RowsRead, spans: Spans, signed: Signed
) -> FastAnswer:
    (present, epoch, serial), is_tuned = signed, read.query.threshold == TUNED
    thresholds = present.thresholds[:0] if is_tuned else present.thresholds
    seal = present.seal_at(epoch)
    written = predictions_json(names, thresholds, seal, serial, spans, present.unlearned)
    return FastAnswer(read.query.n_rows, b",".join(written), is_tuned)


def _take_tensors(n_rows: int, is_tuned: bool, text: memoryview, _: I64, form: I64) -> FastAnswer:
    json, binary = tensors_of(text, form)
    return FastAnswer(n_rows, json, is_tuned, binary)


def _write_tensors(names: NameTable, read: RowsRead, spans: Spans, _: Signed) -> FastAnswer:
    json, binary = tensors_json(names, read.form, spans)
    return FastAnswer(read.query.n_rows, json, read.query.threshold == TUNED, binary)


def with_identity(answer: FastAnswer, message: bytes, form: I64) -> FastAnswer:
    """Return the answer with the id of a message of tensors, if the form says that it has one."""
    first = form.item(IDENTITY)
    last = form.item(IDENTITY_END)
    return replace(answer, identity=message[first:last].decode()) if first else answer


AS_PREDICTIONS = Writer(
    PREDICTIONS,
    lambda reader, message, span: reader.read(message, span[0]),
    _take_predictions,
    _write_predictions,
)
AS_TENSORS = Writer(TENSORS, TensorBodies.read_infer, _take_tensors, _write_tensors)


class BeamRequests:
    """Answers requests by the beam search of label trees. One call at a time.

    times   int64[N_TIMES]: when the steps of the last answer ended (`xylem.base.stages`)
    """

    def __init__(self, version: FastVersion, predictor: Predictor) -> None:
        """Prepare to answer requests to a version; `predictor` is made of its model."""
        model, featurizer, forms, self._stages, mask = version
        ensemble = model.ensemble
        shape = predictor.shape
        self.times = np.zeros(N_TIMES, np.int64)
        self._pool = predictor.pool
        self._bodies = TensorBodies(forms.bodies, featurizer)
        self._limits = handle_of(forms.limits)
        self._is_named = isinstance(featurizer, NamedFeaturizer)
        self._names = model.labels
        self._allowed = ALL_ALLOWED if mask is None else mask
        self._ready_query = np.zeros(len(BodyQuery._fields), np.int64)
        self._requested = np.zeros(5, np.int64)
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
        self._handle = _NOT_MADE

    def prepare(self) -> None:
        """Make the first buffers and load the kernels, which otherwise the first answer does."""
        self._make(_FIRST_NEED, _FIRST_NEED.top_r, text_room(1, _FIRST_NEED.top_r))

    def answer(
        self,
        message: bytes,
        span: tuple[int, int],
        writer: Writer,
        signed: Signed,
        read: RowsRead | None = None,
    ) -> FastAnswer | None:
        """Return the answer to a body whose JSON is message[span[0] : span[1]].

        Return None if the kernel does not read the body, or it is not within the limits. At most
        `rows_max` serial numbers are used.

        read   rows that were read elsewhere, for example those of texts; the message is empty then
        """
        if self._handle is _NOT_MADE:
            self.prepare()
        data = _NO_DATA
        if read is None:
            if self._is_named and _FEATURES in message:
                return None
            data = np.frombuffer(message + _BODY_END, np.uint8)
        elif not self._copy_rows(read):
            return None
        start, end = span
        present, epoch, serial = signed
        kind = writer.kind
        present_at = present.handle
        try:
            while (
                n_rows := answer_fast(
                    data, start, end, kind, self._handle, present_at, epoch, serial
                )
            ) == GROW:
                self._grow()
        finally:
            if read is not None:
                self._ready_query[0] = 0
        if n_rows == 0:
            return None
        is_tuned = self._requested.item(_KIND) == TUNED
        form = self._bodies.form
        answer = writer.take(n_rows, is_tuned, self._text, self._call.text_ends, form)
        return (
            answer
            if kind == PREDICTIONS or read is not None
            else with_identity(answer, message, form)
        )

    def _copy_rows(self, read: RowsRead) -> bool:
        """Copy rows and their query to the kernel's buffers; return whether there is room."""
        rows = read.rows
        form = read.form
        indptr, indices, values, number_out = self._bodies.arrays
        n_values = len(rows.indices)
        if rows.n_rows >= len(indptr) or n_values > len(indices):
            return False
        indptr[: rows.n_rows + 1] = rows.indptr
        number_out[0] = read.number
        indices[:n_values] = rows.indices
        values[:n_values] = rows.values
        self._ready_query[:] = read.query
        if len(form):
            self._bodies.form[:] = form
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
        form = self._bodies.form
        read_to = bodies.constants, bodies.arrays[:3], bodies.arrays[3]
        tensors = _NO_DATA, (0, 0), *read_to, form, bodies.texts_at
        model = self._model_with(
            reading=address_of(read_body, READS, _NO_DATA, 0, *read_to, bodies.texts_at),
            searching=searching,
            writing=writing,
            reading_tensors=address_of(read_tensors, READS, *tensors),
            writing_tensors=address_of(write_tensors, WRITES, written[0], names, form, text),
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
            form=form,
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
