"""Usage of keys: counted at once, written behind by hour, and nothing is lost or counted twice."""

import contextlib
import threading
from pathlib import Path

import pytest

from xylem.base.access import usage as usage_module
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.access.usage import KeyUsage
from xylem.base.db.engine import Database
from xylem.base.errors import BadParameter, DatabaseUnavailable, LimitExceeded

HOUR = 3600
START = 1_764_460_800  # 2025-11-30, 00:00


class Clock:
    now = START + 10.0

    def __call__(self) -> float:
        return self.now


def test_counts_are_summed_by_hour_key_and_model(database: Database) -> None:
    clock = Clock()
    key = AccessKeys(database).create("shop", [AccessScope.PREDICT]).key.id
    usage = KeyUsage(database, clock)
    for _ in range(3):
        usage.add(key, "a", n_rows=10, n_characters=100, search_ns=500_000_000)
        usage.add(key, "b", n_rows=1, n_characters=10)
        usage.add("gone", "a", n_rows=0, n_characters=0)
        usage.write()
        usage.write()
        clock.now += HOUR
    lines = {(line["name"], line["model"]): line for line in usage.read()}
    assert lines.keys() == {("shop", "a"), ("shop", "b"), (None, "a")}
    assert lines["shop", "a"] == {
        "key": key,
        "name": "shop",
        "model": "a",
        "requests": 3,
        "rows": 30,
        "characters": 300,
        "search_seconds": pytest.approx(1.5),
    }
    hour = usage.read("2025-11-30T01:30:00Z", "2025-11-30T02:00:00Z", groups="hour,model")
    assert [(line["hour"], line["model"], line["requests"]) for line in hour] == [
        ("2025-11-30T01:00:00Z", "a", 2),
        ("2025-11-30T01:00:00Z", "b", 1),
    ]
    assert usage.read("2025-11-30T03:00", groups="model") == []
    (line,) = usage.read(groups="model", sees=lambda model: model == "b")
    assert (line["model"], line["rows"]) == ("b", 3)
    assert usage.totals[key, "a"] == [3, 30, 300, pytest.approx(1.5)]


def test_two_processes_add_to_the_same_lines(database: Database) -> None:
    processes = [KeyUsage(database, Clock()) for _ in range(2)]
    for usage in processes:
        usage.add("k", "m", n_rows=1, n_characters=1, search_ns=1)
    for usage in processes:
        usage.close()
    (line,) = processes[0].read()
    assert (line["requests"], line["name"]) == (2, None)


def test_nothing_is_lost_while_the_database_is_away(tmp_path: Path) -> None:
    place = tmp_path / "later"
    with contextlib.closing(Database(f"sqlite:///{place}/xylem.db")) as database:
        usage = KeyUsage(database, Clock())
        for _ in range(5):
            usage.add("k", "m", n_rows=2, n_characters=3)
            with contextlib.suppress(DatabaseUnavailable):
                usage.write()
        place.mkdir()
        usage.close()
        (line,) = usage.read()
        assert (line["requests"], line["rows"], line["characters"]) == (5, 10, 15)


def test_counts_of_a_busy_thread_are_all_written(database: Database) -> None:
    usage = KeyUsage(database, Clock())
    is_done = threading.Event()

    def count() -> None:
        for _ in range(20_000):
            usage.add("k", "m", n_rows=1, n_characters=1)
        is_done.set()

    thread = threading.Thread(target=count)
    thread.start()
    while not is_done.is_set():
        usage.write()
    thread.join()
    usage.close()
    (line,) = usage.read()
    assert (line["requests"], line["rows"]) == (20_000, 20_000)


def test_old_hours_are_deleted_and_answers_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    usage = KeyUsage(database, clock)
    usage.add("k", "m", n_rows=1, n_characters=1)
    usage.close()
    clock.now += 86_400 * (usage_module.DAYS_MAX + 1)
    for name in ("a", "b", "c"):
        usage.add("k", name, n_rows=1, n_characters=1)
    usage.close()
    assert [line["model"] for line in usage.read(groups="model")] == ["a", "b", "c"]
    monkeypatch.setattr(usage_module, "LINES_MAX", 2)
    with pytest.raises(LimitExceeded, match="at most 2 lines of usage"):
        usage.read(groups="model")
    for arguments in (
        {"begin": "soon"},
        {"end": "2025-13-01"},
        {"groups": "key,name"},
        {"groups": ""},
    ):
        with pytest.raises(BadParameter, match="expected"):
            usage.read(**arguments)
