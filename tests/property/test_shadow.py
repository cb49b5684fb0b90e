"""Shadow mode and forgetting: replicas over one database against the algorithm, event by event."""

import random

import numpy as np
import pytest
from sqlalchemy import text

from service.base.errors import DatabaseUnavailable, NotTuned
from service.thresholds.live.shadow import take_shadow
from service.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from service.thresholds.store.codec import (
    Deltas,
    Scored,
    Tuned,
    decode_scored,
    decode_scores,
    encode_scored,
    encode_scores,
)
from service.thresholds.store.state import ThresholdDatabase
from tests.feedback_helpers import (
    N_LABELS,
    Event,
    Replica,
    instance_event,
    labels_of,
    predicted_at,
    predictor,
    put_candidate,
    token_event,
)

BOUNDS = lower_bounds(None, 0, N_LABELS)


def state(a: float, b: float) -> Tuned:
    start, counters = Start(a, b), no_counts(N_LABELS)
    return Tuned("ofo", "zero", start, thresholds_of(counters, start, BOUNDS), counters)


def some_events(n: int, seed: int) -> list[Event]:
    """Events, one in four of them with the labels predicted before instead of an instance."""
    rng = random.Random(seed)
    return [
        token_event(f"e{seed}-{i}", rng.sample(range(N_LABELS), 2), rng.sample(range(N_LABELS), 3), 1)
        if i % 4 == 3
        else instance_event(f"e{seed}-{i}", rng.sample(range(N_LABELS), rng.randint(0, 4)), seed + i)
        for i in range(n)
    ]


