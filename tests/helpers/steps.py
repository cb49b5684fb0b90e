"""Steps and rows for the tests of executors, in a module that processes of a cluster can import."""

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


class RowOutput(NamedTuple):
    number: int
    share: float
    arrays: list[NDArray[np.float32] | None]


@dataclass(frozen=True)
class Scaled:
    """A step that multiplies a row of a matrix by a number in a workspace; it refuses row `bad`."""

    matrix: NDArray[np.float32]
    factor: float
    bad: int = -1

    def workspace(self) -> NDArray[np.float32]:
        return np.zeros(self.matrix.shape[1], np.float32)

    def run(self, row: int, workspace: NDArray[np.float32], stop: NDArray[np.uint8]) -> RowOutput:
        if row == self.bad:
            print("about to refuse")
            raise BadData(f"row {row}: expected another, found this one")
        assert self.matrix.flags.writeable  # kernels are compiled for such arrays
        workspace += self.matrix[row] * np.float32(self.factor)
        product = workspace.copy()
        workspace[:] = 0
        return RowOutput(row, float(product.sum()), [product, None, product[:0]])


def scaled(row: int, matrix: NDArray[np.float32], factor: float) -> RowOutput:
    """Multiply a row of a matrix by a number."""
    product = matrix[row] * np.float32(factor)
    return RowOutput(row, float(product.sum()), [product, None])


def shifted(row: int, matrix: NDArray[np.float32], summand: float) -> RowOutput:
    """Add a number to a row of a matrix."""
    sums = matrix[row] + np.float32(summand)
    return RowOutput(row, float(sums.sum()), [sums])


class Idle:
    """A step that needs no workspace."""

    def workspace(self) -> None:
        return None


class Dying(Idle):
    """A step that ends its process at the first call, and marks it by making the file `marker`."""

    def run(self, marker: str, workspace: None, stop: NDArray[np.uint8]) -> int:
        if not Path(marker).exists():
            Path(marker).touch()
            os._exit(1)
        return 1


class Sleeping(Idle):
    """A step that sleeps."""

    def run(self, seconds: float, workspace: None, stop: NDArray[np.uint8]) -> float:
        time.sleep(seconds)
        return seconds


class Parts:
    """Rows that come in parts, as those of a file.

    cuts  the number of parts, or the rows where they begin
    """

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
            yield TrainingSet(self._data.rows.cut(first, last), self._data.labels.cut(first, last))
