"""What a traversal is handed: one `Call`, whose parts are handles too.

All traversals have the signature `traversal(call)`, and none reads a weight: that does the scorer, which the
call leads to. Who makes a call writes the fixed parts once and keeps it; rows, search and answers change from
call to call, for little: three small kernels write them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import Handle, handle, write_struct
from service.kernels.search.answers import Answers
from service.kernels.search.query import Rows, Search


@handle
class Call(NamedTuple):
    """Which rows to answer, how, and where: first .. last - 1 of `rows`.

    scorer    the address of the kernel that reads the ensemble's weights (`service.kernels.search.scoring`)
    ensemble  of a TreeEnsemble
    rerank    of a Rerank; only routing reads it
    calibration  of a Calibration: scores are calibrated when they are answered
    rows      of Rows
    search    of a Search
    answers   of Answers
    work      of a Workspace
    entries   of the Entries of `own`
    own       of the traversal's own buffers: a BeamWorkspace, QueueWorkspace or RoutingWorkspace
    """

    first: int
    last: int
    scorer: int
    ensemble: Handle
    rerank: Handle
    calibration: Handle
    rows: Handle
    search: Handle
    answers: Handle
    work: Handle
    entries: Handle
    own: Handle


@kernel
def set_rows(
    rows_at: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
) -> None:
    """Have a handle of Rows lead to these arrays."""
    write_struct(Rows, rows_at, (indptr, indices, values))


@kernel
def set_search(
    search_at: NDArray[np.int64],
    link: int,
    beam_width: int,
    top_r: int,
    is_sure: bool,
    allowed: NDArray[np.uint8],
    weight: NDArray[np.float32],
    log_threshold: NDArray[np.float32],
) -> None:
    """Have a handle of a Search hold these fields."""
    write_struct(Search, search_at, (link, beam_width, top_r, is_sure, allowed, weight, log_threshold))


@kernel
def set_answers(
    answers_at: NDArray[np.int64],
    counts: NDArray[np.int64],
    labels: NDArray[np.int32],
    scores: NDArray[np.float32],
    exact: NDArray[np.uint8],
    costs: NDArray[np.int64],
) -> None:
    """Have a handle of Answers lead to these arrays."""
    write_struct(Answers, answers_at, (counts, labels, scores, exact, costs))
