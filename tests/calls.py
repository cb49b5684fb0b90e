"""Calls of traversals, put together by hand: what predictors do on pooled buffers."""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.scorer_kernels import scorer_of
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store.compiled.handles import handle_of, set_field
from xylem_store.ensemble import TreeEnsemble
from xylem_store.extras import NO_CALIBRATION, NO_RERANK, Rerank


class HandMadeCall(NamedTuple):
    """What a traversal takes; `parts` keeps what the handle leads to alive."""

    handle: Any
    parts: tuple[Any, ...]


def make_call(
    ensemble: TreeEnsemble,
    rows: Any,
    search: Search,
    work: Workspace,
    own: Any,
    answers: Answers,
    *,
    rerank: Rerank = NO_RERANK,
    stop: Any = None,
) -> HandMadeCall:
    """Return a call for all of the rows (indptr, indices, values);
    `stop`: the flag, if not work.stop.
    """
    structs = (
        ensemble,
        rerank,
        NO_CALIBRATION,
        Rows(*rows),
        search,
        answers,
        work,
        own.entries(),
        own,
    )
    handles = [handle_of(struct) for struct in structs]
    if stop is not None:
        set_field(handles[6], Workspace, "stop", stop.reshape(-1).view(np.uint8))
    call = handle_of(Call(0, len(rows[0]) - 1, scorer_of(ensemble), *handles))
    return HandMadeCall(call, (*structs, *handles))


def no_answers(n_rows: int, top_r: int, costs: Any = None, exact: Any = None) -> Answers:
    """Return answers that no row has yet; `costs` and `exact`: arrays that are to be filled."""
    return Answers(
        np.full(n_rows, -1, np.int64),
        np.full((n_rows, top_r), -1, np.int32),
        np.full((n_rows, top_r), np.nan, np.float32),
        np.full(n_rows, 7, np.uint8) if exact is None else exact,
        np.empty((0, 2), np.int64) if costs is None else costs,
    )


def dicts_of(answers: Answers) -> list[dict[int, float]]:
    """Return one {label: score} a row, in the order answered."""
    return [
        dict(zip(labels[:n].tolist(), scores[:n].tolist(), strict=True))
        for n, labels, scores in zip(answers.counts, answers.labels, answers.scores, strict=True)
    ]
