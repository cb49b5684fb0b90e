"""A thread that repeats: when it begins, that it ends, and what an action sees of that."""

import threading

import pytest

from service.base.process import Repeating


@pytest.mark.parametrize("at_once", [True, False])
def test_it_calls_again_and_again_until_it_is_stopped(at_once: bool) -> None:
    calls = threading.Semaphore(0)
    repeating = Repeating("repeats", calls.release, 0.001, at_once=at_once)
    assert not repeating.is_alive
    repeating.start()
    for _ in range(3):
        assert calls.acquire(timeout=60)
    repeating.stop()
    assert not repeating.is_alive


@pytest.mark.parametrize("at_once", [True, False])
def test_before_its_first_pause_is_over_it_calls_at_once_or_not_at_all(at_once: bool) -> None:
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


def test_one_that_never_began_stops() -> None:
    Repeating("repeats", list, 1.0, at_once=True).stop()
