"""Search rows that another kernel has read, on arrays that are made once for many requests.

A kernel that answers a whole request calls the search between reading the body and writing the
answer.
"""

from typing import NamedTuple

from numba import types

from xylem.engine.kernels.search.calibrated import log_reaching
from xylem.engine.kernels.search.call import (
    LAST,
    NO_THRESHOLD,
    NUMBER,
    TUNED,
    Answers,
    Call,
    Search,
)
from xylem.engine.kernels.search.workspace import widest_level
from xylem_store import (
    F32,
    F32_1,
    I32_1,
    I64_1,
    I64_2,
    U8_1,
    Calibration,
    Handle,
    caller,
    handle,
    inlined,
    struct_at,
    write_struct,
)

# The return type of traversals.
SEARCHES = types.none

_search = caller(SEARCHES)
_widest_level = inlined(widest_level)


@handle
class ReadyBeam(NamedTuple):
    """A model's beam search, and the arrays of its rows' answers.

    searching                the address of `beam_rows`
    call, search, answers    handles of the Call of the search, and of its Search and Answers
    n_levels                 the levels of the deepest tree
    n_trees                  the number of trees
    n_children               the most children of a node
    requested                [5]   the last request's rows, values, top_r, nodes of a level and kind
                             of threshold
    room                     [3]   the values, nodes of a level and top_r that buffers suffice for
    number                   [2]   a threshold for all labels, and its logarithm
    allowed                  [N]   as in a Search; empty if all labels are allowed
    no_costs                 [0, 2]
    counts, exact            [most rows]
    labels, scores           [..]  the answers, top_r places a row
    """

    searching: int
    call: Handle
    search: Handle
    answers: Handle
    link: int
    n_labels: int
    n_chunks: int
    n_levels: int
    n_trees: int
    n_children: int
    requested: I64_1
    room: I64_1
    number: F32_1
    allowed: U8_1
    no_costs: I64_2
    counts: I64_1
    exact: U8_1
    labels: I32_1
    scores: F32_1


@inlined
def _log_threshold_for(threshold: int, log_threshold: F32, beam: ReadyBeam) -> F32:
    """Return the log-thresholds that `beam_rows` takes for a kind of threshold.

    log_threshold  the logarithms of the tuned thresholds
    """
    if threshold == TUNED:
        return log_threshold
    if threshold == NUMBER:
        knots = struct_at(Calibration, struct_at(Call, beam.call).calibration)
        beam.number[1] = log_reaching(knots.x, knots.y, beam.number[0])
        return beam.number[1:]
    return log_threshold[:0]


@inlined
def _has_room(n_rows: int, n_values: int, top_r: int, n_kept: int, beam: ReadyBeam) -> bool:
    """Return whether there is room for a request; write its sizes to `requested`."""
    beam.requested[0] = n_rows
    beam.requested[1] = n_values
    beam.requested[2] = top_r
    beam.requested[3] = n_kept
    return bool(
        n_values <= beam.room[0]
        and n_kept <= beam.room[1]
        and top_r <= beam.room[2]
        and n_rows * top_r <= len(beam.labels)
    )


@inlined
def _search_rows(beam: ReadyBeam, n_rows: int, top_r: int, n_chunks: int, thresholds: F32) -> None:
    """Search the first n_rows rows with a beam of n_chunks nodes, into top_r places a row."""
    search = beam.link, n_chunks, top_r, 0, beam.allowed, beam.number[:0], thresholds
    write_struct(Search, beam.search, search)
    shape = (n_rows, top_r)
    n_places = n_rows * top_r
    places = beam.labels[:n_places].reshape(shape), beam.scores[:n_places].reshape(shape)
    write_struct(Answers, beam.answers, (beam.counts, *places, beam.exact, beam.no_costs))
    beam.call[LAST] = n_rows
    _search(beam.searching, (beam.call,))


@inlined
def search_ready(
    beam: ReadyBeam,
    sizes: tuple[int, int],
    top_r: int,
    beam_width: int,
    threshold: int,
    log_threshold: F32,
) -> int:
    """Search the first rows; return how many places of `labels` and `scores` each of them has.

    Return 0 if the buffers have no room for the sizes that `requested` lists then.

    sizes          the number of rows, and of all their values
    threshold      NO_THRESHOLD, TUNED or NUMBER, whose number is in `number`
    log_threshold  the tuned thresholds, as in a Search
    """
    n_rows, n_values = sizes
    beam.requested[4] = threshold
    n_chunks = min(beam_width, beam.n_chunks)
    log_thresholds = _log_threshold_for(threshold, log_threshold, beam)
    n_places = min(top_r, beam.n_labels)
    n_kept = _widest_level(n_chunks, beam.n_levels, beam.n_chunks, threshold != NO_THRESHOLD)
    if not _has_room(n_rows, n_values, n_places, n_kept, beam):
        return 0
    _search_rows(beam, n_rows, n_places, n_chunks, log_thresholds)
    return n_places
