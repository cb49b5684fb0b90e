"""Build calls of the traversal kernels by hand; predictors build them on pooled buffers."""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.scorer_kernels import scorer_of
from xylem.engine.kernels.search.workspace import Entries, Workspace
from xylem_store.compiled.handles import handle_of, set_field
from xylem_store.ensemble import TreeEnsemble
from xylem_store.extras import NO_CALIBRATION, NO_RERANK, Rerank


class HandMadeCall(NamedTuple):
    """The argument of a traversal; `parts` keeps the objects alive that the handle refers to."""

    handle: Any
    parts: tuple[Any, ...]


def make_call(
    ensemble: TreeEnsemble,
    rows: Any,
    search: Search,
    work: Workspace,
    queues: Any,
    answers: Answers,
    *,
    rerank: Rerank = NO_RERANK,
    stop: Any = None,
) -> HandMadeCall:
    """Return a call for all rows.

    rows    (indptr, indices, values)
    queues  the workspace of the traversal itself
    stop    the flag that stops it; None: work.stop
    """
    structs = (
        ensemble,
        rerank,
        NO_CALIBRATION,
        Rows(*rows),
        search,
        answers,
        work,
        Entries(queues.entry_node, queues.entry_row),
        queues,
    )
    handles = [handle_of(struct) for struct in structs]
    if stop is not None:
        set_field(handles[6], Workspace, "stop", stop.reshape(-1).view(np.uint8))
    call = handle_of(Call(0, len(rows[0]) - 1, scorer_of(ensemble), *handles))
    return HandMadeCall(call, (*structs, *handles))


def no_answers(n_rows: int, top_r: int, costs: Any = None, exact: Any = None) -> Answers:
    """Return answers that are not yet filled; `costs` and `exact` are used as arrays if given."""
    return Answers(
        np.full(n_rows, -1, np.int64),
        np.full((n_rows, top_r), -1, np.int32),
        np.full((n_rows, top_r), np.nan, np.float32),
        np.full(n_rows, 7, np.uint8) if exact is None else exact,
        np.empty((0, 2), np.int64) if costs is None else costs,
    )


def dicts_of(answers: Answers) -> list[dict[int, float]]:
    """Return {label: score} for each row, with labels in the order of the answers."""
    return [
        dict(zip(labels[:n].tolist(), scores[:n].tolist(), strict=True))
        for n, labels, scores in zip(answers.counts, answers.labels, answers.scores, strict=True)
    ]
