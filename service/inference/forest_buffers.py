"""Buffers for routing, lent to kernels: taken for a call, given back, and used again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.handles import lend, relend
from model_store.ensemble import TreeEnsemble
from service.kernels.search.routing_workspace import ROUTING_KINDS, RoutingShape, RoutingWorkspace
from service.kernels.search.workspace import WORKSPACE_KINDS, Workspace, make_workspace

_STOP = Workspace._fields.index("stop")

_FEATURES_AT_LEAST = 256
"""Buffers take rows of this many features at least, so that they seldom have to grow."""


class RoutingNeed(NamedTuple):
    """What a call needs room for: the features of the longest row, top_r, and rows that go down together."""

    n_features: int
    top_r: int
    block_rows: int


class RoutingBuffers(NamedTuple):
    """The workspaces of scorer and routing, what they have room for, and their handles for kernels."""

    room: RoutingNeed
    work: Workspace
    routing: RoutingWorkspace
    lent: tuple[NDArray[np.int64], NDArray[np.int64]]

    def watch(self, stop: NDArray[np.uint8]) -> None:
        """Have kernels look at this flag, uint8[1], from their next call on."""
        relend(self.lent[0], _STOP, stop)


class RoutingBufferPool:
    """Idle buffers of one model; there are as many as calls were ever under way at once. Thread-safe."""

    def __init__(self, ensemble: TreeEnsemble, shape: RoutingShape) -> None:
        self._ensemble = ensemble
        self._shape = shape
        self._single: deque[RoutingBuffers] = deque()
        self._blocks: deque[RoutingBuffers] = deque()

    def take(self, need: RoutingNeed) -> RoutingBuffers:
        """Return idle buffers if they suffice, else new ones; those too small are dropped."""
        try:
            buffers = (self._single if need.block_rows == 1 else self._blocks).pop()
        except IndexError:
            return self._make(need)
        fits = all(has >= wanted for has, wanted in zip(buffers.room, need, strict=True))
        return buffers if fits else self._make(need)

    def give(self, buffers: RoutingBuffers) -> None:
        """Take buffers back that no kernel uses any more."""
        (self._single if buffers.room.block_rows == 1 else self._blocks).append(buffers)

    def _make(self, need: RoutingNeed) -> RoutingBuffers:
        room = need._replace(n_features=max(need.n_features, _FEATURES_AT_LEAST))
        work = make_workspace(self._ensemble, n_features=room.n_features, maps_features=room.block_rows > 1)
        routing = self._shape.make(block_rows=room.block_rows, top_r=room.top_r)
        lent = lend(work, WORKSPACE_KINDS), lend(routing, ROUTING_KINDS)
        return RoutingBuffers(room, work, routing, lent)