class Reference:
    """One set of thresholds as the algorithm moves it: in the order of events, all of them anew each time."""

    def __init__(self, tuned: Tuned) -> None:
        self.start, self.thresholds = tuned.start, tuned.thresholds.copy()
        self.hits, self.marks = (counters.tolist() for counters in tuned.counters)

    def predict(self, event: Event) -> list[int]:
        assert event.row is not None
        return predicted_at(predictor().node_thresholds(self.thresholds), event.row)

    def count(self, true: list[int], predicted: list[int]) -> None:
        for label in {*true, *predicted}:
            self.hits[label] += label in true and label in predicted
            self.marks[label] += (label in true) + (label in predicted)
            hits, marks = np.array([self.hits[label]]), np.array([self.marks[label]])
            self.thresholds[label] = thresholds_of(Counters(hits, marks), self.start, BOUNDS[:1])[0]

    def halve(self) -> None:
        self.hits, self.marks = ([count // 2 for count in counts] for counts in (self.hits, self.marks))

    def is_like(self, tuned: Tuned) -> bool:
        counters = (self.hits, self.marks) == (tuned.counters.hits.tolist(), tuned.counters.marks.tolist())
        return counters and self.thresholds.tobytes() == tuned.thresholds.tobytes()


def shadow_bits(replica: Replica) -> tuple[object, ...]:
    """Everything of a candidate that replicas must agree on, and that it is ready to predict."""
    shadow = replica.live.shadow
    assert shadow is not None
    candidate = shadow.candidate.snapshot()
    assert np.array_equal(shadow.candidate.prepared, predictor().node_thresholds(candidate.thresholds))
    scores = tuple(c.tobytes() for counters in shadow.scores for c in counters)
    counters = tuple(c.tobytes() for c in candidate.counters)
    return candidate.thresholds.tobytes(), counters, scores, shadow.n_events, shadow.since


@pytest.mark.parametrize("halve_events", [None, 10])
def test_a_candidate_is_scored_and_switched_on(database_url: str, halve_events: int | None) -> None:
    replicas = [Replica(database_url, halve_events) for _ in range(2)]
    one, other = replicas
    ThresholdDatabase(one.database).save("m", 1, state(1, 2))
    served, candidate = Reference(state(1, 2)), Reference(state(1, 20))
    scores = Reference(state(1, 2)), Reference(state(1, 20))
    for event in (events := some_events(50, 3))[:9]:
        one.send(event)
        predicted = served.predict(event) if event.predicted is None else event.predicted.tolist()
        served.count(event.labels.tolist(), predicted)
    assert put_candidate(one.database, 1, state(1, 20)) == one.live.epoch + 1
    rng = random.Random(0)
    for n, event in enumerate(events[9:], 10):
        (one if event.predicted is not None else rng.choice(replicas)).send(event)
        true, has_row = event.labels.tolist(), event.predicted is None
        predicted = served.predict(event) if event.predicted is None else event.predicted.tolist()
        if has_row:
            would = candidate.predict(event)
            scores[0].count(true, predicted)
            scores[1].count(true, would)
            candidate.count(true, would)
        served.count(true, predicted)
        if halve_events and n % halve_events == 0:
            served.halve()
            candidate.halve()
        if n == 40:
            other.catch_up()
    fresh = Replica(database_url)
    for replica in (*replicas, fresh):
        replica.catch_up()
    assert len({replica.bits() for replica in (*replicas, fresh)}) == 1
    assert len({shadow_bits(replica) for replica in (*replicas, fresh)}) == 1
    shadow = other.live.shadow
    assert shadow is not None
    assert served.is_like(other.live.snapshot())
    assert candidate.is_like(shadow.candidate.snapshot())
    assert shadow.n_events == sum(event.row is not None for event in events[9:])
    found = [counters.tolist() for pair in shadow.scores[::-1] for counters in pair]
    assert found == [scores[0].hits, scores[0].marks, scores[1].hits, scores[1].marks]
    assert shadow.macro_f() == tuple(
        Counters(np.array(s.hits), np.array(s.marks)).macro_f("zero") for s in scores[::-1]
    )
    before = other.live.epoch
    assert take_shadow(one.database, "m", 1, switch=True) == before + 1
    for replica in (*replicas, fresh):
        replica.catch_up()
        assert replica.live.shadow is None
        assert candidate.is_like(replica.live.snapshot())
    assert one.send(token_event("late", [1], [1], before)) == ["late"]
    with pytest.raises(NotTuned, match="candidate"):
        take_shadow(one.database, "m", 1, switch=True)
    for replica in (*replicas, fresh):
        replica.close()


def test_a_candidate_is_dropped_and_the_thresholds_in_force_stay(database_url: str) -> None:
    one, other = Replica(database_url), Replica(database_url)
    with pytest.raises(NotTuned, match="in force"):
        put_candidate(one.database, 1, state(1, 9))
    one.send(*some_events(5, 1))
    put_candidate(one.database, 1, state(1, 9))
    one.send(*some_events(5, 2))
    epoch = one.live.epoch
    other.catch_up()
    assert other.live.shadow is not None
    before = other.live.snapshot()
    put_candidate(one.database, 1, state(1, 5))  # another takes its place, and begins anew
    for replica in (one, other):
        replica.catch_up()
        assert replica.live.shadow is not None
        assert replica.live.shadow.n_events == 0
    assert shadow_bits(one) == shadow_bits(other)
    assert take_shadow(one.database, "m", 1, switch=False) == epoch + 2
    for replica in (one, other):
        replica.catch_up()
        assert replica.live.shadow is None
        assert replica.live.snapshot().thresholds.tobytes() == before.thresholds.tobytes()
    with pytest.raises(NotTuned, match="candidate"):
        take_shadow(one.database, "m", 1, switch=False)
    assert ThresholdDatabase(one.database).restore("m", 1, epoch) == epoch + 3
    other.catch_up()
    assert other.bits()[0] == before.thresholds.tobytes()
    one.close()
    other.close()


def test_the_log_that_a_candidate_needs_is_kept(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.thresholds.live.feedback.CHECKPOINT_EPOCHS", 5)
    monkeypatch.setattr("service.thresholds.store.state.CHECKPOINTS_MAX", 3)
    one = Replica(database_url, halve_events=4)
    one.send(*some_events(3, 1))
    put_candidate(one.database, 1, state(1, 9))
    for event in some_events(40, 2):
        one.send(event)
    ThresholdDatabase(one.database).save("m", 1, state(1, 3))
    for event in some_events(9, 7):
        one.send(event)
    fresh = Replica(database_url)
    fresh.catch_up()
    assert fresh.bits() == one.bits()
    assert shadow_bits(fresh) == shadow_bits(one)
    with one.database.read() as connection:
        logged = connection.execute(text("SELECT count(*) FROM threshold_log")).scalar_one()
    assert logged < one.live.epoch / 2
    one.close()
    fresh.close()


def test_what_cannot_be_committed_leaves_candidate_and_counters_as_they_were(tmp_path: object) -> None:
    one = Replica(f"sqlite:///{tmp_path}/xylem.db", halve_events=3)
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
    one.close()


def test_forgetting_does_not_depend_on_how_events_are_grouped(tmp_path: object) -> None:
    events = some_events(60, 5)
    ends = set()
    for size in (1, 7, 60):
        one = Replica(f"sqlite:///{tmp_path}/{size}.db", halve_events=8)
        for first in range(0, len(events), size):
            one.send(*events[first : first + size])
        ends.add(one.bits()[:3])
        marks = one.live.snapshot().counters.marks
        assert marks.sum() < 8 * 2 * 7  # the last eight events, and as much of all before, at most
        one.close()
    assert len(ends) == 1


def test_scores_and_scored_blocks_come_back_as_they_were() -> None:
    parts = [
        Deltas(labels_of(*some), labels_of(*range(len(some))), labels_of(*range(len(some))), np.float32(th))
        for some, th in (((1, 2, 5), (0.5, 0.25, 1)), ((), ()), ((7,), (0.1,)))
    ]
    data = encode_scored(Scored(9, *parts))
    found = decode_scored(data, 8)
    assert found.n_events == 9
    for mine, other in zip(found[1:], parts, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))
    for damaged in (b"", data[:11], data[:-1], data + b"\0"):
        with pytest.raises(DatabaseUnavailable):
            decode_scored(damaged, 8)
    numbers = np.arange(12, dtype=np.int64).reshape(4, 3)
    scores = Counters(numbers[0], numbers[1]), Counters(numbers[2], numbers[3])
    packed = encode_scores(scores)
    assert np.array_equal(np.concatenate(decode_scores(packed, 3)), numbers)
    for damaged, n_labels in ((packed, 4), (packed, 2), (packed[:-1], 3), (b"", 3)):
        with pytest.raises(DatabaseUnavailable):
            decode_scores(damaged, n_labels)


def test_empty_labels_count_as_the_convention_says() -> None:
    counters = Counters(np.array([0, 1, 0]), np.array([0, 2, 3]))
    assert counters.macro_f("one") == pytest.approx(2 / 3)
    assert counters.macro_f("zero") == pytest.approx(1 / 3)
