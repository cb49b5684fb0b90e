"""The time that the stages of an answer take: measured, counted for `/metrics`, passed to traces.

Times are of `time.perf_counter_ns`, which kernels read too (`xylem_store.compiled.clock`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

# The names of the stages.
#
# read      the body is read
# features  its rows are made
# search    the rows are searched
# write     the answer is written
# queue     the request waits for a thread
# commit    events of feedback wait until they are durable
# encode    its rows are made, by a version with a sentence encoder
STAGES = ("read", "features", "search", "write", "queue", "commit", "encode")

READ, FEATURES, SEARCH, WRITE, QUEUE, COMMIT, ENCODE = range(len(STAGES))

_OF_KERNELS = (READ, FEATURES, SEARCH, WRITE)  # the stages that kernels measure, in their order
_NAMES_OF_KERNELS = tuple(STAGES[stage] for stage in _OF_KERNELS)


# The most stages of a stream that its trace has: a stream may have any number of blocks.
STRETCHES_MAX = 256

# The upper bounds of the histogram's buckets, in seconds.
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

_BOUNDS_NS = [round(1e9 * bound) for bound in STAGE_SECONDS]

# A stage, and the times when it began and when it ended.
StageInterval = tuple[int, int, int]

# Stages, or phases of a job, that follow each other: their names, and their times.
#
# The times are when the first began, and when each ended. A stage that took no time is left out of
# traces.
Stretch = tuple[tuple[str, ...], Sequence[int]]


class StageTimings:
    """The times at which the stages of a request began and ended. For one thread at a time.

    intervals  the stages that are not counted yet
    is_traced  whether the request is traced
    stretches  the stages that were counted; filled only if `is_traced`
    """

    __slots__ = ("_stage_start", "intervals", "is_traced", "stretches")

    def __init__(self, *, is_traced: bool = False) -> None:
        self.is_traced = is_traced
        self.intervals: list[StageInterval] = []
        self.stretches: list[Stretch] = []
        self._stage_start = perf_counter_ns()

    def begin(self) -> None:
        """Begin a stage now: the time before it belongs to no stage."""
        self._stage_start = perf_counter_ns()

    def end(self, stage: int) -> None:
        """End a stage now; it began where the previous one ended, or with `begin`."""
        now = perf_counter_ns()
        self.intervals.append((stage, self._stage_start, now))
        self._stage_start = now

    def add_kernel_times(self, times: NDArray[np.int64]) -> None:
        """Add a kernel's times to the trace: when it began, and when each of its stages ended.

        The kernel itself has counted its stages.
        """
        self.stretches.append((_NAMES_OF_KERNELS, array("q", times.tobytes())))

    def drain_stages(self) -> list[Stretch]:
        """Return the stages for the trace, and remove them here."""
        stretches = self.stretches
        self.stretches = []
        return stretches

    def forget(self) -> None:
        """Remove all stages: the answer that they belong to was not sent."""
        self.intervals = []
        self.stretches = []

    def search_ns(self) -> int:
        """Return the nanoseconds of search among the stages that are not counted yet."""
        return sum(ended - began for stage, began, ended in self.intervals if stage == SEARCH)

    def add(self, other: "StageTimings") -> None:
        """Add the stages of a part of the request to the trace.

        A trace has at most the first STRETCHES_MAX stages of a stream.
        """
        self.stretches += other.stretches[: max(0, STRETCHES_MAX - len(self.stretches))]


class StageTimes:
    """A histogram of times for each stage.

    For the event loop only; kernels that run there count in its arrays.

    bounds_ns  [buckets]              the upper bounds of the buckets
    counts     [stages, buckets + 1]  the number of times in each bucket, above the bound of the
                                      previous one, as counted by kernels; the last has no bound
    total_ns   [stages]               the sum of these times
    """

    def __init__(self) -> None:
        self.bounds_ns = np.array(_BOUNDS_NS, np.int64)
        self.counts = np.zeros((len(STAGES), len(STAGE_SECONDS) + 1), np.int64)
        self.total_ns = np.zeros(len(STAGES), np.int64)
        # lists, because Python takes ten times as long for an item of an array
        self._counts = self.counts.tolist()
        self._total_ns = self.total_ns.tolist()
        self._steps_search_ns = 0  # of kernels that run step by step
        self._drained_search_ns = 0

    def count(self, timings: StageTimings) -> None:
        """Count the stages of a request; if it is traced, move them to its `stretches`."""
        self.count_all(timings.intervals)
        if timings.is_traced:
            timings.stretches += (
                ((STAGES[stage],), (began, ended)) for stage, began, ended in timings.intervals
            )
        timings.intervals = []

    def count_all(self, spans: Sequence[StageInterval]) -> None:
        """Count several stages."""
        for stage, began, ended in spans:
            self.count_one(stage, ended - began)

    def count_one(self, stage: int, nanoseconds: int) -> None:
        """Count one stage, and the nanoseconds that it took."""
        self._counts[stage][bisect_left(_BOUNDS_NS, nanoseconds)] += 1
        self._total_ns[stage] += nanoseconds

    def count_times(self, times: NDArray[np.int64]) -> None:
        """Count the stages of one call of a kernel, from its times, as above."""
        instants = times.tolist()
        for stage, began, ended in zip(_OF_KERNELS, instants, instants[1:], strict=False):
            if ended > began or stage >= SEARCH:
                self.count_one(stage, ended - began)
        self._steps_search_ns += instants[SEARCH + 1] - instants[SEARCH]

    def drain_search(self, timings: StageTimings) -> int:
        """Return the nanoseconds that a request was searched, which has just been answered.

        Kernels count their time themselves: it is what they counted since the last call. The stages
        in `timings` are not counted yet.
        """
        search_ns = int(self.total_ns[SEARCH]) + self._steps_search_ns
        drained_ns = search_ns - self._drained_search_ns
        self._drained_search_ns = search_ns
        return drained_ns + timings.search_ns()

    def figures(self) -> list[tuple[str, list[int], int]]:
        """Return the name, the counts by bucket, and the total nanoseconds of each stage.

        They include the stages that kernels counted.
        """
        counts = (self.counts + np.array(self._counts)).tolist()
        return list(
            zip(STAGES, counts, (self.total_ns + np.array(self._total_ns)).tolist(), strict=True)
        )
