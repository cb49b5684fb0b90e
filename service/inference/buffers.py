"""Buffers for traversals, lent to kernels: taken for a call, given back, and used again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import lend, relend
from model_store.ensemble import TreeEnsemble
from service.kernels.search.beam_workspace import BEAM_KINDS, BeamShape
from service.kernels.search.queue_workspace import QUEUE_KINDS, make_queue
from service.kernels.search.workspace import WORKSPACE_KINDS, Workspace, make_workspace

_STOP = Workspace._fields.index("stop")

_FEATURES_AT_LEAST = 256
"""Buffers take rows of this many features at least, so that they seldom have to grow."""


class Need(NamedTuple):
    """What a call needs room for.

    block_rows  how many rows beam search takes through the chunks together; 0: a traversal by a queue
    n_features  of the longest row
    """

    block_rows: int
    n_features: int
    beam_width: int
    top_r: int


class Buffers(NamedTuple):
    """A workspace, what it has room for, and its handles for kernels.

    owned  keeps the arrays alive that the handles point into
    """

    room: Need
    work: Workspace
    owned: tuple[NDArray[np.generic], ...]
    lent: tuple[NDArray[np.int64], NDArray[np.int64]]

    def watch(self, stop: NDArray[np.uint8]) -> None:
        """Have kernels look at this flag, uint8[1], from their next call on."""
        relend(self.lent[0], _STOP, stop)


class BufferPool:
    """Idle buffers of one model; there are as many as calls were ever under way at once. Thread-safe."""

    def __init__(self, ensemble: TreeEnsemble, shape: BeamShape) -> None:
        self._ensemble = ensemble
        self._shape = shape
        self._queues: deque[Buffers] = deque()
        self._rows: deque[Buffers] = deque()
        self._blocks: deque[Buffers] = deque()

    def take(self, need: Need) -> Buffers:
        """Return idle buffers if they suffice, else new ones; those too small are dropped."""
        try:
            buffers = self._idle(need).pop()
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
        self._idle(buffers.room).append(buffers)

    def _idle(self, need: Need) -> deque[Buffers]:
        if need.block_rows == 0:
            return self._queues
        return self._rows if need.block_rows == 1 else self._blocks

    def _make(self, need: Need) -> Buffers:
        room = need._replace(n_features=max(need.n_features, _FEATURES_AT_LEAST))
        work = make_workspace(self._ensemble, n_features=room.n_features, maps_features=room.block_rows > 1)
        if room.block_rows == 0:
            queue = make_queue(self._ensemble, top_r=room.top_r)
            return Buffers(room, work, queue, (lend(work, WORKSPACE_KINDS), lend(queue, QUEUE_KINDS)))
        beam = self._shape.make(n_rows=room.block_rows, beam_width=room.beam_width, top_r=room.top_r)
        return Buffers(room, work, beam, (lend(work, WORKSPACE_KINDS), lend(beam, BEAM_KINDS)))
