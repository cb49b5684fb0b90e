"""Answers of combined versions: members and names of concepts propose labels, the candidates, and
the ranker gives each candidate a probability.

A row is the members' rows side by side, then the features of names
(`xylem.engine.features.combined`). The members' own traversals are called, by their addresses.
Training needs the features of the same candidates as serving, so both are made here.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from xylem.engine.kernels.search.calibrated import calibrate_answers
from xylem.engine.kernels.search.call import (
    ONE_F32,
    ZERO_F32,
    Call,
    Rows,
    Search,
    clear_cost,
    threshold_of,
    write_answer,
)
from xylem.engine.kernels.search.heaps import keep_best
from xylem.engine.kernels.search.near_rows import (
    BEST,
    N_NEAR,
    NearSearch,
    compare_candidates,
    count_votes,
    describe_row,
    expect_candidates,
    keep_nearest,
    measure_candidates,
    measure_rows,
)
from xylem.engine.kernels.search.ranker_trees import BLOCK, RankerTrees, add_trees
from xylem.engine.kernels.search.scoring import parts_of
from xylem.engine.kernels.search.subtrees import log_of
from xylem_store import (
    F32_1,
    F32_2,
    I32,
    I32_1,
    I32_2,
    I64_1,
    I64_2,
    LANES,
    MEMBER_FEATURES,
    NO_LABEL,
    Handle,
    caller,
    handle,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
    vadd,
    vbroadcast,
    vload,
    vmul,
    vstore,
    write_struct,
)

# The log-score of a label that a member does not propose, and a lower bound on the log-scores of
# those that it proposes.
LOG_FLOOR = np.float32(-14.0)

_search = caller(types.none)
_NONE = -1
_N_MEMBER_FEATURES = len(MEMBER_FEATURES)


@handle
class Member(NamedTuple):
    """A member, and the buffers with which its traversal is called for one row.

    address        the address of the traversal
    call, rows, search   handles of its Call for row 0, and of that Call's Rows and Search
    first, last    its columns in a combined row: first .. last - 1
    allowed_first, allowed_last  its part of a combined mask (see `combined_rows`)
    to_label       int32[its labels]: the combined version's label of each, NO_LABEL if that version
                   does not have it
    indptr, indices   its row: int64[2], int32[most features]
    counts, labels, scores, costs   its Answers
    """

    address: int
    call: Handle
    rows: Handle
    search: Handle
    first: int
    last: int
    allowed_first: int
    allowed_last: int
    to_label: I32_1
    indptr: I64_1
    indices: I32_1
    counts: I64_1
    labels: I32_2
    scores: F32_2
    costs: I64_2


@handle
class CombinedWorkspace(NamedTuple):
    """The parts of a combined version, and the buffers for one row.

    C is the number of candidates that there is room for, F the number of their features.

    members         [M, words]  a handle of each Member
    n_named         the number of features of a concept's names
    names_first     the column of the first concept's first feature of names
    has_label       [M, K]   whether a member has a label
    usage           [K]      the logarithm of 1 + the label's training rows
    near            the handle of a NearSearch
    linear          the linear weights of the Ranker
    trees           the handle of the RankerTrees
    slot            [K]      the place of a label among the candidates, _NONE if it is none; all are
                    _NONE between rows
    candidate       [C]      the labels
    rank            [C, M]   their places in the members' answers, from 0; or _NONE
    named_at        [C]      where in the row the features of their names begin; or _NONE
    matrix          [F, BLOCK]  the features of a block of candidates
    margin          [BLOCK]  their margins
    best_score/label [top_r] the heap of labels
    entry_node, entry_row  [1] unused: they are for scorers, which this traversal does not call
    """

    members: I64_2
    n_named: int
    names_first: int
    has_label: I32_2
    usage: F32_1
    near: Handle
    linear: F32_1
    trees: Handle
    slot: I32_1
    candidate: I32_1
    rank: I32_2
    named_at: I64_1
    matrix: F32_2
    margin: F32_1
    best_score: F32_1
    best_label: I32_1
    entry_node: I32_1
    entry_row: I32_1


@kernel
def combined_rows(call_at: NDArray[np.int64]) -> None:
    """Answer the rows of a Call, whose `traversal_buffers` are a CombinedWorkspace.

    A mask has the combined version's labels first, then the mask of each member. Thresholds and
    weights are those of labels. Cost: a search of each member for its candidates; the trees of the
    ranker for each candidate. The answer to a row does not depend on the other rows. If the search
    is stopped, a row has no answer.
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, CombinedWorkspace)
    _, _, rows, search, answers, work, workspace = parts
    for row in range(call.first, call.last):
        clear_cost(answers.costs, row, work)
        n = 0 if work.stop[0] else _propose(rows, row, search, answers.costs, workspace)
        n_best = 0
        near = struct_at(NearSearch, workspace.near)
        _prepare_near(rows, row, n, workspace, near)
        for first in range(0, n, BLOCK):
            last = min(n, first + BLOCK)
            _describe(rows, row, first, last, workspace, near)
            _add_margins(last - first, workspace)
            n_best = _keep_best(first, last, n_best, search, workspace)
        _clear_slots(n, workspace)
        write_answer(
            answers,
            row,
            False,
            workspace.best_score,
            workspace.best_label,
            n_best,
            work.stop[0] == 0,
        )
    calibrate_answers(call, search, answers)


