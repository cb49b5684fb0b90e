"""The rows of a first pass, shown with the trees so far before these learn from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import TreeEnsemble
from service.trainers.source import OnRows, TrainingSet

PARTS = 10
"""So many parts of the rows: one is shown with the trees that have learnt from those before it."""


class Shown:
    """Shows all rows but those of the first part; the trees are asked for once a part."""

    def __init__(self, on_rows: OnRows, n_rows: int, trees: Callable[[], TreeEnsemble]) -> None:
        self._on_rows = on_rows
        self._begins = {part * n_rows // PARTS for part in range(1, PARTS)} - {0}
        self._trees = trees
        self._ensemble: TreeEnsemble | None = None

    def pieces(self, gone: int, window: TrainingSet, order: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """Yield the order of a window, after `gone` rows before it, in pieces, each after it was shown."""
        end = gone + len(order)
        cuts = sorted({gone, end, *(begin for begin in self._begins if gone < begin < end)})
        for low, high in itertools.pairwise(cuts):
            piece = order[low - gone : high - gone]
            if low in self._begins:
                self._ensemble = self._trees()
            if self._ensemble is not None:
                self._on_rows(self._ensemble, window.take(piece))
            yield piece
