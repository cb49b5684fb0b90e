"""Buffers for traversals: taken for a call, given back, and used again."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from xylem.engine.answering import NOT_WANTED, places_for
from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.scorer_kernels import scorer_of
from xylem.engine.kernels.search.workspace import Workspace, make_workspace
from xylem_store import (
    I64,
    U8,
    Calibration,
    Rerank,
    TreeEnsemble,
    Uncopyable,
    empty_handle,
    handle_of,
    set_field,
    word_of,
)

FIRST = word_of(Call, "first")
LAST = word_of(Call, "last")
"""The places in a call's handle of the rows to answer."""

# buffers take rows of this many features at least, so that they seldom have to grow
_FEATURES_AT_LEAST = 256


class Need(NamedTuple):
    """What a call needs room for.

    block_rows  how many rows go through the chunks together; 0: a traversal by a queue
    n_features  of the longest row
    """

    block_rows: int
    n_features: int
    beam_width: int
    top_r: int


MakeOwn: TypeAlias = Callable[[Need], Any]
"""Return the buffers of a traversal's own, a struct with `entries()`, that suffice for a need."""


@dataclass(slots=True)
class Buffers(Uncopyable):
    """Workspaces with what they have room for, an answer to one row, and handles for kernels.

    own   the traversal's own workspace
    kept  where a row alone is answered
    call  the handle of a Call on these workspaces; rows, search, answers, stopping: of the Rows,
          Search, Answers and Workspace that it leads to
    plan  whose search the call has; None: of none
    """

    room: Need
    work: Workspace
    own: Any
    kept: Answers
    call: I64
    rows: I64
    search: I64
    answers: I64
    stopping: I64
    owned: tuple[I64, ...]
    plan: object = None

    def watch(self, stop: U8) -> None:
        """Have kernels look at this flag, uint8[1], from their next call on."""
        set_field(self.stopping, Workspace, "stop", stop)


class BufferPool(Uncopyable):
    """Idle buffers of one model; there are as many as calls were
    ever under way at once. Thread-safe.
    """

    def __init__(
        self, ensemble: TreeEnsemble, rerank: Rerank, calibration: Calibration, make_own: MakeOwn
    ) -> None:
        """Take the arrays of a model, and what makes a traversal's own buffers."""
        self._ensemble = ensemble
        self._kept = rerank, calibration
        self._handles = handle_of(ensemble), handle_of(rerank), handle_of(calibration)
        self._scorer = scorer_of(ensemble)
        self._make_own = make_own
        self._idle: tuple[deque[Buffers], ...] = deque(), deque(), deque()

    def take(self, need: Need) -> Buffers:
        """Return idle buffers if they suffice, else new ones; those too small are dropped."""
        try:
            buffers = self._idle[min(need.block_rows, 2)].pop()
        except IndexError:
            return self._make(need)
        rows, n_features, beam_width, top_r = buffers.room
        if (
            rows >= need.block_rows
            and n_features >= need.n_features
            and beam_width >= need.beam_width
            and top_r >= need.top_r
        ):
            return buffers
        return self._make(need)

    def give(self, buffers: Buffers) -> None:
        """Take buffers back that no kernel uses any more."""
        self._idle[min(buffers.room.block_rows, 2)].append(buffers)

    def _make(self, need: Need) -> Buffers:
        room = need._replace(n_features=max(need.n_features, _FEATURES_AT_LEAST))
        work = make_workspace(
            self._ensemble, n_features=room.n_features, maps_features=room.block_rows > 1
        )
        own = self._make_own(room)
        kept = Answers(*places_for(1, room.top_r), NOT_WANTED)
        rows_at = empty_handle(Rows)
        search_at = empty_handle(Search)
        answers_at, work_at, own_at = map(handle_of, (kept, work, own))
        parts = (
            *self._handles,
            rows_at,
            search_at,
            answers_at,
            work_at,
            handle_of(own.entries()),
            own_at,
        )
        call_at = handle_of(Call(0, 1, self._scorer, *parts))
        return Buffers(
            room=room,
            work=work,
            own=own,
            kept=kept,
            call=call_at,
            rows=rows_at,
            search=search_at,
            answers=answers_at,
            stopping=work_at,
            owned=parts,
        )
