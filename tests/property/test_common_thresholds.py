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
from sqlalchemy import text, update
from tests.helpers.feedback_helpers import (
    N_LABELS,
    Event,
    Replica,
    columns,
    instance_event,
    predictor,
    put_candidate,
    token_event,
)

from xylem.base import no_progress
from xylem.base.db.tables import CHECKPOINTS, LOG
from xylem.base.errors import DatabaseUnavailable
from xylem.base.rows import SparseRows
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.live.shadow import take_shadow
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.aims import LIMITS, N_SUMS, PROBABILITIES, UNIT, Aim
from xylem.thresholds.methods.ofo import Start, lower_bounds
from xylem.thresholds.store import codec
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.thresholds.tuning import learn

BOUNDS = lower_bounds(None, 0, N_LABELS)
START = Start(2.0, 9.0, 0.7, 1.25)


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    """What opens a replica over the database of a URL; in the end all are closed."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments: opened.enter_context(contextlib.closing(Replica(*arguments)))


def begun(objective: Any, empty: Any = "zero", start: Start = START) -> Tuned:
    return Tuned.begin(objective, empty, start, BOUNDS)


def some_events(n: int, seed: int) -> list[Event]:
    """Events; one in five has the labels predicted before, and some have no true label."""
    rng = random.Random(seed)
    events = []
    for i in range(n):
        true = rng.sample(range(N_LABELS), rng.choice([0, 1, 1, 2, 3, 5]))
        predicted = rng.sample(range(N_LABELS), 3)
        with_row = instance_event(f"e{seed}-{i}", true, 100 * seed + i)
        events.append(token_event(f"e{seed}-{i}", true, predicted, 1) if i % 5 == 4 else with_row)
    return events


def ranked(event: Event) -> list[tuple[int, np.float32]]:
    """Return all labels of an event's row with their scores, the best first."""
    options = PredictOptions(top_r=N_LABELS, threshold=0.0)
    found = predictor().predict(event.row, options)
    return list(zip(found.labels.tolist(), found.scores, strict=True))


