"""One threshold for all labels and a limit: replicas against a slow reading of the sources.

Micro-F is the OFO of one binary problem on the decisions of all labels, instance-F the best pair of
the grid on all rows so far.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from tests.helpers.common_thresholds import Slow, all_bits, begun, caught_up, ranked, some_events
from tests.helpers.feedback_helpers import (
    N_LABELS,
    Replica,
    columns,
    predictor,
    put_candidate,
)

from xylem.base import no_progress
from xylem.base.errors import DatabaseUnavailable
from xylem.base.rows import SparseRows
from xylem.thresholds.live.shadow import take_shadow
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import learn


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    """What opens a replica over the database of a URL; in the end all are closed."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments: opened.enter_context(contextlib.closing(Replica(*arguments)))


@pytest.mark.parametrize("objective", ["micro", "instance"])
@pytest.mark.parametrize(("halve_events", "empty"), [(None, "zero"), (10, "one")])
def test_replicas_learn_as_the_sources_say(
    database_url: str, replica: Any, objective: str, halve_events: int | None, empty: str
) -> None:
    replicas = [replica(database_url, halve_events) for _ in range(2)]
    ThresholdDatabase(replicas[0].database).save("m", 1, begun(objective, empty))
    slow, rng = Slow(objective, empty), random.Random(4)
    rules = set()
    for n, event in enumerate(some_events(70, 3), 1):
        rng.choice(replicas).send(event)
        slow.count(event)
        if halve_events and n % halve_events == 0:
            slow.halve()
        if n % 10 == 0:
            for one in replicas:
                one.catch_up()
                slow.check(one.live.snapshot())
        rules.add(slow.rule())
    assert len(rules) > 3
    assert sum(slow.hits) > (0 if halve_events else 20)
    assert len({all_bits(one) for one in (*replicas, caught_up(replica(database_url)))}) == 1


@pytest.mark.parametrize("objective", ["micro", "instance"])
def test_feedback_is_the_file_however_it_is_grouped(
    tmp_path: Any, replica: Any, objective: Any
) -> None:
    events = [event for event in some_events(90, 8) if event.row is not None]
    ends = set()
    for size in (1, 7, 90):  # 90 events need more room in the journal than it has at first
        one = replica(f"sqlite:///{tmp_path}/{size}.db")
        ThresholdDatabase(one.database).save("m", 1, begun(objective))
        for first in range(0, len(events), size):
            one.send(*events[first : first + size])
        state = one.live.snapshot()
        ends.add((*all_bits(one)[:3], state.aim.limit, state.aim.sums.tobytes()))
    assert len(ends) == 1
    rows = SparseRows.join([event.row for event in events])
    labels = columns(*events).labels
    told = learn(predictor(), rows, labels, begun(objective), None, 0, no_progress)
    assert told.thresholds.tobytes() == state.thresholds.tobytes()
    assert (told.aim.limit, told.aim.sums.tolist()) == (state.aim.limit, state.aim.sums.tolist())
    slow = Slow(objective)
    for event in events:
        slow.count(event)
    slow.check(told)


@pytest.mark.parametrize("objective", ["micro", "instance"])
def test_labels_that_an_alias_denies_take_no_place(objective: Any) -> None:
    moving = ThresholdCounters(begun(objective), predictor(), np.empty(0, np.int64), 0)
    events, denied = some_events(40, 6), {0, 3, 4, 7}
    allowed = np.array([label not in denied for label in range(N_LABELS)], np.uint8)
    moving.count(columns(*events), np.arange(len(events)), allowed)
    slow = Slow(objective)
    slow.predict = lambda event, threshold, limit: [
        label
        for label, score in [pair for pair in ranked(event) if pair[0] not in denied][:limit]
        if score >= threshold
    ]
    for event in events:
        slow.count(event, denied)
    slow.check(moving.snapshot())


def test_what_cannot_be_committed_leaves_the_sums_as_they_were(replica: Any, tmp_path: Any) -> None:
    one = replica(f"sqlite:///{tmp_path}/xylem.db", 3)
    ThresholdDatabase(one.database).save("m", 1, begun("instance"))
    one.send(*some_events(7, 1))
    before = all_bits(one)
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_log RENAME TO elsewhere"))
    with pytest.raises(DatabaseUnavailable):
        one.send(*some_events(12, 3))
    assert all_bits(one) == before
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO threshold_log"))
    assert one.send(*some_events(12, 3)) == ["applied"] * 12
    assert all_bits(one) != before
    assert all_bits(one) == all_bits(caught_up(replica(f"sqlite:///{tmp_path}/xylem.db")))


@pytest.mark.parametrize(
    ("served", "candidate"),
    [("macro", "instance"), ("instance", "macro"), ("micro", "instance"), ("instance", "instance")],
)
def test_a_candidate_has_an_objective_of_its_own(
    database_url: str, replica: Any, served: Any, candidate: Any
) -> None:
    one, other = replica(database_url, 11), replica(database_url, 11)
    ThresholdDatabase(one.database).save("m", 1, begun(served))
    put_candidate(one.database, 1, begun(candidate))
    for n, event in enumerate(events := some_events(30, 5)):
        (one, other)[n % 2].send(event)
    offline = {
        objective: ThresholdCounters(begun(objective), predictor(), np.empty(0, np.int64), 0)
        for objective in (served, candidate)
    }
    with_row = [event.row is not None for event in events]
    for n, event in enumerate(events, 1):
        for objective in {served, candidate}:
            if objective == served or with_row[n - 1]:
                offline[objective].count(columns(event), np.arange(1))
                offline[objective].keep()
        if n % 11 == 0:
            for each in offline.values():
                each.halve()
                each.keep()
    for each in (one, other, replica(database_url)):
        each.catch_up()
        assert each.live.shadow.n_events == sum(with_row)
        expected, found = offline[served].snapshot(), each.live.snapshot()
        assert found.aim.sums.tolist() == expected.aim.sums.tolist()
        if served != candidate:
            expected, found = offline[candidate].snapshot(), each.live.shadow.candidate.snapshot()
            assert found.aim[:2] == expected.aim[:2]
            assert found.aim.sums.tolist() == expected.aim.sums.tolist()
            assert found.thresholds.tobytes() == expected.thresholds.tobytes()
    told = one.live.shadow.candidate.snapshot()
    take_shadow(one.database, "m", 1, switch=True)
    assert all_bits(caught_up(one)) == all_bits(caught_up(other))
    assert one.live.limit == told.aim.limit
    assert one.live.thresholds.tobytes() == told.thresholds.tobytes()


def test_a_common_threshold_is_restored_with_its_sums(tmp_path: Any, replica: Any) -> None:
    one = replica(f"sqlite:///{tmp_path}/xylem.db")
    database = ThresholdDatabase(one.database)
    database.save("m", 1, begun("instance"))
    one.send(*some_events(9, 1))
    before = all_bits(one)
    one.send(*some_events(9, 2))
    database.save("m", 1, begun("macro"))
    assert caught_up(one).live.limit is None
    database.restore("m", 1, before[3])
    after = all_bits(caught_up(one))
    assert (after[:3], after[4:]) == (before[:3], before[4:])
