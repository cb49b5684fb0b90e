"""R15 and R24: replicas over one database against the algorithm as
the paper writes it, event by event.

Their counters, candidates beside thresholds in force, and forgetting.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from tests.helpers.feedback_helpers import (
    N_LABELS,
    Event,
    Replica,
    instance_event,
    predictor,
    put_candidate,
    token_event,
)

from xylem.base.errors import BadParameter, DatabaseUnavailable, NotTuned
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.live.shadow import take_shadow
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase

BOUNDS = lower_bounds(None, 0, N_LABELS)


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    """What opens a replica over the database of a URL; in the end all are closed."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments: opened.enter_context(contextlib.closing(Replica(*arguments)))


def state(a: float, b: float, empty: Any = "zero") -> Tuned:
    start, counters = Start(a, b), no_counts(N_LABELS)
    return Tuned("ofo", empty, start, thresholds_of(counters, start, BOUNDS), counters)


def some_labels(rng: random.Random) -> list[int]:
    return rng.sample(range(N_LABELS), rng.randint(0, 4))


def some_events(n: int, seed: int) -> list[Event]:
    """Events, one in four of them with the labels predicted before instead of an instance."""
    rng = random.Random(seed)
    return [
        token_event(
            f"e{seed}-{i}", rng.sample(range(N_LABELS), 2), rng.sample(range(N_LABELS), 3), 1
        )
        if i % 4 == 3
        else instance_event(f"e{seed}-{i}", some_labels(rng), seed + i)
        for i in range(n)
    ]


