"""The scorer as traversals call it: by its address, for several nodes at a time.

So a traversal is compiled once, not once for each type of weights: it reads none itself. A call costs some 30
nanoseconds, which one node of a decision tree would feel.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numba import types
from numpy.typing import NDArray

from model_store.compiled.calls import caller
from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.handles import struct_at
from model_store.ensemble import TreeEnsemble
from service.kernels.search.call import Answers, Call, Rows, Search
from service.kernels.search.workspace import Workspace

IN_TURN, MAPPED, NARROW, ALONE, FEATURE = range(5)
"""What is scored, and how: see the functions below."""

SCORES: Any = types.none
"""What the scorer returns."""

_score = caller(SCORES)


class Scorer(NamedTuple):
    """The address of the scorer, and the handle of the Call that it is for."""

    address: int
    call: NDArray[np.int64]


Own = TypeVar("Own")


class Parts(NamedTuple, Generic[Own]):
    """What a Call leads to: what the steps of a traversal work with. `own`: the traversal's own buffers."""

    ensemble: TreeEnsemble
    scorer: Scorer
    rows: Rows
    search: Search
    answers: Answers
    work: Workspace
    own: Own


@inlined
def parts_of(call_at: NDArray[np.int64], own: type[Own]) -> Parts[Own]:
    """Return the parts of a Call whose own buffers are a struct of this class."""
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    rows, search = struct_at(Rows, call.rows), struct_at(Search, call.search)
    answers, work = struct_at(Answers, call.answers), struct_at(Workspace, call.work)
    return Parts(ensemble, scorer, rows, search, answers, work, struct_at(own, call.own))


@inlined
def start_turns(work: Workspace, first: int) -> None:
    """Begin to go through the entries, with the one at `first`."""
    for step in range(3):
        work.turns[step] = first


@inlined
def last_at_once(work: Workspace, k: int, end: int) -> int:
    """Return where those entries from the k-th on end, of those before `end`, that can be scored at once."""
    return min(end, k + len(work.margins))


@inlined
def score_in_turn(scorer: Scorer, k: int, end: int, n_entries: int) -> None:
    """Score the children of the nodes of entries k .. end - 1 for their rows, into margins[0] and so on.

    From k = first on after start_turns(work, first). While one chunk is scored, the next three are each one
    step further back on their way. The entries may grow between two calls (n_entries is their number so far).
    """
    _score(scorer.address, (scorer.call, IN_TURN, np.int64(k), np.int64(end), np.int64(n_entries)))


@inlined
def score_mapped(scorer: Scorer, k: int, end: int) -> None:
    """Do as `score_in_turn` for entries of one node whose chunk the feature map holds."""
    _score(scorer.address, (scorer.call, MAPPED, np.int64(k), np.int64(end), 0))


@inlined
def score_narrow(scorer: Scorer, k: int, end: int) -> None:
    """Do as `score_mapped` for a node that `routing_narrow.is_narrow`, in less time."""
    _score(scorer.address, (scorer.call, NARROW, np.int64(k), np.int64(end), 0))


@inlined
def score_alone(scorer: Scorer, node: int, row: int) -> None:
    """Score the children of one inner node for a row, into margins[0], with nothing to overlap it with."""
    _score(scorer.address, (scorer.call, ALONE, np.int64(node), np.int64(row), 0))


@inlined
def score_feature(scorer: Scorer, node: int, place: int) -> None:
    """Write what one feature of the call's first row adds to a node's children to margins[0]."""
    _score(scorer.address, (scorer.call, FEATURE, np.int64(node), np.int64(place), 0))
