"""Stages that Python and kernels count come to one histogram."""

import bisect

import numpy as np
import pytest

from xylem.base.stages import (
    FEATURES,
    READ,
    SEARCH,
    STAGE_SECONDS,
    STAGES,
    WRITE,
    StageTimes,
    StageTimings,
)


def _counts(stages: StageTimes, stage: int) -> list[int]:
    return stages.figures()[stage][1]


@pytest.mark.parametrize("nanoseconds", [0, 999, 1000, 1001, 2_500_000_000, 2_500_000_001])
def test_a_time_is_counted_in_the_first_bucket_that_holds_it(nanoseconds: int) -> None:
    stages = StageTimes()
    stages.count_one(SEARCH, nanoseconds)
    expected = bisect.bisect_left([round(1e9 * bound) for bound in STAGE_SECONDS], nanoseconds)
    assert [place for place, n in enumerate(_counts(stages, SEARCH)) if n] == [expected]
    assert stages.figures()[SEARCH] == (STAGES[SEARCH], _counts(stages, SEARCH), nanoseconds)


def test_what_kernels_counted_is_added() -> None:
    stages = StageTimes()
    stages.counts[WRITE, 3] += 5
    stages.total_ns[WRITE] += 70
    stages.count_times(np.array([10, 10, 10, 1510, 4010]))  # given rows: nothing was read
    assert sum(_counts(stages, READ)) == sum(_counts(stages, FEATURES)) == 0
    assert _counts(stages, SEARCH)[1] == 1
    assert _counts(stages, WRITE)[:4] == [0, 1, 0, 5]
    assert stages.figures()[WRITE][2] == 70 + 2500


def test_each_stage_of_a_text_is_counted_and_told() -> None:
    times = np.array([10, 1010, 6010, 7010, 7011])
    stages, timings = StageTimes(), StageTimings(is_traced=True)
    stages.count_times(times)
    assert [total for _, _, total in stages.figures()[:4]] == [1000, 5000, 1000, 1]
    timings.add_kernel_times(times)
    times[:] = 0  # the kernel's next call
    told = [(names, list(at)) for names, at in timings.stretches]
    assert told == [(("read", "features", "search", "write"), [10, 1010, 6010, 7010, 7011])]


def test_what_a_trace_took_is_not_told_again() -> None:
    """A block of a stream that ends after its request was noted does not reach the
    request's span.
    """
    stages, whole, block = StageTimes(), StageTimings(is_traced=True), StageTimings(is_traced=True)
    whole.end(READ)
    stages.count(whole)
    told = whole.drain_stages()
    block.end(SEARCH)
    stages.count(block)
    whole.add(block)
    assert [names for names, _ in told] == [("read",)]
    assert [names for names, _ in whole.drain_stages()] == [("search",)]
    assert whole.drain_stages() == []


def test_an_answer_that_was_not_sent_is_not_counted() -> None:
    stages, timings = StageTimes(), StageTimings(is_traced=True)
    timings.end(READ)
    timings.add_kernel_times(np.array([1, 2, 2, 3, 4]))
    timings.forget()
    stages.count(timings)
    assert timings.drain_stages() == []
    assert all(total == 0 for _, _, total in stages.figures())


def test_notes_are_counted_once() -> None:
    stages, timings = StageTimes(), StageTimings()
    timings.end(FEATURES)
    stages.count(timings)
    stages.count(timings)
    assert sum(_counts(stages, FEATURES)) == 1