class Reference:
    """One set of thresholds as the algorithm moves it: in the order of
    events, all of them anew each time.
    """

    def __init__(self, start: Start = Start()) -> None:
        self.start = start
        self.hits, self.marks = [0] * N_LABELS, [0] * N_LABELS
        self.thresholds = thresholds_of(no_counts(N_LABELS), start, BOUNDS)

    def predict(self, event: Event) -> list[int]:
        prepared = predictor().node_thresholds(self.thresholds)
        options = PredictOptions(top_r=N_LABELS, exact=True, threshold=prepared)
        return sorted(predictor().predict(event.row, options).labels.tolist())

    def count(self, true: list[int], predicted: list[int]) -> None:
        for label in {*true, *predicted}:
            self.hits[label] += label in true and label in predicted
            self.marks[label] += (label in true) + (label in predicted)
            hits, marks = np.array([self.hits[label]]), np.array([self.marks[label]])
            self.thresholds[label] = thresholds_of(Counters(hits, marks), self.start, BOUNDS[:1])[0]

    def halve(self) -> None:
        self.hits, self.marks = (
            [count // 2 for count in counts] for counts in (self.hits, self.marks)
        )

    @property
    def counters(self) -> Counters:
        return Counters(np.array(self.hits, np.int64), np.array(self.marks, np.int64))

    def is_like(self, tuned: Tuned) -> bool:
        counters = (self.hits, self.marks) == (
            tuned.counters.hits.tolist(),
            tuned.counters.marks.tolist(),
        )
        return counters and self.thresholds.tobytes() == tuned.thresholds.tobytes()


class Oracle(Reference):
    """What the database must hold: counters by label, the ids that
    counted, and the state of every epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.epochs: dict[int, tuple[list[int], list[int]]] = {}

    def count_once(self, name: str, true: list[int], predicted: list[int]) -> str:
        if name in self.seen:
            return "duplicate"
        self.seen.add(name)
        self.count(true, predicted)
        return "applied"

    def remember(self, epoch: int) -> None:
        self.epochs[epoch] = [*self.hits], [*self.marks]

    def restore(self, epoch: int, new: int) -> None:
        self.hits, self.marks = map(list, self.epochs[epoch])
        self.remember(new)

    def check(self, replica: Replica) -> None:
        replica.catch_up()
        state = replica.live.snapshot()
        assert [counts.tolist() for counts in state.counters] == [self.hits, self.marks]
        assert np.array_equal(state.thresholds, thresholds_of(self.counters, state.start, BOUNDS))


@pytest.mark.parametrize("seed", range(2))
def test_replicas_against_a_dictionary(database_url: str, replica: Replica, seed: int) -> None:
    rng, oracle = random.Random(seed), Oracle()
    replicas = [replica(database_url) for _ in range(3)]
    base = 0
    for step in range(60):
        one = rng.choice(replicas)
        action = rng.random()
        if action < 0.75:
            block = [
                (f"e{rng.randrange(2 * step + 5)}", some_labels(rng), some_labels(rng))
                for _ in range(rng.randint(1, 6))
            ]
            outcome = one.send(*(token_event(*event, epoch=one.live.epoch) for event in block))
            if (
                base > 0 and "late" in outcome
            ):  # it had not seen what replaced the thresholds: none counts
                assert set(outcome) == {"late"}
            else:
                assert outcome == [oracle.count_once(*event) for event in block]
                if not oracle.epochs:
                    oracle.epochs[1] = [0] * N_LABELS, [0] * N_LABELS
                oracle.remember(one.live.epoch)
        elif action < 0.85 and oracle.epochs:
            epoch = rng.choice(list(oracle.epochs))
            base = ThresholdDatabase(one.database).restore("m", 1, epoch)
            oracle.restore(epoch, base)
        elif oracle.epochs:
            oracle.check(one)
    for one in replicas:
        oracle.check(one)
    assert len({one.bits() for one in replicas}) == 1
    with pytest.raises(BadParameter):
        ThresholdDatabase(replicas[0].database).restore("m", 1, 10_000)


def test_a_stream_of_instances_ends_where_the_offline_run_does(
    database_url: str, replica: Replica
) -> None:
    rng, one, offline = random.Random(9), replica(database_url), Reference(Start(2.0, 9.0))
    events = [instance_event(f"e{i}", some_labels(rng), i) for i in range(150)]
    ThresholdDatabase(one.database).save("m", 1, state(2.0, 9.0, "one"))
    for first in range(0, len(events), 7):
        one.send(*events[first : first + 7])
    for event in events:
        offline.count(event.labels.tolist(), offline.predict(event))
    assert offline.is_like(one.live.snapshot())
    assert sum(offline.hits) > 20
    one.bits()


def shadow_bits(replica: Replica) -> tuple[object, ...]:
    """Everything of a candidate that replicas must agree on, and that it is ready to predict."""
    shadow = replica.live.shadow
    assert shadow is not None
    candidate = shadow.candidate.snapshot()
    assert np.array_equal(
        shadow.candidate.prepared, predictor().node_thresholds(candidate.thresholds)
    )
    scores = tuple(c.tobytes() for counters in shadow.scores for c in counters)
    counters = tuple(c.tobytes() for c in candidate.counters)
    return candidate.thresholds.tobytes(), counters, scores, shadow.n_events, shadow.since


def check_alike(*replicas: Replica) -> None:
    """The replicas agree, once each has read what others wrote."""
    for replica in replicas:
        replica.catch_up()
    assert len({(replica.bits(), shadow_bits(replica)) for replica in replicas}) == 1


@pytest.mark.parametrize("halve_events", [None, 10])
def test_a_candidate_is_scored_and_switched_on(
    database_url: str, replica: Replica, halve_events: int | None
) -> None:
    one, other = (replica(database_url, halve_events) for _ in range(2))
    ThresholdDatabase(one.database).save("m", 1, state(1, 2))
    served, candidate = Reference(Start(1, 2)), Reference(Start(1, 20))
    scores = Reference(), Reference()  # of the candidate, and of what is served
    rng = random.Random(0)
    for n, event in enumerate(events := some_events(50, 3), 1):
        if n == 10:
            assert put_candidate(one.database, 1, state(1, 20)) == one.live.epoch + 1
        true, is_scored = event.labels.tolist(), n >= 10 and event.predicted is None
        (rng.choice((one, other)) if is_scored else one).send(event)
        predicted = served.predict(event) if event.predicted is None else event.predicted.tolist()
        if is_scored:
            would = candidate.predict(event)
            scores[0].count(true, would)
            scores[1].count(true, predicted)
            candidate.count(true, would)
        served.count(true, predicted)
        if halve_events and n % halve_events == 0:
            served.halve()
            candidate.halve()
        if n == 40:
            other.catch_up()
    replicas = one, other, replica(database_url)
    check_alike(*replicas)
    shadow = other.live.shadow
    assert shadow is not None
    assert served.is_like(other.live.snapshot())
    assert candidate.is_like(shadow.candidate.snapshot())
    assert shadow.n_events == sum(event.row is not None for event in events[9:])
    assert [[c.tolist() for c in pair] for pair in shadow.scores] == [
        [s.hits, s.marks] for s in scores
    ]
    assert shadow.macro_f() == tuple(s.counters.macro_f("zero") for s in scores)
    before = other.live.epoch
    assert take_shadow(one.database, "m", 1, switch=True) == before + 1
    for each in replicas:
        each.catch_up()
        assert each.live.shadow is None
        assert candidate.is_like(each.live.snapshot())
    assert one.send(token_event("late", [1], [1], before)) == ["late"]
    with pytest.raises(NotTuned, match="candidate"):
        take_shadow(one.database, "m", 1, switch=True)


def test_a_candidate_is_dropped_and_the_thresholds_in_force_stay(
    database_url: str, replica: Replica
) -> None:
    one, other = replica(database_url), replica(database_url)
    with pytest.raises(NotTuned, match="in force"):
        put_candidate(one.database, 1, state(1, 9))
    one.send(*some_events(5, 1))
    put_candidate(one.database, 1, state(1, 9))
    one.send(*some_events(5, 2))
    epoch = one.live.epoch
    other.catch_up()
    assert other.live.shadow is not None
    before = other.live.snapshot().thresholds.tobytes()
    put_candidate(one.database, 1, state(1, 5))  # another takes its place, and begins anew
    check_alike(one, other)
    assert one.live.shadow is not None
    assert one.live.shadow.n_events == 0
    assert take_shadow(one.database, "m", 1, switch=False) == epoch + 2
    for each in (one, other):
        each.catch_up()
        assert each.live.shadow is None
        assert each.live.snapshot().thresholds.tobytes() == before
    with pytest.raises(NotTuned, match="candidate"):
        take_shadow(one.database, "m", 1, switch=False)
    assert ThresholdDatabase(one.database).restore("m", 1, epoch) == epoch + 3
    other.catch_up()
    assert other.bits()[0] == before


def test_the_log_that_a_candidate_needs_is_kept(
    database_url: str, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.thresholds.live.feedback.CHECKPOINT_EPOCHS", 5)
    monkeypatch.setattr("xylem.thresholds.store.state.CHECKPOINTS_MAX", 3)
    one = replica(database_url, 4)
    one.send(*some_events(3, 1))
    put_candidate(one.database, 1, state(1, 9))
    for event in some_events(40, 2):
        one.send(event)
    ThresholdDatabase(one.database).save("m", 1, state(1, 3))
    for event in some_events(9, 7):
        one.send(event)
    check_alike(one, replica(database_url))
    with one.database.read() as connection:
        logged = connection.execute(text("SELECT count(*) FROM threshold_log")).scalar_one()
    assert logged < one.live.epoch / 2


def test_a_failed_commit_leaves_candidate_and_counters(replica: Replica, tmp_path: object) -> None:
    one = replica(f"sqlite:///{tmp_path}/xylem.db", 3)
    one.send(*some_events(5, 1))
    put_candidate(one.database, 1, state(1, 9))
    one.send(*some_events(4, 2))
    before, shadow = one.bits(), shadow_bits(one)
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_log RENAME TO elsewhere"))
    with pytest.raises(DatabaseUnavailable):
        one.send(*some_events(12, 3))
    assert (one.bits(), shadow_bits(one)) == (before, shadow)
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO threshold_log"))
    assert one.send(*some_events(12, 3)) == ["applied"] * 12
    assert one.bits() != before


def test_forgetting_does_not_depend_on_how_events_are_grouped(
    replica: Replica, tmp_path: object
) -> None:
    events = some_events(60, 5)
    ends = set()
    for size in (1, 7, 60):
        one = replica(f"sqlite:///{tmp_path}/{size}.db", 8)
        for first in range(0, len(events), size):
            one.send(*events[first : first + size])
        ends.add(one.bits()[:3])
        marks = one.live.snapshot().counters.marks
        assert marks.sum() < 8 * 2 * 7  # the last eight events, and as much of all before, at most
    assert len(ends) == 1
