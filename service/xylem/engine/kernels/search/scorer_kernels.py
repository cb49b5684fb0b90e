"""The scorer that `scoring` calls, compiled for each type of weights."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem.engine.kernels.search.call import Call, Rows
from xylem.engine.kernels.search.feature_map import spread_chunk
from xylem.engine.kernels.search.scorer import (
    ScorerParts,
    add_looked_up,
    add_rows,
    add_tail_rows,
    children_width,
    find_all,
    find_words,
    finish_margins,
    place,
    scale_sums,
    score_children,
    score_next,
)
from xylem.engine.kernels.search.scoring import ALONE, IN_TURN, MAPPED, SCORES, SPREAD
from xylem.engine.kernels.search.tail import n_before_tail, note_tail
from xylem.engine.kernels.search.workspace import Entries, Workspace
from xylem_store import (
    I64,
    TreeEnsemble,
    address_of,
    empty_handle,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
)

Samples: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

_FLOAT32 = np.empty(0, np.uint64), np.empty(0, np.float32)
_BFLOAT16 = np.empty(0, np.uint32), np.empty(0, np.uint16)
_INT8 = np.empty(0, np.uint16), np.empty(0, np.int8)


@kernel
def score_float32(call_at: I64, mode: int, first: int, second: int, n: int) -> None:
    """Score in one of the modes of `scoring`, whose parameters these are; weights are float32."""
    _score(call_at, mode, first, second, n, _FLOAT32)


@kernel
def score_bfloat16(call_at: I64, mode: int, first: int, second: int, n: int) -> None:
    """Do as `score_float32`."""
    _score(call_at, mode, first, second, n, _BFLOAT16)


@kernel
def score_int8(call_at: I64, mode: int, first: int, second: int, n: int) -> None:
    """Do as `score_float32`."""
    _score(call_at, mode, first, second, n, _INT8)


_KERNELS = {8: score_float32, 4: score_bfloat16, 2: score_int8}  # by the size of a sparse word


def scorer_of(ensemble: TreeEnsemble) -> int:
    """Return the address of an ensemble's scorer, which is compiled or loaded at the first call."""
    return address_of(_KERNELS[ensemble.sparse.itemsize], SCORES, empty_handle(Call), 0, 0, 0, 0)


@inlined
def _score(call_at: I64, mode: int, first: int, second: int, n: int, samples: Samples) -> None:
    """Call the function of a mode.

    Each of them reads the fields of the structs that it needs, so that they stay in registers.
    """
    if mode == IN_TURN:
        _score_in_turn(call_at, first, second, n, samples)
    elif mode == SPREAD:
        spread_chunk(_scorer_parts(call_at, samples), first, second)
    elif mode == MAPPED:
        _score_mapped(call_at, first, second, samples)
    elif mode == ALONE:
        _score_alone(call_at, first, second, samples)
    else:
        _score_feature(call_at, first, second, samples)


@inlined
def _scorer_parts(call_at: I64, samples: Samples) -> ScorerParts:
    call = struct_at(Call, call_at)
    typed_ensemble = struct_at(TreeEnsemble, call.ensemble, samples)
    ensemble = struct_at(TreeEnsemble, call.ensemble)
    rows = struct_at(Rows, call.rows)
    entries = struct_at(Entries, call.entries)
    return ScorerParts(
        ensemble=ensemble,
        sparse=typed_ensemble.sparse,
        dense=typed_ensemble.dense,
        rows=rows,
        entries=entries,
        work=struct_at(Workspace, call.work),
    )


@inlined
def _score_in_turn(call_at: I64, k: int, end: int, n_entries: int, samples: Samples) -> None:
    parts = _scorer_parts(call_at, samples)
    for entry in range(k, end):
        score_next(parts, entry, n_entries, entry - k)


@inlined
def _score_mapped(call_at: I64, k: int, end: int, samples: Samples) -> None:
    parts = _scorer_parts(call_at, samples)
    ensemble, sparse, _, _, entries, work = parts
    node = entries.node[k]
    for first in range(k, end, 2):
        last = min(first + 1, end - 1)
        for entry in range(first, last + 1):
            _find_mapped_rows(parts, node, entries.row[entry], entry - first)
            find_words(ensemble, sparse, node, work, entry - first)
            work.cost[entry - k, 1] += add_looked_up(parts, node, entry - first, entry - k)
        paired = int(last > first and work.counts[0, 4] == work.counts[1, 4])
        n_bytes = np.int64(0)
        for entry in range(first, last + 1):
            if entry == first or not paired:
                n_bytes = add_tail_rows(
                    parts,
                    node,
                    (entry - first, entry - first + paired),
                    (entry - k, entry - k + paired),
                )
            finish_margins(ensemble, node, n_bytes, work, entry - k)


@inlined
def _score_alone(call_at: I64, node: int, row: int, samples: Samples) -> None:
    parts = _scorer_parts(call_at, samples)
    find_all(parts, node, parts.rows.indptr[row], parts.rows.indptr[row + 1])
    score_children(parts, node, 0, 0)


@inlined
def _score_feature(call_at: I64, node: int, place_in_row: int, samples: Samples) -> None:
    parts = _scorer_parts(call_at, samples)
    position = parts.rows.indptr[struct_at(Call, call_at).first] + place_in_row
    find_all(parts, node, position, position + 1)
    add_rows(parts, node, 0, 0)
    scale_sums(parts.ensemble, node, parts.work, 0)


@inlined
def _find_mapped_rows(parts: ScorerParts, node: int, row: int, stage: int) -> None:
    """Find the rows of a row's features in the chunk that is spread over the map.

    It replaces find_blocks and find_rows.
    """
    ensemble, _, _, rows, _, work = parts
    low = rows.indptr[row]
    high = rows.indptr[row + 1]
    n_before = n_before_tail(rows.indices[low:high], work)
    note_tail(work, stage, low, n_before, high)
    chunk = ensemble.node_chunk[node]
    width = children_width(ensemble, node)
    first_dense = ensemble.dense_ptr[chunk]
    first_sparse = ensemble.row_start[chunk]
    dense_at = work.dense_at[stage]
    dense_value = work.dense_value[stage]
    sparse_at = work.sparse_at[stage]
    sparse_value = work.sparse_value[stage]
    n_sparse = np.int64(0)
    n_dense = np.int64(0)
    for i in range(low, low + n_before):
        entry = np.int64(work.feature_row[place(rows.indices[place(i)])])
        value = rows.values[place(i)]
        dense_at[place(n_dense)] = first_dense - (entry + 1) * width
        dense_value[place(n_dense)] = value
        n_dense += np.int64(entry < 0)
        sparse_at[place(n_sparse)] = first_sparse + entry - 1
        sparse_value[place(n_sparse)] = value
        n_sparse += np.int64(entry > 0)
    work.counts[stage, 1] = n_dense
    work.counts[stage, 2] = n_sparse