class Slow:
    """A common threshold as the sources say it, all of it computed anew for each event."""

    def __init__(self, objective: str, empty: str = "zero") -> None:
        self.objective = objective
        self.empty = UNIT if empty == "one" else 0
        self.hits, self.marks = [0] * N_LABELS, [0] * N_LABELS
        self.n_rows, self.sums = 0, {}
        for probability in PROBABILITIES:
            for limit in LIMITS:
                self.sums[probability, limit] = 0

    def score_of(self, probability: float) -> np.float32:
        return np.float32(probability ** (1 / START.power) / START.scale)

    def rule(self) -> tuple[np.float32, int]:
        """Return the threshold, a score, and the limit."""
        if self.objective == "micro":
            half_f = (START.a + sum(self.hits)) / (START.b + sum(self.marks))
            return self.score_of(max(half_f, float(np.float32(0.01)))), LIMITS[-1]
        best = max(self.sums.values())
        probability, limit = next(pair for pair, f in self.sums.items() if f == best)
        return self.score_of(probability), limit

    def predict(self, event: Event, threshold: np.float32, limit: int) -> list[int]:
        return [label for label, score in ranked(event)[:limit] if score >= threshold]

    def count(self, event: Event, denied: set[int] = frozenset()) -> None:
        true = {*event.labels.tolist()} - denied
        if event.row is None:
            predicted = {*event.predicted.tolist()} - denied
        else:
            predicted = {*self.predict(event, *self.rule())}
            self.n_rows += 1
            for probability, limit in self.sums:
                labels = {*self.predict(event, self.score_of(probability), limit)}
                n_marks = len(labels) + len(true)
                f = 2 * len(labels & true) * UNIT // n_marks if n_marks else self.empty
                self.sums[probability, limit] += f
        for label in true | predicted:
            self.hits[label] += label in true & predicted
            self.marks[label] += (label in true) + (label in predicted)

    def halve(self) -> None:
        self.hits, self.marks = ([n // 2 for n in counts] for counts in (self.hits, self.marks))
        self.sums = {pair: f // 2 for pair, f in self.sums.items()}
        self.n_rows //= 2

    def check(self, tuned: Tuned) -> None:
        threshold, limit = self.rule()
        assert tuned.counters.hits.tolist() == self.hits
        assert tuned.counters.marks.tolist() == self.marks
        assert tuned.aim.sums.tolist() == [self.n_rows, *self.sums.values()]
        np.testing.assert_allclose(tuned.thresholds, threshold, rtol=2e-7)
        assert len({*tuned.thresholds.tolist()}) == 1
        assert tuned.aim.limit == limit


def all_bits(replica: Replica) -> tuple[Any, ...]:
    aim = replica.live.snapshot().aim
    assert replica.live.limit == aim.limit
    return *replica.bits(), aim.objective, aim.limit, aim.sums.tobytes()


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


def caught_up(one: Replica) -> Replica:
    one.catch_up()
    return one


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


def test_an_older_release_serves_beside(tmp_path: Any, replica: Any) -> None:
    """It logs labels' thresholds and no sums, and checkpoints without an objective."""
    url = f"sqlite:///{tmp_path}/xylem.db"
    one = replica(url)
    ThresholdDatabase(one.database).save("m", 1, begun("instance"))
    events = some_events(12, 1)
    one.send(*events[:6])
    one.send(*events[6:9])
    sums = one.live.snapshot().aim.sums.tolist()
    older = one.live.snapshot()._replace(aim=Aim.begin("macro"))
    head = codec.encode_state(older).split(b"\n", 2)[1]
    plain = codec.json.loads(head)
    for name in ("objective", "limit", "sums"):
        del plain[name]
    state = codec.encode_state(older).replace(head, codec.json.dumps(plain).encode())
    assert codec.decode_state(state).aim.objective == "macro"
    with one.database.write() as connection:
        connection.execute(
            CHECKPOINTS.insert(),
            {
                "version_id": 1,
                "epoch": one.live.epoch,
                "kind": "kept",
                "created_at": 0.0,
                "state": state,
                "objective": None,
            },
        )
    one.send(*events[9:])
    with one.database.write() as connection:
        connection.execute(update(LOG).where(LOG.c.epoch == one.live.epoch).values(sums=None))
    found = caught_up(replica(url)).live.snapshot()
    assert found.aim.objective == "instance"
    assert found.aim.sums.tolist() == sums
    assert found.counters.marks.tolist() == one.live.snapshot().counters.marks.tolist()
    ThresholdDatabase(one.database).save("m", 1, older)  # for macro-F again, by the older release
    with one.database.write() as connection:
        connection.execute(
            update(CHECKPOINTS)
            .where(CHECKPOINTS.c.epoch == one.live.epoch + 1)
            .values(objective=None, state=state)
        )
    found = caught_up(replica(url)).live.snapshot()
    assert found.aim.objective == "macro"
    assert found.thresholds.tobytes() == older.thresholds.tobytes()


def test_columns_are_added_to_an_older_database(tmp_path: Any, replica: Any) -> None:
    url = f"sqlite:///{tmp_path}/xylem.db"
    one = replica(url)
    ThresholdDatabase(one.database).save("m", 1, begun("macro"))
    one.send(*some_events(5, 1))
    before = one.bits()
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_log DROP COLUMN sums"))
        connection.execute(text("ALTER TABLE threshold_checkpoints DROP COLUMN objective"))
    other = caught_up(replica(url))
    assert other.bits() == before
    assert other.live.snapshot().aim.objective == "macro"
    other.send(*some_events(5, 2))
    assert caught_up(replica(url)).bits() == other.bits()


def test_aims_and_sums_come_back_as_they_were() -> None:
    sums = np.arange(N_SUMS, dtype=np.int64)
    for objective, limit in (("macro", None), ("micro", 50), ("instance", 1)):
        aim = Aim(objective, limit, sums * (objective != "macro"))
        found = codec.decode_state(codec.encode_state(begun(objective)._replace(aim=aim))).aim
        assert (found[:2], found.sums.tolist()) == (aim[:2], aim.sums.tolist())
    for damaged in (
        Aim("other", 1, sums),
        Aim("micro", None, sums),
        Aim("instance", 0, sums),
        Aim("macro", 4, sums),
        Aim("instance", 4, sums[1:]),
    ):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_state(codec.encode_state(begun("macro")._replace(aim=damaged)))
    nothing = codec.NO_SUMS
    assert codec.encode_sums(nothing, nothing) is None
    data = codec.encode_sums(sums, 2 * sums)
    assert [each.tolist() for each in codec.decode_sums(data)] == [
        sums.tolist(),
        (2 * sums).tolist(),
    ]
    assert [each.any() for each in codec.decode_sums(None)] == [False, False]
    for damaged in (b"", data[:-1], codec.zlib.compress(b"\0" * 16)):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_sums(damaged)
