"""Answer a request to a label tree in one call: read its body, search its rows, write its answer.

A body is the JSON of a predict request, or tensors as binary data. Reading, searching and writing
are kernels of their own, which are called by their addresses. If the interpreter called them one
after the other, its own work between the calls would take as long as the kernels: a search evicts
the interpreter's code and data from the processor's caches.
"""

from typing import Any, NamedTuple, TypeAlias

from numba import types

from xylem.base import FEATURES, READ, SEARCH, WRITE
from xylem.engine import NUMBER, TUNED, ReadyBeam, search_ready, write_rows
from xylem.serving.dialects.predict.kernels.request_bodies import TEXTS
from xylem.serving.kernels.seals import FastPresent
from xylem_store import (
    F32,
    F32_1,
    I32_1,
    I64,
    I64_1,
    I64_2,
    U8,
    U8_1,
    U64,
    Handle,
    caller,
    clock_ns,
    handle,
    kernel,
    nonallocating_inlined,
    struct_at,
)

_Query: TypeAlias = tuple[int, int, int, int, int, int]
_Seal: TypeAlias = tuple[U64, int, int, int, int]

_UniTuple: Any = types.UniTuple

# The return types of kernels that read and write.
READS = _UniTuple(types.int64, 6)
WRITES = types.boolean

# The positions in a kernel's times: when it began, and when each of its stages ended.
#
# HAS_READ  the kernel has read the body
# HAS_ROWS  it has made rows of texts
# SEARCHED  it has searched
# WRITTEN   it has written the answer
#
# The time of a stage that did not take place equals the time before it.
BEGAN, HAS_READ, HAS_ROWS, SEARCHED, WRITTEN = range(5)

N_TIMES = 5

_read = caller(READS)
_write = caller(WRITES)

# Kinds of bodies and answers: JSON, and tensors as binary data.
PREDICTIONS = 0
TENSORS = 1

# Returned instead of a number of rows if the buffers are too small for the request.
GROW = -1


@handle
class FastLimits(NamedTuple):
    """The limits of requests that are answered here.

    top_r_max       the largest top_r
    beam_width_max  the largest beam width
    labels_max      the most labels of an answer: rows times top_r
    beams_max       the most rows times beam width
    children_max    the most children that are scored on a level
    """

    top_r_max: int
    beam_width_max: int
    labels_max: int
    beams_max: int
    children_max: int


@handle
class FastModel(NamedTuple):
    """The numbers of a model that a call needs.

    reading, writing                   the addresses of the kernels of predict
    reading_tensors, writing_tensors   the addresses of the kernels of tensors
    norm                               the code of the norm of rows
    top_r, beam_width                  the options of a body that does not have them
    """

    reading: int
    writing: int
    reading_tensors: int
    writing_tensors: int
    n_features: int
    norm: int
    top_r: int
    beam_width: int


@handle
class FastCall(NamedTuple):
    """The arguments and buffers of a call, which are made once for many calls.

    model, limits, beam      handles of a FastModel, of FastLimits and of a ReadyBeam
    ready_query              [6]   the BodyQuery of rows that are in the buffers already;
                             ready_query[0] = 0: the rows must be read
    indptr, indices, values  the rows that are read, whose size the arrays bound
    number                   [2]   a threshold for all labels, and its logarithm
    texts                    the handle of BodyTexts, into which texts are read
    form                     [..]  the form of a request of tensors
                             (`xylem.serving.dialects.tensors.kernels.tensors`)
    starts, ends             [most rows]
    offsets, utf8            the fields of a NameTable
    token, text, text_ends   as `write_predictions` takes them
    times                    [N_TIMES]  when the steps of the call ended (BEGAN to WRITTEN)
    bounds_ns, stage_counts, total_ns   the arrays of a StageTimes
    """

    model: Handle
    limits: Handle
    beam: Handle
    ready_query: I64_1
    indptr: I64_1
    indices: I32_1
    values: F32_1
    number: F32_1
    texts: Handle
    form: I64_1
    starts: I64_1
    ends: I64_1
    offsets: I64_1
    utf8: U8_1
    token: U8_1
    text: U8_1
    text_ends: I64_1
    times: I64_1
    bounds_ns: I64_1
    stage_counts: I64_2
    total_ns: I64_1


def is_within_limits(
    n_rows: int, top_r: int, beam_width: int, n_children: int, limits: FastLimits
) -> bool:
    """Return whether a request is within the limits.

    n_children  the children that are scored for a row on a level
    """
    return (
        top_r <= limits.top_r_max
        and beam_width <= limits.beam_width_max
        and n_rows * top_r <= limits.labels_max
        and n_rows * beam_width <= limits.beams_max
        and n_rows * n_children <= limits.children_max
    )


_is_within_limits = nonallocating_inlined(is_within_limits)


@nonallocating_inlined
def _set_spans(n_rows: int, n_places: int, call: FastCall, beam: ReadyBeam) -> bool:
    """Set where the labels of each row begin and end; return whether all answers are exact."""
    is_exact = True
    for row in range(n_rows):
        is_exact &= beam.exact[row] != 0
        call.starts[row] = row * n_places
        call.ends[row] = row * n_places + beam.counts[row]
    return is_exact


