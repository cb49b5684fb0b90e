"""The scorer as traversals call it: by its address, for several nodes at a time.

So a traversal is compiled once, not once for each type of weights: it reads none itself. A call
costs some 30 nanoseconds, which one node of a decision tree would feel.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numba import types

from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.workspace import Workspace
from xylem_store import I64, TreeEnsemble, caller, struct_at
from xylem_store import nonallocating_inlined as inlined

IN_TURN, MAPPED, NARROW, ALONE, FEATURE = range(5)
"""What is scored, and how, by two numbers and, IN_TURN, a third:

IN_TURN  the children of the nodes of entries one .. other - 1 for their rows, into margins[0] and
         so on. From one = first on after start_turns(work, first). While one chunk is scored, the
         next three are each one step further back on their way. The entries may grow between two
         calls: n is their number so far.
MAPPED   the same for entries of one node whose chunk the feature map holds
NARROW   as MAPPED for a node that `scorer.is_narrow`, in less time
ALONE    the children of inner node `one` for row `other`, into margins[0], with nothing to overlap
         it with
FEATURE  what feature `other` of the call's first row adds to the children of node `one`, to
         margins[0]
"""

SCORES: Any = types.none
"""What the scorer returns."""

_score = caller(SCORES)


class Scorer(NamedTuple):
    """The address of the scorer, and the handle of the Call that it is for."""

    address: int
    call: I64


TraversalBuffers = TypeVar("TraversalBuffers")


class CallParts(NamedTuple, Generic[TraversalBuffers]):
    """What a Call leads to: what the steps of a traversal work with.
    `traversal_buffers`: the traversal's own buffers.
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
    """Return the parts of a Call whose own buffers are a struct of this class."""
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
    """Begin to go through the entries, with the one at `first`."""
    for step in range(3):
        work.turns[step] = first


@inlined
def last_at_once(work: Workspace, k: int, end: int) -> int:
    """Return where those entries from the k-th on end, of those before
    `end`, that can be scored at once.
    """
    return min(end, k + len(work.margins))


@inlined
def call_scorer(scorer: Scorer, way: int, first: int, second: int, n: int) -> None:
    """Score in one of the ways above."""
    _score(scorer.address, (scorer.call, way, np.int64(first), np.int64(second), np.int64(n)))
