"""Buffers for traversals: a call takes them from a pool, and gives them back for the next one."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from xylem.engine.answering import NO_COSTS, empty_answers
from xylem.engine.kernels.search.call import Answers, Call, Rows, Search
from xylem.engine.kernels.search.scorer_kernels import scorer_of
from xylem.engine.kernels.search.workspace import Entries, Workspace, make_workspace
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
)

# buffers have room for at least this many features of a row, so that they rarely have to grow
_FEATURES_AT_LEAST = 256


class Need(NamedTuple):
    """The sizes that a call's buffers must have.

    block_rows  how many rows go through the chunks together; 0: a traversal with a queue
    n_features  the features of the longest row
    beam_width  the most nodes of a level
    top_r       the most labels of a row
    """

    block_rows: int
    n_features: int
    beam_width: int
    top_r: int


# Makes the buffers that only one traversal uses, large enough for a Need.
#
# They are a struct with `entry_node` and `entry_row`, the entries that the scorer is called for.
MakeBuffers: TypeAlias = Callable[[Need], Any]


@dataclass(slots=True)
class Buffers(Uncopyable):
    """The buffers of one call: workspaces, room for the answer to one row, and handles for kernels.

    room               the sizes of the buffers
    work               the scorer's workspace, which all traversals use
    traversal_buffers  the buffers that only this traversal uses
    row_answers        where the answer goes if there is only one row
    call               the handle of a Call on these workspaces
    rows, search, answers, stopping
                       the handles of the Rows, Search, Answers and Workspace of that Call
    owned              all handles that the Call refers to: they must stay alive with it
    plan               the plan whose search the Call has; None if it has none yet
    """

    room: Need
    work: Workspace
    traversal_buffers: Any
    row_answers: Answers
    call: I64
    rows: I64
    search: I64
    answers: I64
    stopping: I64
    owned: tuple[I64, ...]
    plan: object = None

    def watch(self, stop: U8) -> None:
        """Make kernels watch this stop flag, uint8[1], from their next call on."""
        set_field(self.stopping, Workspace, "stop", stop)


class BufferPool(Uncopyable):
    """The idle buffers of one model. Thread-safe.

    The pool grows to as many buffers as there were ever calls at the same time.
    """

    def __init__(
        self,
        ensemble: TreeEnsemble,
        rerank: Rerank,
        calibration: Calibration,
        make_buffers: MakeBuffers,
    ) -> None:
        """Make a pool for a model's arrays; `make_buffers` makes the traversal's own buffers."""
        self._ensemble = ensemble
        self._handle_owners = rerank, calibration
        self._handles = handle_of(ensemble), handle_of(rerank), handle_of(calibration)
        self._scorer = scorer_of(ensemble)
        self._make_buffers = make_buffers
        self.clear()

    def take(self, need: Need) -> Buffers:
        """Return idle buffers if they are large enough, else new ones.

        Idle buffers that are too small are dropped.
        """
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
        """Put back buffers that no kernel uses any more."""
        self._idle[min(buffers.room.block_rows, 2)].append(buffers)

    def clear(self) -> None:
        """Drop all idle buffers."""
        # by block_rows: traversals with a queue (0), single rows (1), blocks of rows (2 or more)
        self._idle: tuple[deque[Buffers], ...] = deque(), deque(), deque()

    def _make(self, need: Need) -> Buffers:
        room = need._replace(n_features=max(need.n_features, _FEATURES_AT_LEAST))
        work = make_workspace(
            self._ensemble, n_features=room.n_features, maps_features=room.block_rows > 1
        )
        traversal_buffers = self._make_buffers(room)
        row_answers = Answers(*empty_answers(1, room.top_r), NO_COSTS)
        rows_at = empty_handle(Rows)
        search_at = empty_handle(Search)
        answers_at, work_at, buffers_at = map(handle_of, (row_answers, work, traversal_buffers))
        parts = (
            *self._handles,
            rows_at,
            search_at,
            answers_at,
            work_at,
            handle_of(Entries(traversal_buffers.entry_node, traversal_buffers.entry_row)),
            buffers_at,
        )
        return Buffers(
            room=room,
            work=work,
            traversal_buffers=traversal_buffers,
            row_answers=row_answers,
            call=handle_of(Call(0, 1, self._scorer, *parts)),
            rows=rows_at,
            search=search_at,
            answers=answers_at,
            stopping=work_at,
            owned=parts,
        )