@nonallocating_inlined
def _write_answer(
    kind: int,
    model: FastModel,
    n_rows: int,
    thresholds: F32,
    seal: _Seal,
    serial: int,
    call: FastCall,
    beam: ReadyBeam,
) -> bool:
    """Write the rows' predictions or tensors to `text`; return whether there is room."""
    spans = call.starts[:n_rows], call.ends[:n_rows], beam.labels, beam.scores, beam.exact
    if kind == TENSORS:
        names = call.offsets, call.utf8
        return bool(_write(model.writing_tensors, (spans, names, call.form, call.text)))
    # a label tree has learned all of its labels
    labels = call.offsets, call.utf8, beam.allowed[:0]
    buffers = call.token, call.text, call.text_ends
    return bool(_write(model.writing, (spans, thresholds, labels, seal, serial, *buffers)))


@nonallocating_inlined
def _count_stage(stage: int, nanoseconds: int, call: FastCall) -> None:
    """Add the duration of a stage to the counts."""
    bucket = 0
    while bucket < len(call.bounds_ns) and nanoseconds > call.bounds_ns[bucket]:
        bucket += 1
    call.stage_counts[stage, bucket] += 1
    call.total_ns[stage] += nanoseconds


@nonallocating_inlined
def _count_stages(counts_read: bool, call: FastCall) -> None:
    """Add the durations of the stages of a call that ends now to the counts.

    counts_read  whether the call has read the whole body, so that nobody else counts that
    """
    times = call.times
    times[WRITTEN] = clock_ns()
    if counts_read:
        _count_stage(READ, times[HAS_READ] - times[BEGAN], call)
    if times[HAS_ROWS] > times[HAS_READ]:
        _count_stage(FEATURES, times[HAS_ROWS] - times[HAS_READ], call)
    _count_stage(SEARCH, times[SEARCHED] - times[HAS_ROWS], call)
    _count_stage(WRITE, times[WRITTEN] - times[SEARCHED], call)


@nonallocating_inlined
def _read_body(data: U8, start: int, kind: int, model: FastModel, call: FastCall) -> _Query:
    """Read a body of a kind into rows, or into texts; return the fields of its BodyQuery."""
    constants = model.n_features, model.norm, model.top_r, model.beam_width
    rows = call.indptr, call.indices, call.values
    query: _Query
    if kind == TENSORS:
        query = _read(model.reading_tensors, (data, start, constants, rows, call.form, call.texts))
    else:
        query = _read(model.reading, (data, start, constants, rows, call.number, call.texts))
    return query


@kernel
def answer_fast(
    data: U8, start: int, kind: int, call_at: I64, present_at: I64, epoch: int, serial: int
) -> int:
    """Answer the body in `data`, or the rows that are in the buffers already; return how many rows.

    Return 0 if the request is left to Python: its body is not for kernels, it is not within the
    limits, there are no tuned thresholds for it, or its answer must be exact and a beam search of
    its width does not prove that it is. Return GROW if the buffers have no room for the sizes in
    `requested` of the ReadyBeam, or for the text. Otherwise the answer is in `text`: predictions,
    or the tensors that the form lists.

    data             the message, followed by the bytes that readers of bodies need
    start            where the body begins in it
    kind             PREDICTIONS or TENSORS
    call_at          the handle of a FastCall; present_at: of a FastPresent
    epoch, serial    the epoch of the seal, and the number of the first row's token

    Tuples or several arrays as parameters would cost the caller more than reading the body.
    """
    call = struct_at(FastCall, call_at)
    present = struct_at(FastPresent, present_at)
    model = struct_at(FastModel, call.model)
    limits = struct_at(FastLimits, call.limits)
    beam = struct_at(ReadyBeam, call.beam)
    ready_query = call.ready_query
    is_read = call.ready_query[0] == 0
    query: _Query = (
        ready_query[0],
        ready_query[1],
        ready_query[2],
        ready_query[3],
        ready_query[4],
        ready_query[5],
    )
    call.times[BEGAN] = call.times[HAS_READ] = call.times[HAS_ROWS] = clock_ns()
    if is_read:
        query = _read_body(data, start, kind, model, call)
        call.times[HAS_READ] = call.times[HAS_ROWS] = clock_ns()
    n_rows, n_values, top_r, beam_width, threshold, is_exact = query
    is_sure = is_exact != 0 or threshold == NUMBER
    n_children = min(beam_width, beam.n_chunks) * beam.n_trees * beam.n_children
    if n_rows == 0 or not _is_within_limits(n_rows, top_r, beam_width, n_children, limits):
        return 0
    if (threshold == TUNED and len(present.log_threshold) == 0) or (is_sure and beam.n_trees > 1):
        return 0
    if n_values == TEXTS:
        n_values = write_rows(call.texts, n_rows, (call.indptr, call.indices, call.values))
        call.times[HAS_ROWS] = clock_ns()
        if n_values == 0:
            return 0
    if threshold == TUNED:
        top_r = min(top_r, present.limit)
    n_places = search_ready(
        beam, (n_rows, n_values), top_r, beam_width, threshold, present.log_threshold
    )
    if n_places == 0:
        return GROW
    call.times[SEARCHED] = clock_ns()
    if not _set_spans(n_rows, n_places, call, beam) and is_sure:
        return 0
    seal = present.keyed, present.model, present.version, epoch, present.expiry
    thresholds = present.thresholds[:0] if threshold == TUNED else present.thresholds
    if not _write_answer(kind, model, n_rows, thresholds, seal, serial, call, beam):
        return GROW
    # of a request of tensors Python has read the JSON, and counts it
    _count_stages(is_read and kind == PREDICTIONS, call)
    return n_rows
