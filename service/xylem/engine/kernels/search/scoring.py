"""How traversals call the scorer: by its address, for several nodes at a time.

A traversal reads no weights itself, so it is compiled only once, and not for each type of weights.
A call costs some 30 nanoseconds, which is much for one node of a decision tree, so several nodes
are scored in a call.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numba import types

from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import I64, TreeEnsemble, caller, nonallocating_inlined as inlined, struct_at

# The modes of scoring. Each takes two numbers, `first` and `second`; IN_TURN takes a third one, n.
#
# IN_TURN  scores the children of the nodes of entries first .. second - 1 for their rows, into
#          margins[0] and so on. Before the first call for a list of entries,
#          start_turns(work, first) is called. While one chunk is scored, the next three chunks are
#          being fetched, each one step behind the one before it. The entries may become more
#          between two calls: n is their number so far.
# SPREAD   spreads the chunk of node `first` over the feature map or, if second is not 0, its rows
#          over `work.narrow_rows`, where all numbers are 0; afterwards `clear_features` is called
# MAPPED   does the same for entries of one node whose chunk is spread over the feature map
# ALONE    scores the children of inner node `first` for row `second`, into margins[0]; no other
#          chunk is fetched meanwhile
# FEATURE  writes what feature `second` of the call's first row adds to the children of node `first`
#          into margins[0]
IN_TURN, SPREAD, MAPPED, ALONE, FEATURE = range(5)

# The return type of the scorer.
SCORES: Any = types.none

_score = caller(SCORES)


class Scorer(NamedTuple):
    """The address of the scorer, and the handle of the Call that it works for."""

    address: int
    call: I64


TraversalBuffers = TypeVar("TraversalBuffers")


class CallParts(NamedTuple, Generic[TraversalBuffers]):
    """The structs that a Call refers to, for the steps of a traversal.

    traversal_buffers  the buffers that only this traversal uses
    """

    ensemble: TreeEnsemble
    scorer: Scorer
    rows: Rows
    search: Search
    answers: Answers
    work: Workspace
    traversal_buffers: TraversalBuffers


@inlined
def parts_of(call_at: I64, buffers_type: type[TraversalBuffers]) -> CallParts[TraversalBuffers]:
    """Return the parts of a Call; `buffers_type` is the class of its `traversal_buffers`."""
    call = struct_at(Call, call_at)
    ensemble = struct_at(TreeEnsemble, call.ensemble)
    scorer = Scorer(call.scorer, call_at)
    rows = struct_at(Rows, call.rows)
    search = struct_at(Search, call.search)
    answers = struct_at(Answers, call.answers)
    work = struct_at(Workspace, call.work)
    return CallParts(
        ensemble=ensemble,
        scorer=scorer,
        rows=rows,
        search=search,
        answers=answers,
        work=work,
        traversal_buffers=struct_at(buffers_type, call.traversal_buffers),
    )


@inlined
def start_turns(work: Workspace, first: int) -> None:
    """Prepare to score entries IN_TURN, beginning with the one at `first`."""
    for step in range(3):
        work.turns[step] = first


@inlined
def last_at_once(work: Workspace, k: int, end: int) -> int:
    """Return the end of the entries, from the k-th on, that can be scored in one call.

    It is at most `end`.
    """
    return min(end, k + len(work.margins))


@inlined
def call_scorer(scorer: Scorer, mode: int, first: int, second: int, n: int) -> None:
    """Score in one of the modes above, with its numbers."""
    _score(scorer.address, (scorer.call, mode, np.int64(first), np.int64(second), np.int64(n)))
