"""Writer and follower of feedback go on, whatever becomes of a block
or of the database; thresholds move.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import text
from tests.conftest import together
from tests.helpers.feedback_helpers import (
    N_FEATURES,
    N_LABELS,
    Event,
    Replica,
    as_columns,
    columns,
    instance_event,
    labels_of,
    predictor,
    token_event,
)
from tests.helpers.small_models import small_draft

from xylem.base.db.names import EVENT_KEY_BYTES
from xylem.base.errors import BadParameter, DatabaseUnavailable, Overloaded, Unavailable
from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.live import feedback
from xylem.thresholds.live import follower as follower_module
from xylem.thresholds.live import served as live_module
from xylem.thresholds.live.events import event_keys, join
from xylem.thresholds.live.feedback import FeedbackWriter
from xylem.thresholds.live.follower import Follower
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.store import codec
from xylem.thresholds.store.codec import Deltas, Tuned
from xylem.thresholds.store.state import Head
from xylem_store.store import Store


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = Replica(f"sqlite:///{tmp_path}/xylem.db")
    yield made
    made.close()


A, B, C = (token_event(name, [1], []) for name in "abc")


def ends(call: Callable[[], None]) -> bool:
    """Whether a call comes to an end."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(120.0)
    return not thread.is_alive()


def test_a_block_for_which_nobody_waits_any_more_is_left_out(replica: Replica) -> None:
    """A client that breaks off a stream takes its blocks back, if they are still waiting."""
    writer, live = replica.writer, replica.live
    with live.lock:  # the writer waits with the first
        first = writer.submit(live, columns(A), may_wait=True)
        while writer._blocks:
            pass
        assert writer.submit(live, columns(B), may_wait=True).cancel()
    assert first.result(300) == ["applied"]
    assert replica.send(A, B) == ["duplicate", "applied"]
    assert writer._n_waiting == 0


def test_the_queue_of_events_at_its_limit_and_one_more(replica: Replica) -> None:
    """A block that is longer is taken when nothing waits: or it
    would be told to come again for ever.
    """
    writer, live = FeedbackWriter(replica.database, queue_max=3, days_max=30), replica.live
    with live.lock:  # the writer waits with the first
        handed = [writer.submit(live, columns(A, B, C, *[A] * 5), may_wait=False)]
        while writer._blocks:
            pass
        handed += [
            writer.submit(live, columns(*events), may_wait=False) for events in ([A, B], [C])
        ]
        with pytest.raises(Overloaded, match="at most 3 events"):
            writer.submit(live, columns(A), may_wait=False)
        handed.append(writer.submit(live, columns(B), may_wait=True))  # a stream, block after block
    assert [len(one.result(300)) for one in handed] == [8, 2, 1, 1]
    writer.close()


def test_a_writer_that_is_closed_takes_nothing(replica: Replica) -> None:
    replica.send(A)
    replica.writer.close()
    with pytest.raises(Unavailable, match="writer"):
        replica.send(B)


@pytest.mark.parametrize("halve_events", [None, 10_000])
def test_a_label_may_get_more_than_an_entry_of_the_log_holds(
    tmp_path: Path, halve_events: int | None
) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    one, other = Replica(url, halve_events), Replica(url)
    n = codec.DELTA_MAX // 2 + 100
    [key] = event_keys("m", ["a"])
    events = as_columns([Event(key, labels_of(1), None, labels_of(1), 0)], N_FEATURES, N_LABELS)
    keys = [i.to_bytes(EVENT_KEY_BYTES, "little") for i in range(n)]
    many = join([events._replace(keys=[key]) for key in keys])
    assert one.writer.submit(one.live, many, may_wait=False).result(300) == ["applied"] * n
    if halve_events is None:
        assert one.live.snapshot().counters.marks[1] == 2 * n
    other.catch_up()
    assert other.bits() == one.bits()
    one.close()
    other.close()


