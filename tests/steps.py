"""Steps and rows for the tests of executors: in a module, where
the processes of a cluster find them.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem.base.errors import BadData
from xylem.trainers.source import MemorySource, Reads, TrainingSet


class Found(NamedTuple):
    number: int
    share: float
    arrays: list[NDArray[np.float32] | None]


@dataclass(frozen=True)
class Scaled:
    """The rows of a matrix times a number; works in a row of its own. Row `bad` is refused."""

    matrix: NDArray[np.float32]
    factor: float
    bad: int = -1

    def workspace(self) -> NDArray[np.float32]:
        return np.zeros(self.matrix.shape[1], np.float32)

    def run(self, row: int, workspace: NDArray[np.float32], stop: NDArray[np.uint8]) -> Found:
        if row == self.bad:
            print("about to refuse")
            raise BadData(f"row {row}: expected another, found this one")
        assert self.matrix.flags.writeable  # kernels are compiled for such arrays
        workspace += self.matrix[row] * np.float32(self.factor)
        found = workspace.copy()
        workspace[:] = 0
        return Found(row, float(found.sum()), [found, None, found[:0]])


def scaled(row: int, matrix: NDArray[np.float32], factor: float) -> Found:
    """A row of a matrix times a number."""
    found = matrix[row] * np.float32(factor)
    return Found(row, float(found.sum()), [found, None])


def shifted(row: int, matrix: NDArray[np.float32], by: float) -> Found:
    """A row of a matrix plus a number."""
    found = matrix[row] + np.float32(by)
    return Found(row, float(found.sum()), [found])


class Idle:
    """A step that needs no place to work in."""

    def workspace(self) -> None:
        return None


class Dying(Idle):
    """Ends its process at the first call; an item is a file that says that it was called."""

    def run(self, told: str, workspace: None, stop: NDArray[np.uint8]) -> int:
        if not Path(told).exists():
            Path(told).touch()
            os._exit(1)
        return 1


class Sleeping(Idle):
    """Takes its time."""

    def run(self, seconds: float, workspace: None, stop: NDArray[np.uint8]) -> float:
        time.sleep(seconds)
        return seconds


class Parts:
    """Rows that come in so many parts, as those of a file, or cut at some bounds."""

    reads: Reads = "passes"
    final_ids = None

    def __init__(self, data: TrainingSet, cuts: int | list[int]) -> None:
        self.census = MemorySource(data).census
        self._data = data
        if isinstance(cuts, int):
            self._bounds = np.linspace(0, data.n_rows, cuts + 1).astype(int).tolist()
        else:
            self._bounds = sorted({0, data.n_rows, *(cut for cut in cuts if cut < data.n_rows)})

    def parts(self) -> Iterator[TrainingSet]:
        for first, last in zip(self._bounds, self._bounds[1:], strict=False):
            yield self._data.cut(first, last)
