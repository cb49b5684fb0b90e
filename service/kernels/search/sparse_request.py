"""A plain request of a label tree in one call: its body read, its rows searched, its predictions written.

What these three do is in kernels of their own, which are called by their addresses: between them the
interpreter would run as long as they do, because a search leaves nothing of it in the caches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.compiled.calls import caller
from model_store.compiled.decorators import inlined, kernel
from model_store.compiled.handles import Kinds, borrower
from service.kernels.search.beam_workspace import widest_level
from service.kernels.search.query import NO_THRESHOLD, NUMBER, TUNED
from service.kernels.search.threshold_update import log_of

_UniTuple: Any = types.UniTuple
READS, SEARCHES, WRITES = _UniTuple(types.int64, 6), types.none, types.boolean
"""What the three kernels return."""

_read, _search, _write = caller(READS), caller(SEARCHES), caller(WRITES)

GROW = -1
"""Instead of a number of rows: there is not room enough for what was asked."""


class SparseLimits(NamedTuple):
    """What requests are taken.

    labels_max    the most labels of an answer: rows times top_r
    beams_max     the most rows times beam width; children_max: the most children scored on a level
    """

    top_r_max: int
    beam_width_max: int
    labels_max: int
    beams_max: int
    children_max: int


class SparseModel(NamedTuple):
    """What of a model and its version a call needs besides arrays: integers, as an int64 array.

    reading, searching, writing   the addresses of the kernels
    norm                          one of NORM_CODES
    top_r, beam_width             what a body means that does not say them
    n_levels                      of the deepest tree
    n_trees                       of the ensemble
    n_children                    of a node, at most
    """

    reading: int
    searching: int
    writing: int
    n_features: int
    norm: int
    top_r: int
    beam_width: int
    link: int
    n_labels: int
    n_chunks: int
    n_levels: int
    n_trees: int
    n_children: int


class SparseCall(NamedTuple):
    """The arrays of a call, lent: none of them is made for it.

    model, limits            int64[..]  the fields of SparseModel and SparseLimits
    given                    int64[6]   what is asked for rows that are there already; given[0] = 0: read them
    asked                    int64[5]   rows, values, top_r, nodes of a level, kind of threshold
    room                     int64[3]   the values, nodes of a level and top_r that there are buffers for
    indptr, indices, values  where the rows are read to, which bounds them
    number                   float32[2]  a threshold for all labels, and its logarithm
    lent_model .. lent_beam, no_mask .. no_costs: as `beam_rows` takes them; `none`: weights, thresholds
    starts, ends, counts     int64[most rows]
    labels, scores           int32/float32[..]  the answers, top_r places a row
    exact                    uint8[most rows]
    offsets, utf8            the fields of a NameTable
    token, text, text_ends   as `write_predictions` takes them
    """

    model: NDArray[np.int64]
    limits: NDArray[np.int64]
    given: NDArray[np.int64]
    asked: NDArray[np.int64]
    room: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    number: NDArray[np.float32]
    lent_model: NDArray[np.int64]
    lent_work: NDArray[np.int64]
    lent_beam: NDArray[np.int64]
    no_mask: NDArray[np.uint8]
    none: NDArray[np.float32]
    no_costs: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    exact: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    utf8: NDArray[np.uint8]
    token: NDArray[np.uint8]
    text: NDArray[np.uint8]
    text_ends: NDArray[np.int64]


CALL_KINDS: Kinds = {
    "model": (np.int64, 1),
    "limits": (np.int64, 1),
    "given": (np.int64, 1),
    "asked": (np.int64, 1),
    "room": (np.int64, 1),
    "indptr": (np.int64, 1),
    "indices": (np.int32, 1),
    "values": (np.float32, 1),
    "number": (np.float32, 1),
    "lent_model": (np.int64, 1),
    "lent_work": (np.int64, 1),
    "lent_beam": (np.int64, 1),
    "no_mask": (np.uint8, 1),
    "none": (np.float32, 1),
    "no_costs": (np.int64, 2),
    "starts": (np.int64, 1),
    "ends": (np.int64, 1),
    "counts": (np.int64, 1),
    "labels": (np.int32, 1),
    "scores": (np.float32, 1),
    "exact": (np.uint8, 1),
    "offsets": (np.int64, 1),
    "utf8": (np.uint8, 1),
    "token": (np.uint8, 1),
    "text": (np.uint8, 1),
    "text_ends": (np.int64, 1),
}

_borrow = borrower(SparseCall, CALL_KINDS)


def is_taken(n_rows: int, top_r: int, beam_width: int, n_children: int, limits: SparseLimits) -> bool:
    """Return whether a request is within the limits; `n_children` are scored for a row on a level."""
    return (
        top_r <= limits.top_r_max
        and beam_width <= limits.beam_width_max
        and n_rows * top_r <= limits.labels_max
        and n_rows * beam_width <= limits.beams_max
        and n_rows * n_children <= limits.children_max
    )


_is_taken = inlined(is_taken)
_widest_level = inlined(widest_level)


@inlined
def _model_of(m: NDArray[np.int64]) -> SparseModel:
    return SparseModel(m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9], m[10], m[11], m[12])


@inlined
def _given_of(g: NDArray[np.int64]) -> tuple[int, int, int, int, int, int]:
    return g[0], g[1], g[2], g[3], g[4], g[5]


@inlined
def _limits_of(m: NDArray[np.int64]) -> SparseLimits:
    return SparseLimits(m[0], m[1], m[2], m[3], m[4])


@inlined
def _log_threshold_for(
    threshold: int, log_threshold: NDArray[np.float32], call: SparseCall
) -> NDArray[np.float32]:
    """Return what `beam_rows` takes for thresholds of a kind; `log_threshold` are the tuned ones."""
    if threshold == TUNED:
        return log_threshold
    if threshold == NUMBER:
        call.number[1] = log_of(call.number[0])
        return call.number[1:]
    return log_threshold[:0]


@inlined
def _has_room(n_rows: int, n_values: int, top_r: int, n_kept: int, call: SparseCall) -> bool:
    """Return whether there is room for a request; say what it asks for."""
    call.asked[0], call.asked[1], call.asked[2], call.asked[3] = n_rows, n_values, top_r, n_kept
    return bool(
        n_values <= call.room[0]
        and n_kept <= call.room[1]
        and top_r <= call.room[2]
        and n_rows * top_r <= len(call.labels)
    )


@kernel
def answer_plain(
    data: NDArray[np.uint8],
    start: int,
    lent_call: NDArray[np.int64],
    thresholds: NDArray[np.float32],
    log_threshold: NDArray[np.float32],
    keyed: NDArray[np.uint64],
    name: int,
    version: int,
    epoch: int,
    expiry: int,
    serial: int,
) -> int:
    """Answer the body data[start:], which ends as plain bodies do, or the rows given; return how many rows.

    0: it is not plain, or not within the limits, or must surely be right, and no beam search of that width
    says that it is. GROW: there is no room for what `asked` says now, or for the text. Else the predictions
    are in `text`.

    thresholds .. serial  as `write_predictions` takes them
    log_threshold         the tuned ones, as `beam_rows` takes them; [0]: requests for them are not answered
    """
    call = _borrow(lent_call, ())
    model = _model_of(call.model)
    rows = call.indptr, call.indices, call.values
    counts = model.n_features, model.norm, model.top_r, model.beam_width
    asked = _given_of(call.given)
    if asked[0] == 0:
        asked = _read(model.reading, (data, start, *counts, *rows, call.number))
    n_rows, n_values, top_r, beam_width, threshold, is_exact = asked
    call.asked[4] = threshold
    is_sure = is_exact != 0 or threshold == NUMBER
    n_chunks = min(beam_width, model.n_chunks)
    n_children = n_chunks * model.n_trees * model.n_children
    if n_rows == 0 or not _is_taken(n_rows, top_r, beam_width, n_children, _limits_of(call.limits)):
        return 0
    if (threshold == TUNED and len(log_threshold) == 0) or (is_sure and model.n_trees > 1):
        return 0
    log_threshold = _log_threshold_for(threshold, log_threshold, call)
    top_r = min(top_r, model.n_labels)
    n_kept = _widest_level(n_chunks, model.n_levels, model.n_chunks, threshold != NO_THRESHOLD)
    if not _has_room(n_rows, n_values, top_r, n_kept, call):
        return GROW
    n_places = n_rows * top_r
    labels, scores = call.labels[:n_places], call.scores[:n_places]
    places = labels.reshape((n_rows, top_r)), scores.reshape((n_rows, top_r))
    lent, also = (call.lent_work, call.lent_beam), (call.exact, call.no_costs)
    dtypes = call.no_mask, call.no_mask  # the search has been compiled for the model's
    search = model.link, n_chunks, top_r, call.no_mask, call.none, log_threshold
    _search(
        model.searching,
        (call.lent_model, *dtypes, *rows, 0, n_rows, *search, *lent, call.counts, *places, *also),
    )
    for row in range(n_rows):
        if is_sure and not call.exact[row]:
            return 0
        call.starts[row] = row * top_r
        call.ends[row] = row * top_r + call.counts[row]
    named = thresholds[:0] if threshold == TUNED else thresholds
    spans = call.starts[:n_rows], call.ends[:n_rows], labels, scores, call.exact, named
    seal = keyed, name, version, epoch, expiry, serial
    is_written = _write(
        model.writing, (*spans, call.offsets, call.utf8, *seal, call.token, call.text, call.text_ends)
    )
    return n_rows if is_written else GROW
