"""Beam search finds the top_r labels of rows, and scores at most beam_width inner nodes in each
level and tree.

Source: Prabhu et al. 2018 (Parabel), Lin, Liu and Lin 2024, section 2.2. A leaf may be an answer at
any level; the beam holds inner nodes only. In an ensemble each tree has its own beam, and a label's
probability is the mean over the trees, 0 in a tree whose beam missed it. With thresholds the answer
is the labels that reach their thresholds (Jasinska et al. 2016, appendix B): in one tree the
thresholds already decide which nodes are kept; in an ensemble they are compared with the means of
the labels that the beams reached.

Rows go through the trees in blocks, level by level and chunk by chunk, so that a chunk is read once
a level for all rows that need it. A block may be a single row. A row's answer has the same bits in
any block: the same scorer adds the same numbers in the same order, and the heaps keep the same
entries in whatever order they are offered.
"""

from xylem.engine.kernels.search.beam_levels import (
    drop_below_thresholds,
    end_of_round,
    enter_round,
    go_down,
    keep_best_leaves,
    keep_children,
    look_ahead,
    nothing_is_missed,
    save_leaves,
    start_levels,
)
from xylem.engine.kernels.search.beam_means import drop_needless, keep_best_means
from xylem.engine.kernels.search.calibrated import calibrate_answers
from xylem.engine.kernels.search.call import (
    Call,
    Search,
    charge,
    clear_cost,
    has_thresholds,
    write_answer,
)
from xylem.engine.kernels.search.feature_map import begin_piece, clear_features
from xylem.engine.kernels.search.scores import log_links
from xylem.engine.kernels.search.scoring import (
    IN_TURN,
    MAPPED,
    SPREAD,
    CallParts,
    call_scorer,
    last_at_once,
    parts_of,
)
from xylem.engine.kernels.search.workspace import (
    AHEAD,
    ALL_INNER,
    ALL_LEAVES,
    BeamWorkspace,
)
from xylem_store import (
    I64,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)

# The number of features a row from which it takes less time to find the nodes of an ensemble that
# need not be scored than to score them (measured on label trees).
_LONG_ROW = 100


@kernel
def beam_rows(call_at: I64) -> None:
    """Answer the rows of a Call, whose `traversal_buffers` are a BeamWorkspace.

    The workspace decides how many rows are a block. If the search is stopped, a row has the labels
    found so far; with several trees the leaves not reached count 0. Cost: at most beam_width chunks
    in each level and tree, with thresholds on average over the levels. The answer to a row does not
    depend on the other rows.
    """
    call = struct_at(Call, call_at)
    call_parts = parts_of(call_at, BeamWorkspace)
    ensemble, scorer, rows, call_search, answers, work, beam = call_parts
    n_trees = ensemble.child_ptr[0]
    link, beam_width, top_r, is_sure, allowed, weight, log_threshold = call_search
    node_threshold = log_threshold if n_trees == 1 else log_threshold[:0]
    search = Search(
        link=link,
        beam_width=beam_width,
        top_r=top_r,
        is_sure=is_sure,
        allowed=allowed,
        weight=weight,
        log_threshold=node_threshold,
    )
    parts = CallParts(
        ensemble=ensemble,
        scorer=scorer,
        rows=rows,
        search=search,
        answers=answers,
        work=work,
        traversal_buffers=beam,
    )
    block_rows = len(beam.next_size) // n_trees
    for begin in range(call.first, call.last, block_rows):
        end = min(call.last, begin + block_rows)
        for row in range(begin, end):
            clear_cost(answers.costs, row, work)
        level = 0
        n_level = start_levels(search, n_trees, (end - begin) * n_trees, beam)
        while n_level > 0 and not work.stop[0]:
            _score_level(parts, begin, end, level, n_level, len(log_threshold) == 0)
            level += 1
            n_level = go_down(search, (end - begin) * n_trees, beam.in_rounds[level] != 0, beam)
        for row in range(begin, end):
            _finish_row(parts, call_parts, row, row - begin)
    calibrate_answers(call, search, answers)


