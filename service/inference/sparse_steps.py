"""Sparse requests whose rows are read first and answered then, where one kernel does not do both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from service.features.sparse_request import SparseQuery
from service.features.tensor_request import TensorBodies
from service.inference.sparse_answers import Present, SparseAnswer, TensorsAnswer, begin_at
from service.kernels.text.texts import TEXTS
from service.rows import SparseRows
from service.stages import StageTimes


class ReadsFirst(ABC):
    """Answers bodies as `SparseBeam` does, in two steps. One call at a time."""

    times: NDArray[np.int64]
    _stages: StageTimes
    _reader: TensorBodies

    def answer(
        self, message: bytes, start: int, present: Present, epoch: int, serial: int
    ) -> SparseAnswer | None:
        """Do as `SparseBeam.answer`."""
        began = perf_counter_ns()
        found, read = self._made(self._reader.read(message, start))
        answer = None if found is None else self.answer_rows(*found, present, epoch, serial)
        if answer is not None:
            begin_at(began, read, self.times, self._stages)
        return answer

    def answer_tensors(self, message: bytes, span: tuple[int, int], present: Present) -> TensorsAnswer | None:
        """Do as `SparseBeam.answer_tensors`."""
        began = perf_counter_ns()
        found, read = self._made(self._reader.read_infer(message, span))
        answer = None if found is None else self.rows_as_tensors(*found, self._reader.form, present)
        if answer is not None:
            begin_at(began, read, self.times, self._stages)
        return answer

    def _made(self, asked: SparseQuery) -> tuple[tuple[SparseRows, SparseQuery, float] | None, int | None]:
        """Return the rows that were read, and when their texts had been, whose rows are made from then on."""
        read = perf_counter_ns() if asked.n_values == TEXTS else None
        return self._reader.rows_read(asked), read

    @abstractmethod
    def answer_rows(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        present: Present,
        epoch: int,
        serial: int,
    ) -> SparseAnswer | None:
        """Do as `SparseBeam.answer_rows`."""

    @abstractmethod
    def rows_as_tensors(
        self,
        rows: SparseRows,
        asked: SparseQuery,
        number: float,
        form: NDArray[np.int64],
        present: Present,
    ) -> TensorsAnswer | None:
        """Do as `SparseBeam.rows_as_tensors`."""
