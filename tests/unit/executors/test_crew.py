"""The crew: every item once, results in order while later ones are worked on, a quick end on a fault."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from service.base.errors import BadData
from service.executors.local import Crew
from service.trainers import parse_parameters, train
from tests.oracles.problems import random_labels, random_rows
from tests.steps import Scaled, Sleeping

MATRIX = np.random.default_rng(0).random((20, 5)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_items_though_later_ones_end_first(threads: int) -> None:
    items = [0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert list(Crew(threads).mapped(Sleeping(), items)) == items
    found = [one.number for one in Crew(threads).mapped(Scaled(MATRIX, 2.0), range(20))]
    assert found == list(range(20))
    assert not list(Crew(threads).mapped(Sleeping(), []))


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (3, 6)])
def test_few_items_are_taken_before_the_first_result_is(threads: int, ahead: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = Crew(threads).mapped(Scaled(MATRIX, 2.0), items())
    assert next(results).number == 0 and len(taken) == ahead
    results.close()  # type: ignore[attr-defined]  # what a consumer does that wants no more
    assert len(taken) == ahead


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_where_its_result_would(threads: int) -> None:
    crew = Crew(threads)
    results = crew.mapped(Scaled(MATRIX, 2.0, bad=7), range(20))
    assert [next(results).number for _ in range(7)] == list(range(7))
    with pytest.raises(BadData, match="row 7: expected another"):
        next(results)
    assert len(list(crew.mapped(Scaled(MATRIX, 2.0), range(20)))) == 20


def _wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def _workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("train")]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 4, 50])
def test_every_item_is_done_once_and_reported_in_this_thread(threads, n):
    here, found = threading.current_thread(), []

    def done(item, result):
        assert threading.current_thread() is here
        found.append((item, result))

    Crew(threads).run(lambda item: item * item, iter(range(n)), done)
    assert sorted(found) == [(i, i * i) for i in range(n)]
    assert not _workers()


def test_a_failure_ends_the_work_and_goes_on():
    begun, crew = [], Crew(2)

    def work(item):
        begun.append(item)
        if item == 3:
            raise ZeroDivisionError("three")
        if item > 3:  # goes on until it is told to stop
            _wait_until(lambda: crew.stop[0])

    with pytest.raises(ZeroDivisionError, match="three"):
        crew.run(work, range(1000), lambda item, result: None)
    assert crew.stop[0] == 1
    assert len(begun) <= 3 + 4  # those before it, and as many as two threads are given at a time
    assert not _workers()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_an_interrupt_stops_solvers_that_would_go_on_for_hours(loss):
    rng = np.random.default_rng(0)
    rows, labels = random_rows(rng, 3000, 100, 0.2), random_labels(rng, 3000, 40, 0.3)
    settings = [f"loss={loss}", "cost=1e6", "eps=1e-4", "max_epochs=100000", "cost_decay=0"]
    # Compiled before, or the interrupt would fall into the compiler.
    train("ovr", parse_parameters("ovr", [f"loss={loss}", "max_epochs=1"]), rows, labels)

    def interrupt():
        _wait_until(_workers)
        time.sleep(0.3)  # into the midst of it, if this machine is not too slow
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupter.start()
        train("ovr", parse_parameters("ovr", settings), rows, labels, 0, 2)
    interrupter.join()
    assert not _workers()
