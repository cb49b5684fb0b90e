"""How long the stages of an answer take: noted where they end,
counted for `/metrics`, told to traces.

Times are of `time.perf_counter_ns`, which kernels know too (`xylem_store.compiled.clock`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

STAGES = ("read", "features", "search", "write", "queue", "commit")
"""What a stage is called: the body read; its rows made; searched; the answer written; waiting for a
thread; events of feedback until they are durable.
"""

READ, FEATURES, SEARCH, WRITE, QUEUE, COMMIT = range(len(STAGES))

BEGAN, HAS_READ, MADE, SEARCHED, WRITTEN = range(5)
"""Places of a kernel's times: when it began, had read, had made rows
of texts, had searched, had written.

Where nothing was read, or no rows were made, two times are equal.
"""

N_TIMES = 5

STAGE_SECONDS = (
    1e-6,
    2.5e-6,
    5e-6,
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    5e-3,
    0.025,
    0.1,
    0.5,
    2.5,
)
"""The bounds of the histogram's buckets."""

_BOUNDS_NS = [round(1e9 * bound) for bound in STAGE_SECONDS]

StageInterval = tuple[int, int, int]
"""A stage, when it began and when it ended."""

Stretch = tuple[tuple[str, ...], Sequence[int]]
"""Stages, or phases of a job, that follow each other: what they are called, when the first began
and when each ended. One that took no time is none.
"""


class StageTimings:
    """When the stages of a request began and ended. One thread at a time.

    noted      each stage, to be counted
    is_traced  whether a trace tells of them
    told       each stage that was counted so far; filled only where `is_traced`
    """

    __slots__ = ("_at", "intervals", "is_traced", "stretches")

    def __init__(self, *, is_traced: bool = False) -> None:
        self.is_traced = is_traced
        self.intervals: list[StageInterval] = []
        self.stretches: list[Stretch] = []
        self._at = perf_counter_ns()

    def begin(self) -> None:
        """Begin a stage: what came before belongs to none."""
        self._at = perf_counter_ns()

    def end(self, stage: int) -> None:
        """Note that a stage ends, which began where the one before ended, or with `begin`."""
        now = perf_counter_ns()
        self.intervals.append((stage, self._at, now))
        self._at = now

    def add_kernel_times(self, times: NDArray[np.int64]) -> None:
        """Let a trace tell what a kernel has counted, whose times these are; [N_TIMES]."""
        self.stretches.append((STAGES[: N_TIMES - 1], array("q", times.tobytes())))

    def drain_stages(self) -> list[Stretch]:
        """Return what a trace is to tell, and forget it."""
        stretches = self.stretches
        self.stretches = []
        return stretches

    def forget(self) -> None:
        """Begin anew: what was noted was of an answer that was not given."""
        self.intervals = []
        self.stretches = []

    def add(self, other: StageTimings) -> None:
        """Let a trace tell what was counted of a part of the
        request: the first 256 notes of a stream.
        """
        self.stretches += other.stretches[: max(0, 256 - len(self.stretches))]


class StageTimes:
    """A histogram for each stage. Event loop only; kernels that run there count in arrays of it.

    bounds_ns  [buckets]              the buckets' upper bounds
    counts     [stages, buckets + 1]  by kernels: how many took so long, longer than the bound below
    total_ns   [stages]               what these took
    """

    def __init__(self) -> None:
        self.bounds_ns = np.array(_BOUNDS_NS, np.int64)
        self.counts = np.zeros((len(STAGES), len(STAGE_SECONDS) + 1), np.int64)
        self.total_ns = np.zeros(len(STAGES), np.int64)
        # an item of an array costs Python ten times as much
        self._counts = self.counts.tolist()
        self._total_ns = self.total_ns.tolist()

    def count(self, timings: StageTimings) -> None:
        """Count what was noted, which is forgotten but where it is traced."""
        self.count_all(timings.intervals)
        if timings.is_traced:
            timings.stretches += (
                ((STAGES[stage],), (began, ended)) for stage, began, ended in timings.intervals
            )
        timings.intervals = []

    def count_all(self, spans: Sequence[StageInterval]) -> None:
        """Count stages."""
        for stage, began, ended in spans:
            self.count_one(stage, ended - began)

    def count_one(self, stage: int, nanoseconds: int) -> None:
        """Count that a stage took so long."""
        self._counts[stage][bisect_left(_BOUNDS_NS, nanoseconds)] += 1
        self._total_ns[stage] += nanoseconds

    def count_times(self, times: NDArray[np.int64]) -> None:
        """Count the stages of a call whose times these are; [N_TIMES]."""
        instants = times.tolist()
        for stage, began, ended in zip(
            (READ, FEATURES, SEARCH, WRITE), instants, instants[1:], strict=False
        ):
            if ended > began or stage >= SEARCH:
                self.count_one(stage, ended - began)

    def figures(self) -> list[tuple[str, list[int], int]]:
        """Return each stage, its counts by bucket, and its nanoseconds, whoever counted them."""
        counts = (self.counts + np.array(self._counts)).tolist()
        totals = (self.total_ns + np.array(self._total_ns)).tolist()
        return list(zip(STAGES, counts, totals, strict=True))