@kernel
def describe_candidates(call_at: NDArray[np.int64], features_out: NDArray[np.float32]) -> int:
    """Write the candidates of a Call's first row to `candidate`; return how many.

    features_out  float32[most candidates, F]: receives their features
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, CombinedWorkspace)
    _, _, rows, search, answers, _, workspace = parts
    near = struct_at(NearSearch, workspace.near)
    n = _propose(rows, call.first, search, answers.costs, workspace)
    _prepare_near(rows, call.first, n, workspace, near)
    for first in range(0, n, BLOCK):
        last = min(n, first + BLOCK)
        _describe(rows, call.first, first, last, workspace, near)
        for i in range(last - first):
            for k in range(features_out.shape[1]):
                features_out[first + i, k] = workspace.matrix[k, i]
    _clear_slots(n, workspace)
    return n


@inlined
def _propose(
    rows: Rows, row: int, search: Search, costs: NDArray[np.int64], workspace: CombinedWorkspace
) -> int:
    """Write the candidates of a row to `candidate`; return how many.

    `rank` and `named_at` say which members and names propose them.
    """
    n = 0
    for m in range(len(workspace.members)):
        member = struct_at(Member, workspace.members[m])
        _search_member(rows, row, search, member)
        if len(costs) > 0:
            costs[row, 0] += member.costs[0, 0]
            costs[row, 1] += member.costs[0, 1]
        for i in range(member.counts[0]):
            label = member.to_label[member.labels[0, i]]
            if label != NO_LABEL:
                n = _add_candidate(label, n, workspace)
                workspace.rank[workspace.slot[label], m] = i
    if workspace.n_named == 0:
        return n
    low = rows.indptr[row]
    high = rows.indptr[row + 1]
    for position in range(_first_from(rows.indices, low, high, workspace.names_first), high):
        label = (rows.indices[position] - workspace.names_first) // workspace.n_named
        if len(search.allowed) > 0 and search.allowed[label] == 0:
            continue
        n = _add_candidate(label, n, workspace)
        if workspace.named_at[workspace.slot[label]] == _NONE:
            workspace.named_at[workspace.slot[label]] = position
    return n


@inlined
def _search_member(rows: Rows, row: int, search: Search, member: Member) -> None:
    """Let a member answer its part of a row."""
    end = rows.indptr[row + 1]
    low = _first_from(rows.indices, rows.indptr[row], end, member.first)
    high = _first_from(rows.indices, low, end, member.last)
    for i in range(low, high):
        member.indices[i - low] = rows.indices[i] - member.first
    member.indptr[1] = high - low
    write_struct(Rows, member.rows, (member.indptr, member.indices, rows.values[low:high]))
    member_search = struct_at(Search, member.search)
    allowed = search.allowed
    if len(allowed) > 0:
        allowed = allowed[member.allowed_first : member.allowed_last]
    link, beam_width, top_r, is_sure, _, weight, log_threshold = member_search
    write_struct(
        Search, member.search, (link, beam_width, top_r, is_sure, allowed, weight, log_threshold)
    )
    _search(member.address, (member.call,))


@inlined
def _first_from(columns: I32, low: int, high: int, column: int) -> int:
    """Return the first place in [low, high) whose column is >= `column`, `high` if none is."""
    while low < high:
        middle = (low + high) >> 1
        if columns[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _add_candidate(label: int, n: int, workspace: CombinedWorkspace) -> int:
    """Add a label to the n candidates, if it is not one of them; return how many there are then."""
    if workspace.slot[label] != _NONE:
        return n
    workspace.slot[label] = n
    workspace.candidate[n] = label
    workspace.named_at[n] = _NONE
    for m in range(len(workspace.members)):
        workspace.rank[n, m] = _NONE
    return n + 1


@inlined
def _clear_slots(n: int, workspace: CombinedWorkspace) -> None:
    """Set the slots of the n candidates to _NONE."""
    for i in range(n):
        workspace.slot[workspace.candidate[i]] = _NONE


@inlined
def _describe(
    rows: Rows, row: int, first: int, last: int, workspace: CombinedWorkspace, near: NearSearch
) -> None:
    """Set the first columns of `matrix` to the features of the candidates first .. last - 1."""
    end = rows.indptr[row + 1]
    for m in range(len(workspace.members)):
        _describe_by_member(struct_at(Member, workspace.members[m]), m, first, last, workspace)
    k = _N_MEMBER_FEATURES * len(workspace.members)
    for i in range(first, last):
        features = workspace.matrix[:, i - first]
        label = workspace.candidate[i]
        for f in range(workspace.n_named):
            features[k + f] = ZERO_F32
        position = workspace.named_at[i]
        if position != _NONE:
            column = workspace.names_first + label * workspace.n_named
            while position < end and rows.indices[position] < column + workspace.n_named:
                features[k + rows.indices[position] - column] = rows.values[position]
                position += 1
        features[k + workspace.n_named] = workspace.usage[label]
        if near.n_columns > 0:
            for f in range(N_NEAR):
                features[k + workspace.n_named + 1 + f] = near.features[i, f]


@inlined
def _prepare_near(
    rows: Rows, row: int, n: int, workspace: CombinedWorkspace, near: NearSearch
) -> None:
    """Set the features of near rows of the n candidates of a row, if the version has near rows."""
    if near.n_columns == 0:
        return
    member = struct_at(Member, workspace.members[0])
    n_best = min(BEST, member.counts[0])
    for i in range(n_best):
        near.best[i] = member.to_label[member.labels[0, i]]
    n_blocks = measure_rows(rows, row, near)
    measure_candidates(n, workspace.candidate, near)
    count_votes(n, keep_nearest(n_blocks, near), workspace.slot, near)
    expect_candidates(n, workspace.slot, member.scores[0], n_best, near)
    compare_candidates(n, near)
    describe_row(n, member.scores[0, : member.counts[0]], workspace.rank[:, 0], near)


@inlined
def _describe_by_member(
    member: Member, m: int, first: int, last: int, workspace: CombinedWorkspace
) -> None:
    """Set the features of the candidates first .. last - 1 that depend on the m-th member."""
    n_places = member.labels.shape[1]
    k = _N_MEMBER_FEATURES * m
    for i in range(first, last):
        features = workspace.matrix[:, i - first]
        rank = workspace.rank[i, m]
        features[k] = LOG_FLOOR
        features[k + 1] = np.log(np.float32(1 + n_places))
        features[k + 2] = ZERO_F32
        features[k + 3] = workspace.has_label[m, workspace.candidate[i]]
        if rank != _NONE:
            score = member.scores[0, rank]
            features[k] = max(LOG_FLOOR, log_of(score))
            features[k + 1] = np.log(np.float32(1 + rank))
            features[k + 2] = score / member.scores[0, 0] if score > ZERO_F32 else ZERO_F32


@inlined
def _add_margins(n: int, workspace: CombinedWorkspace) -> None:
    """Set `margin` to the ranker's margins of the first n columns of `matrix`.

    Elements behind the first n are overwritten too, up to whole vectors.
    """
    n_features = len(workspace.linear) - 1
    for i in range(0, n, LANES):
        margins = vbroadcast(workspace.linear[n_features])
        for k in range(n_features):
            if workspace.linear[k] != ZERO_F32:
                values = vload(workspace.matrix, k * BLOCK + i)
                margins = vadd(margins, vmul(vbroadcast(workspace.linear[k]), values))
        vstore(workspace.margin, i, margins)
    add_trees(n, struct_at(RankerTrees, workspace.trees), workspace.matrix, workspace.margin)


@inlined
def _keep_best(
    first: int, last: int, n_best: int, search: Search, workspace: CombinedWorkspace
) -> int:
    """Offer the candidates first .. last - 1 to the heap of the best, by their margins.

    Return how many labels the heap has.
    """
    for i in range(first, last):
        label = workspace.candidate[i]
        score = ONE_F32 / (ONE_F32 + np.exp(-workspace.margin[i - first]))
        if len(search.log_threshold) > 0 and log_of(score) < threshold_of(
            search.log_threshold, label
        ):
            continue
        if len(search.weight) > 0:
            score *= search.weight[label]
        n_best = keep_best(
            workspace.best_score, workspace.best_label, n_best, search.top_r, score, label
        )
    return n_best
