"""Writer and follower of feedback go on, whatever becomes of a block or of the database."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from tests.conftest import together
from tests.helpers.calls_that_end import ends
from tests.helpers.feedback_helpers import (
    N_FEATURES,
    N_LABELS,
    Event,
    Replica,
    as_columns,
    columns,
    labels_of,
    token_event,
)

from xylem.base.db.names import EVENT_KEY_BYTES
from xylem.base.errors import BadParameter, DatabaseUnavailable, Overloaded, Unavailable
from xylem.thresholds.live import feedback, follower as follower_module, served as live_module
from xylem.thresholds.live.events import event_keys, join
from xylem.thresholds.live.feedback import FeedbackWriter
from xylem.thresholds.live.follower import Follower
from xylem.thresholds.store import codec

A, B, C = (token_event(name, [1], []) for name in "abc")


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
