"""Buffers for traversals, lent to kernels: taken for a call, given back, and used again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble
from service.kernels.beam_batch import BLOCK_KINDS, BlockWorkspace, make_block
from service.kernels.lending import lend, relend
from service.kernels.workspace import WORKSPACE_KINDS, Workspace, make_workspace

_STOP = Workspace._fields.index("stop")

_FEATURES_AT_LEAST = 256
"""Buffers take rows of this many features at least, so that they seldom have to grow."""


class Need(NamedTuple):
    """What a call needs room for.

    n_features  of the longest row
    is_exact    whether the traversal is exact or thresholded
    block_rows  how many rows go through a chunk together; 0: rows are answered one by one
    """

    n_features: int
    beam_width: int
    top_r: int
    is_exact: bool
    block_rows: int


class Buffers(NamedTuple):
    """A workspace, for batches a block, and their handles for kernels."""

    work: Workspace
    block: BlockWorkspace | None
    lent: tuple[NDArray[np.int64], ...]

    def suffice(self, need: Need) -> bool:
        """Return whether there is room for what a call needs."""
        work, block = self.work, self.block
        return (
            work.block_at.shape[1] >= need.n_features
            and len(work.beam_node) >= need.beam_width
            and len(work.best_label) >= need.top_r
            and (len(work.front_node) > 0 or not need.is_exact)
            and (block is None) == (need.block_rows == 0)
            and (
                block is None
                or (
                    len(block.best_label) >= need.block_rows
                    and block.next_node.shape[1] >= need.beam_width
                    and block.best_label.shape[1] >= need.top_r
                )
            )
        )

    def watch(self, stop: NDArray[np.uint8]) -> None:
        """Have kernels look at this flag, uint8[1], from their next call on."""
        relend(self.lent[0], _STOP, stop)


class BufferPool:
    """Idle buffers of one model; there are as many as calls were ever under way at once. Thread-safe."""

    def __init__(self, ensemble: TreeEnsemble) -> None:
        self._ensemble = ensemble
        self._rows: deque[Buffers] = deque()
        self._blocks: deque[Buffers] = deque()

    def take(self, need: Need) -> Buffers:
        """Return idle buffers if they suffice, else new ones; those too small are dropped."""
        idle = self._blocks if need.block_rows else self._rows
        try:
            buffers = idle.pop()
        except IndexError:
            return self._make(need)
        return buffers if buffers.suffice(need) else self._make(need)

    def give(self, buffers: Buffers) -> None:
        """Take buffers back that no kernel uses any more."""
        (self._rows if buffers.block is None else self._blocks).append(buffers)

    def _make(self, need: Need) -> Buffers:
        width, top_r = need.beam_width, need.top_r
        work = make_workspace(
            self._ensemble,
            n_features=max(need.n_features, _FEATURES_AT_LEAST),
            beam_width=width,
            top_r=top_r,
            exact=need.is_exact,
        )
        lent = lend(work, WORKSPACE_KINDS)
        if not need.block_rows:
            return Buffers(work, None, (lent,))
        block = make_block(self._ensemble, n_rows=need.block_rows, beam_width=width, top_r=top_r)
        return Buffers(work, block, (lent, lend(block, BLOCK_KINDS)))
