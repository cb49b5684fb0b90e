"""The crew: every item once, and a quick end when something goes wrong."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from service.trainers import parse_parameters, train
from service.trainers.work import Crew
from tests.oracles.problems import random_labels, random_rows


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
    begun = []

    def work(item):
        begun.append(item)
        if item == 3:
            raise ZeroDivisionError("three")

    crew = Crew(2)
    with pytest.raises(ZeroDivisionError, match="three"):
        crew.run(work, range(1000), lambda item, result: None)
    assert crew.stop[0] == 1
    assert len(begun) < 20
    assert not _workers()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_an_interrupt_stops_solvers_that_would_go_on_for_hours(loss):
    rng = np.random.default_rng(0)
    rows, labels = random_rows(rng, 3000, 100, 0.2), random_labels(rng, 3000, 40, 0.3)
    settings = [f"loss={loss}", "cost=1e6", "eps=1e-4", "max_epochs=100000", "cost_decay=0"]
    # Compiled before the clock starts, or the interrupt would fall into the compiler.
    train("ovr", parse_parameters("ovr", [f"loss={loss}", "max_epochs=1"]), rows, labels)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        train("ovr", parse_parameters("ovr", settings), rows, labels, 0, 2)
    timer.join()
    assert not _workers()
