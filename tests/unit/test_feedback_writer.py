"""The writer and the follower of feedback go on, whatever becomes of a block or of what the database has."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest
from sqlalchemy import text

from service.errors import BadParameter, DatabaseUnavailable, Overloaded
from service.thresholds import feedback
from service.thresholds.feedback import FeedbackWriter, Outcome
from service.thresholds.follower import Follower
from tests.databases import database_url, postgresql  # noqa: F401
from tests.feedback_helpers import Replica, columns, token_event


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(f"sqlite:///{tmp_path}/xylem.db")


def test_a_block_for_which_nobody_waits_any_more_is_left_out(replica: Replica) -> None:
    """A client that breaks off a stream takes its blocks back, if they are still waiting."""
    with replica.live.lock:  # the writer waits with the first
        first = replica.writer.submit(replica.live, columns(token_event("a", [1], [])), may_wait=True)
        while replica.writer._blocks:
            pass
        gone = replica.writer.submit(replica.live, columns(token_event("b", [1], [])), may_wait=True)
        assert gone.cancel()
    assert first.result(300).results == ["applied"]
    assert replica.send(token_event("a", [1], []), token_event("b", [1], [])).results == [
        "duplicate",
        "applied",
    ]
    assert replica.writer._n_waiting == 0
    replica.close()


def test_the_queue_of_events_at_its_limit_and_one_more(replica: Replica) -> None:
    writer = FeedbackWriter(replica.database, queue_max=3, days_max=30)

    def submit(*names: str, may_wait: bool = False) -> Future[Outcome]:
        events = columns(*(token_event(name, [1], []) for name in names))
        return writer.submit(replica.live, events, may_wait=may_wait)

    with replica.live.lock:  # the writer waits with the first
        handed = [submit("a")]
        while writer._blocks:
            pass
        handed += [submit("b", "c"), submit("d")]
        with pytest.raises(Overloaded, match="at most 3 events"):
            submit("e")
        handed.append(submit("f", may_wait=True))  # a stream, which hands over one block after the other
    assert [len(one.result(300).results) for one in handed] == [1, 2, 1, 1]
    writer.close()
    replica.close()


def test_the_writer_goes_on_when_its_house_cannot_be_kept(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BadParameter("expected an epoch that is kept")

    monkeypatch.setattr(feedback, "forget_events", fail)
    for i in range(3):
        replica.writer._forget_at = 0.0
        assert replica.send(token_event(f"e{i}", [1], [2])).results == ["applied"]
    replica.close()


def test_thresholds_that_cannot_be_read_leave_the_others_alone(database_url: str) -> None:  # noqa: F811
    """Of a version whose log and checkpoints are gone the last thresholds stay, and are said to be stale."""
    one, other = Replica(database_url), Replica(database_url)
    other.live.version = 2
    follower = Follower(other.database, 60.0, lambda: None)
    one.send(token_event("a", [1], [1]))
    third = Replica(database_url)
    third.live.version = 2
    third.send(token_event("b", [1], [1]))
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
        lost.send(token_event("c", [1], []))
    assert other.send(token_event("c", [1], [])).results == ["applied"]
    for replica in (one, other, third, lost):
        replica.close()
