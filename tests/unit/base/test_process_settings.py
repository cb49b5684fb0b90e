"""What a process sets for itself: the collector, its log, threads that repeat."""

import json
import logging
import subprocess
import sys
import threading

import pytest

from xylem.base.logs import JsonHandler, log
from xylem.base.repeating import Repeating, succeeded_at


def said(code: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_what_there_is_stays() -> None:
    said("""
import gc
usual = gc.get_threshold()
from xylem.base.process import collect_seldom, settle
collect_seldom()
assert gc.get_threshold() > usual
there = [[] for _ in range(1000)]
assert gc.get_freeze_count() == 0
settle()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() > 1000
""")


@pytest.mark.parametrize(
    ("command", "seldom"), [("serve", True), ("predict", True), ("tune", False)]
)
def test_some_commands_begin_without_it(command: str, seldom: bool) -> None:
    done = said(f"""
import gc, sys
import xylem.cli.entry
sys.argv = ["xylem", {command!r}]
sys.modules["xylem.cli.application"] = type(sys)("xylem.cli.application")
sys.modules["xylem.cli.application"].main = lambda: print(gc.get_threshold()[0] > 5000)
xylem.cli.entry.main()
""")
    assert done.stdout == f"{seldom}\n"


def test_an_event_and_a_record_of_a_library_are_a_line_each(
    capfd: pytest.CaptureFixture[str],
) -> None:
    log(logging.INFO, "request", status=200, path="/a\nb")
    JsonHandler().emit(
        logging.LogRecord("other", logging.WARNING, __file__, 1, "two\n%s", ("lines",), None)
    )
    event, other = map(json.loads, capfd.readouterr().err.splitlines())
    told = [event[name] for name in ("event", "level", "status", "path")]
    assert told == ["request", "info", 200, "/a\nb"]
    assert event["time"].endswith("+00:00")
    assert (other["event"], other["logger"], other["message"]) == ("message", "other", "two\nlines")


def test_an_exception_is_logged_without_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("the payload")
    except ValueError as error:
        log(logging.ERROR, "failure", error=error)
    text = capfd.readouterr().err
    line = json.loads(text)
    assert line["exception"] == "builtins.ValueError"
    assert line["frames"][0].startswith(__file__)
    assert "the payload" not in text


def test_what_is_below_the_level_is_not_logged() -> None:
    done = said(
        "import logging; from xylem.base.logs import configure, log; configure('warning');"
        "log(logging.INFO, 'quiet'); logging.getLogger('a').info('quiet');"
        "log(logging.WARNING, 'loud', n=1); logging.getLogger('a').error('loud')"
    )
    assert [json.loads(line)["level"] for line in done.stderr.splitlines()] == ["warning", "error"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_thread_calls_again_and_again_until_it_is_stopped(at_once: bool) -> None:
    calls = threading.Semaphore(0)
    repeating = Repeating("repeats", calls.release, 0.001, at_once=at_once)
    assert not repeating.is_alive
    repeating.start()
    for _ in range(3):
        assert calls.acquire(timeout=60)
    repeating.stop()
    assert not repeating.is_alive


@pytest.mark.parametrize("at_once", [True, False])
def test_before_its_first_pause_it_calls_at_once_or_not_at_all(at_once: bool) -> None:
    calls = threading.Semaphore(0)
    repeating = Repeating("repeats", calls.release, 3600.0, at_once=at_once)
    repeating.start()
    assert not at_once or calls.acquire(timeout=60)
    repeating.stop()
    assert not repeating.is_alive
    assert not calls.acquire(blocking=False)


def test_an_action_that_takes_long_sees_that_it_is_to_stop() -> None:
    begun = threading.Event()

    def action() -> None:
        begun.set()
        repeating.stopping.wait()

    repeating = Repeating("repeats", action, 0.001, at_once=True)
    repeating.start()
    assert begun.wait(60)
    repeating.stop()
    assert not repeating.is_alive


@pytest.mark.parametrize("kind", [ValueError, OSError, MemoryError, SystemError])
def test_a_thread_goes_on_whatever_its_action_raises(
    kind: type[Exception], capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes = iter([kind("a payload"), kind("a payload"), False, None, kind("a payload"), None])
    ended = threading.Event()
    ages: list[float] = []

    def action() -> object:
        ages.append(succeeded_at["repeats"])
        outcome = next(outcomes, None)
        if isinstance(outcome, Exception):
            raise outcome
        if len(ages) > 6:
            ended.set()
        return outcome

    repeating = Repeating("repeats", action, 0.001, at_once=True)
    repeating.start()
    assert ended.wait(60)
    repeating.stop()
    began, *_ = ages
    assert ages[:4] == [began] * 4  # two raised, and one failed
    assert ages[4] == ages[5] > began
    assert ages[6] > ages[5]
    assert "repeats" not in succeeded_at
    logged = capfd.readouterr().err
    events = [json.loads(line)["event"] for line in logged.splitlines()]
    assert events == ["follower_failed", "follower_works_again"] * 2
    assert kind.__name__ in logged
    assert "a payload" not in logged


def test_a_thread_that_never_began_stops() -> None:
    Repeating("repeats", list, 1.0, at_once=True).stop()