@inlined
def _score_level(
    parts: CallParts[BeamWorkspace],
    begin: int,
    end: int,
    level: int,
    n_level: int,
    has_no_thresholds: bool,
) -> None:
    """Score a level's chunks for the rows begin .. end - 1, chunk by chunk.

    n_level            the greatest number of nodes that a lane has on this level
    has_no_thresholds  whether labels need not reach a threshold, in several trees with their means
    """
    ensemble, _, rows, search, _, work, beam = parts
    n_trees = ensemble.child_ptr[0]
    mean_features = (rows.indptr[end] - rows.indptr[begin]) // (end - begin)
    row_features = max(1, mean_features - work.tail_features)
    looks_ahead = beam.in_rounds[level] == AHEAD
    may_drop = n_trees == 1 or (has_no_thresholds and row_features >= _LONG_ROW)
    in_rounds = may_drop and beam.in_rounds[level] != 0
    if looks_ahead or n_trees > 1:
        in_rounds &= len(search.weight) == 0
    n_done = 0
    while n_done < n_level and not work.stop[0]:
        first = n_done
        round_end = n_level
        if in_rounds:
            round_end = end_of_round(search, n_trees, end - begin, n_done, n_level)
        if n_done > 0 and n_trees > 1:
            for lane in range(0, (end - begin) * n_trees, n_trees):
                drop_needless(parts, lane, n_done)
        elif n_done > 0 and looks_ahead:
            look_ahead(end - begin, n_done, beam)
            first = 0
            round_end = n_done
            looks_ahead = False
        _score_entries(parts, enter_round(parts, begin, end, first, round_end), row_features)
        n_done = round_end


@inlined
def _score_entries(parts: CallParts[BeamWorkspace], n_entries: int, row_features: int) -> None:
    """Score the chunks of a block's entries, and save or offer their children.

    Entries of one chunk are adjacent. A row has about `row_features` features.
    """
    ensemble, scorer, _, _, _, work, beam = parts
    k = 0
    while k < n_entries and not work.stop[0]:
        node = beam.entry_node[k]
        end, is_mapped = begin_piece(ensemble, beam.entry_node, k, n_entries, row_features, work)
        if is_mapped:
            call_scorer(scorer, SPREAD, node, 0, 0)
        while k < end and not work.stop[0]:
            call_end = last_at_once(work, k, end)
            if is_mapped:
                call_scorer(scorer, MAPPED, k, call_end, 0)
            else:
                call_scorer(scorer, IN_TURN, k, call_end, end)
            for entry in range(k, call_end):
                _take_children(parts, entry, entry - k)
            k = call_end
        if is_mapped:
            clear_features(ensemble, node, work.feature_row, 1)


@inlined
def _take_children(parts: CallParts[BeamWorkspace], k: int, slot: int) -> None:
    """Take the children of the k-th entry: save leaves for later, offer inner nodes to the heap.

    slot  margins[slot] has the children's margins
    """
    ensemble, _, _, search, answers, work, beam = parts
    margins = work.margins[slot]
    node = beam.entry_node[k]
    score = beam.entry_score[k]
    lane = beam.entry_lane[k]
    charge(answers.costs, beam.entry_row[k], work, slot)
    n_children = ensemble.child_ptr[node + 1] - ensemble.child_ptr[node]
    log_links(search.link, n_children, margins)
    if has_thresholds(search):
        drop_below_thresholds(search, ensemble.child_ptr[node], score, n_children, margins)
    below = beam.below[ensemble.node_chunk[node]]
    if below != ALL_INNER:
        save_leaves(node, score, n_children, lane, beam, margins)
    if below != ALL_LEAVES:
        keep_children(parts, lane, node, score, margins, False)


@inlined
def _finish_row(
    parts: CallParts[BeamWorkspace],
    call_parts: CallParts[BeamWorkspace],
    row: int,
    place: int,
) -> None:
    """Write a row's answer from the leaves that its lanes saved.

    call_parts  the parts whose search has the thresholds that the means over the trees must reach
    place       the row's number in the block
    """
    ensemble, _, _, search, answers, work, beam = parts
    n_trees = ensemble.child_ptr[0]
    first_lane = place * n_trees
    if n_trees == 1:
        keep_best_leaves(parts, first_lane)
    else:
        keep_best_means(call_parts, first_lane)
    write_answer(
        answers,
        row,
        n_trees == 1,
        beam.best_score[first_lane],
        beam.best_label[first_lane],
        beam.best_size[first_lane],
        not work.stop[0] and nothing_is_missed(search, first_lane, n_trees, beam),
    )