def test_a_writer_goes_on_that_cannot_keep_house(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BadParameter("expected an epoch that is kept")

    monkeypatch.setattr(feedback, "forget_events", fail)
    for i in range(3):
        replica.writer._forget_at = 0.0
        assert replica.send(token_event(f"e{i}", [1], [2])) == ["applied"]


def test_thresholds_are_stale_if_a_database_hangs(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    for module in (follower_module, live_module):
        monkeypatch.setattr(module, "time", clock)
    follower = Follower(replica.database, 5.0, lambda: None)
    assert replica.live.is_stale is False  # it is not followed
    follower.add(replica.live)
    assert replica.live.is_stale is False
    now += 5.0 + follower_module.HANG_SECONDS
    assert replica.live.is_stale is False
    now += 0.1  # the look that is due has not come back
    assert replica.live.is_stale is True
    follower.look()
    assert replica.live.is_stale is False


def test_a_database_that_fails_is_said_once(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own thread, and one that opens a version, may both ask at once."""
    both, said = threading.Barrier(2), []

    def read() -> None:
        both.wait(120)
        raise DatabaseUnavailable("gone")

    def log(_: int, event: str, **fields: object) -> None:
        time.sleep(0.1)  # the other one finds the same meanwhile
        said.append(event)

    monkeypatch.setattr(replica.database, "read", read)
    monkeypatch.setattr(follower_module, "log", log)
    follower = Follower(replica.database, 60.0, lambda: None)
    together(follower.look, follower.look)
    assert said == ["database_failed"]
    assert follower.fault == "gone"


def test_nothing_waits_for_a_database_that_hangs(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "HANG_SECONDS", 0.1)
    gate = threading.Event()
    follower = Follower(replica.database, 0.01, gate.wait)
    follower.start()
    time.sleep(0.3)
    assert ends(lambda: follower.add(replica.live)), "a version waits for the database"
    assert replica.live in follower.followed
    assert ends(follower.close), "the service does not stop"
    gate.set()


def test_a_writer_closes_while_the_database_hangs(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "CLOSE_SECONDS", 0.1)
    with replica.live.lock:  # the writer does not get on
        waiting = replica.writer.submit(replica.live, columns(A), may_wait=True)
        assert ends(replica.writer.close), "the service does not stop"
        assert not waiting.done()
    assert waiting.result(300) == ["applied"]


def test_a_follower_goes_on_whatever_is_in_the_log(replica: Replica) -> None:
    """SQLite keeps text where bytes belong, if somebody put it there."""
    follower = Follower(replica.database, 60.0, lambda: None)
    behind, other = (Replica(str(replica.database._engine.url)) for _ in range(2))
    replica.send(A)
    behind.catch_up()
    replica.send(B)
    with replica.database.write() as connection:
        connection.execute(text("UPDATE threshold_log SET payload = 'text'"))
    other.live.version = 2
    for live in (behind.live, other.live):
        follower.add(live)
    follower.look()
    assert (behind.live.is_stale, behind.live.epoch) == (True, 2)
    assert other.live.is_stale is False
    behind.close()
    other.close()


def test_thresholds_that_cannot_be_read_leave_the_others_alone(database_url: str) -> None:
    """Of a version whose log and checkpoints are gone the last
    thresholds stay, and are said to be stale.
    """
    one, other, third = (Replica(database_url) for _ in range(3))
    other.live.version = third.live.version = 2
    follower = Follower(other.database, 60.0, lambda: None)
    one.send(A)
    third.send(B)
    with one.database.write() as connection:
        for table in ("threshold_log", "threshold_checkpoints"):
            connection.execute(text(f"DELETE FROM {table} WHERE version_id = 1"))
    lost = Replica(database_url)
    follower.add(lost.live)
    follower.add(other.live)
    follower.look()
    assert (lost.live.is_stale, lost.live.epoch) == (True, 0)
    assert (other.live.is_stale, other.live.epoch) == (False, third.live.epoch)
    assert follower.fault is None
    with pytest.raises(DatabaseUnavailable, match="expected an epoch that is kept"):
        lost.send(C)
    assert other.send(C) == ["applied"]
    for replica in (one, other, third, lost):
        replica.close()


def random_event(rng: np.random.Generator, name: str, n_labels: int = N_LABELS) -> Event:
    """An event with up to three true labels and as many predicted ones."""
    return token_event(name, *(rng.integers(0, n_labels, 3).tolist() for _ in range(2)))


def test_no_label_is_lost_while_thresholds_move(replica: Replica) -> None:
    """A label whose score reaches its old and its new threshold is in every answer."""
    replica.send(token_event("begin", [0], [0]))
    live, engine, rng = replica.live, predictor(), np.random.default_rng(1)
    surely: set[int] = set()
    while not surely:
        values = rng.standard_normal(N_FEATURES).astype(np.float32)
        row = SparseRows(
            np.array([0, N_FEATURES]), np.arange(N_FEATURES, dtype=np.int32), values, N_FEATURES
        )
        found = engine.predict(row, PredictOptions(top_r=N_LABELS, exact=True))
        surely = set(found.labels[found.scores > 0.5].tolist())  # thresholds are at most a half
    stop = threading.Event()

    def move() -> None:
        own = np.random.default_rng(2)
        while not stop.is_set():
            with live.lock:
                live.served.count(columns(random_event(own, "e")), np.zeros(1, np.int64))
                live.served.keep()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(2000):
            answer = engine.predict(
                row, PredictOptions(top_r=N_LABELS, exact=True, threshold=live.prepared)
            )
            assert surely <= set(answer.labels.tolist())
    finally:
        stop.set()
        mover.join()
    replica.bits()


@pytest.mark.parametrize("halved", [(), (0, 70), (199,)])
def test_what_is_undone_leaves_the_same_bits(replica: Replica, halved: tuple[int, ...]) -> None:
    replica.send(token_event("begin", [0, 5], [0, 3]))
    before, rng = replica.bits(), np.random.default_rng(3)
    with replica.live.lock:
        for i in range(200):
            replica.live.served.count(columns(random_event(rng, "e")), np.zeros(1, np.int64))
            if i in halved:
                replica.live.served.halve()
        assert replica.bits() != before
        replica.live.served.undo()
    assert replica.bits() == before


def untouched(n_labels: int) -> Tuned:
    return Tuned("ofo", "one", Start(), np.full(n_labels, 0.25, np.float32), no_counts(n_labels))


DELTAS = Deltas(labels_of(3, 7), labels_of(0, 9), labels_of(1, 20), np.float32([0.5, 0.25]))


def test_states_and_deltas_come_back_as_they_were() -> None:
    marks = np.random.default_rng(4).integers(0, 1 << 40, 50)
    counters = Counters(marks // 3, marks)
    thresholds = thresholds_of(counters, Start(2.0, 9.0), lower_bounds(None, 0, 50))
    tuned = Tuned("fta", "zero", Start(2.0, 9.0), thresholds, counters)
    found = codec.decode_state(codec.encode_state(tuned))
    assert found[:3] == tuned[:3]
    again = codec.decode_deltas(codec.encode_deltas(DELTAS), 8)
    for arrays, expected in (
        ((found.thresholds, *found.counters), (thresholds, *counters)),
        (again, DELTAS),
    ):
        assert [array.tolist() for array in arrays] == [array.tolist() for array in expected]


def test_damaged_bytes_and_the_state_of_another_model_are_refused(replica: Replica) -> None:
    with pytest.raises(DatabaseUnavailable, match="another store's"):
        replica.live.replace(untouched(N_LABELS + 1), Head(1, "m", 1, 1, 1, 0))
    data, deltas = codec.encode_state(untouched(4)), codec.encode_deltas(DELTAS)
    for damaged in (b"", data[:-1], data.replace(b'"n_labels": 4', b'"n_labels": 5'), data[1:]):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_state(damaged)
    for damaged, n_labels in ((deltas, 7), (deltas[:-1], 8), (deltas[::-1], 8)):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_deltas(damaged, n_labels)


@pytest.mark.parametrize("kind", ["label-tree", "decision-tree"])
def test_a_block_is_counted_as_its_events_are_one_by_one(tmp_path: Path, kind: str) -> None:
    """Each event is predicted under the thresholds that those before it
    left; the journal grows meanwhile.
    """
    link = "hinge3" if kind == "label-tree" else "argmax"
    store = Store(tmp_path / "store")
    store.publish("m", small_draft(5, n_labels=60, n_features=N_FEATURES, kind=kind, link=link))
    engine, start, rng = make_predictor(store.open("m")), Start(1.0, 30.0), np.random.default_rng(6)
    bounds = lower_bounds(None, 0, 60)
    begun = Tuned("ofo", "one", start, thresholds_of(no_counts(60), start, bounds), no_counts(60))
    moving = ThresholdCounters(begun, engine, np.empty(0, np.int64), 0)
    events = [
        instance_event(f"e{i}", rng.integers(0, 60, 3).tolist(), i)
        if i % 5
        else random_event(rng, f"e{i}", 60)
        for i in range(120)
    ]
    chosen = np.flatnonzero(rng.random(120) < 0.9)
    ends = moving.count(as_columns(events, N_FEATURES, 60), chosen)

    counters, n_touched = no_counts(60), [0]
    thresholds = thresholds_of(counters, start, bounds)
    for event in (events[i] for i in chosen):
        predicted = event.predicted
        if event.row is not None:
            prepared = engine.node_thresholds(thresholds)
            options = PredictOptions(top_r=60, exact=True, threshold=prepared)
            predicted = engine.predict(event.row, options).labels
        counters.hits[np.intersect1d(event.labels, predicted)] += 1
        for labels in (event.labels, predicted):
            counters.marks[labels] += 1
        thresholds = thresholds_of(counters, start, bounds)
        n_touched.append(n_touched[-1] + len(np.union1d(event.labels, predicted)))
    assert ends.tolist() == n_touched
    assert ends[-1] > 512  # the journal has grown twice
    found = moving.snapshot()
    assert found.thresholds.tobytes() == thresholds.tobytes()
    assert [c.tolist() for c in found.counters] == [c.tolist() for c in counters]
    assert moving.prepared.tobytes() == engine.node_thresholds(thresholds).tobytes()
    moving.undo()
    assert (
        moving.snapshot().thresholds.tobytes()
        == thresholds_of(no_counts(60), start, bounds).tobytes()
    )
