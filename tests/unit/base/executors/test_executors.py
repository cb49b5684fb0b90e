"""The crew and steps kept in files: results in order, a quick end
on a fault, a training that goes on.

And what is said where no cluster can be reached: at once, in a sentence.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.contract.test_every_trainer import bits_of, items_of, learnable
from tests.helpers.jobs_helpers import write_data
from tests.helpers.servers import wait_for
from tests.helpers.steps import Parts, RowOutput, Scaled, Sleeping, scaled, shifted
from tests.oracles.problems import random_labels, random_rows, to_labels, to_rows

from xylem.base.errors import BadData, Unavailable
from xylem.base.executors.local import Crew
from xylem.base.executors.step_results import stored_steps
from xylem.base.executors.steps import Calls, Step, digest_of, mapped, packed, shared, unpacked
from xylem.trainers import fit, parse_parameters, train
from xylem.trainers.registry import TRAINERS
from xylem.trainers.source import MemorySource, Tools, TrainingSet

MATRIX = np.random.default_rng(0).random((20, 5)).astype(np.float32)
SPREADING = [name for name, spec in TRAINERS.items() if spec.alone(spec.parameters()) is None]


@pytest.mark.parametrize("threads", [1, 3])
def test_results_and_errors_come_in_the_order_of_the_items(
    threads: Any,
) -> None:
    items = [0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert list(Crew(threads).mapped(Sleeping(), items)) == items
    assert not list(Crew(threads).mapped(Sleeping(), []))
    crew = Crew(threads)
    results = crew.mapped(Scaled(MATRIX, 2.0, bad=7), range(20))
    assert [next(results).number for _ in range(7)] == list(range(7))
    with pytest.raises(BadData, match="row 7: expected another"):  # where its result would come
        next(results)
    assert [one.number for one in crew.mapped(Scaled(MATRIX, 2.0), range(20))] == list(range(20))


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (3, 6)])
def test_few_items_are_taken_before_the_first_result_is(threads: int, ahead: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = Crew(threads).mapped(Scaled(MATRIX, 2.0), items())
    assert next(results).number == 0 and len(taken) == ahead
    results.close()  # what a consumer does that wants no more
    assert len(taken) == ahead


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("train")]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 4, 50])
def test_every_item_is_done_once_and_reported_in_this_thread(threads: Any, n: int) -> None:
    here, found = threading.current_thread(), []

    def done(item: int, result: int) -> None:
        assert threading.current_thread() is here
        found.append((item, result))

    Crew(threads).run(lambda item: item * item, iter(range(n)), done)
    assert sorted(found) == [(i, i * i) for i in range(n)]
    assert not workers()


def test_a_failure_ends_the_work_and_goes_on() -> None:
    begun, crew = [], Crew(2)

    def work(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise ZeroDivisionError("three")
        if item > 3:  # goes on until it is told to stop
            wait_for(lambda: crew.stop[0])

    with pytest.raises(ZeroDivisionError, match="three"):
        crew.run(work, range(1000), lambda item, result: None)
    assert crew.stop[0] == 1
    assert len(begun) <= 3 + 4  # those before it, and as many as two threads are given at a time
    assert not workers()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_an_interrupt_stops_solvers_that_would_go_on_for_hours(loss: Any) -> None:
    rng = np.random.default_rng(0)
    rows, labels = random_rows(rng, 3000, 100, 0.2), random_labels(rng, 3000, 40, 0.3)
    settings = [f"loss={loss}", "cost=1e6", "eps=1e-4", "max_epochs=100000", "cost_decay=0"]
    # Compiled before, or the interrupt would fall into the compiler.
    train("ovr", parse_parameters("ovr", [f"loss={loss}", "max_epochs=1"]), rows, labels)

    def interrupt() -> None:
        wait_for(workers)
        time.sleep(0.3)  # into the midst of it, if this machine is not too slow
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupter.start()
        train("ovr", parse_parameters("ovr", settings), rows, labels, 0, 2)
    interrupter.join()
    assert not workers()


class Counting(Crew):
    """A crew that counts the items that it runs; it is interrupted after some of them."""

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__(1)
        self.most = most
        self.n_run = 0

    def steps(self, step: Any, items: Any, done: Any) -> None:
        def counted(item: Any, result: Any) -> None:
            self.n_run += 1
            if self.n_run > self.most:
                raise KeyboardInterrupt
            done(item, result)

        super().steps(step, items, counted)


def run(crew: Crew, step: Step[int, RowOutput], rows: range) -> dict[int, RowOutput]:
    found: dict[int, RowOutput] = {}
    crew.steps(step, rows, found.__setitem__)
    return found


def run_and_keep(
    place: Path, step: Step[int, RowOutput], rows: range, resume: bool
) -> tuple[int, Any]:
    """How many items were run, and what came of all; it is
    interrupted then, so that the steps stay.
    """
    crew = Counting()
    with pytest.raises(KeyboardInterrupt), stored_steps(crew, place, resume) as kept:
        found = run(kept, step, rows)
        raise KeyboardInterrupt
    return crew.n_run, found


BLOCKS = "label-tree, on blocks"


@pytest.mark.parametrize("name", [*SPREADING, BLOCKS])
def test_an_interrupted_training_continues_to_the_same_bits(name: str, tmp_path: Path) -> None:
    x, y = learnable()
    data, place = TrainingSet(to_rows(x), to_labels(y)), tmp_path / "steps"
    if name == BLOCKS:
        trainer, rows, items = "label-tree", Parts(data, 6), ["leaf_size=2", "memory_mib=2"]
    else:
        trainer, rows, items = name, MemorySource(data), items_of(name, leaf_size=2, arity=2)
    parameters = parse_parameters(trainer, items)
    whole, first, second = Counting(), Counting(), Counting()
    expected = fit(trainer, parameters, rows, Tools(1, whole))
    first.most = whole.n_run - 1 if name == BLOCKS else whole.n_run // 2
    with pytest.raises(KeyboardInterrupt), stored_steps(first, place, True) as crew:
        fit(trainer, parameters, rows, Tools(1, crew))
    with stored_steps(second, place, True) as crew:
        found = fit(trainer, parameters, rows, Tools(1, crew))
    assert (bits_of(found), found.report) == (bits_of(expected), expected.report)
    # of blocks, sums of labels and rows of subtrees are made anew
    anew = 2 * sum(1 for _ in rows.parts()) if name == BLOCKS else 0
    assert second.n_run == whole.n_run - first.most + anew
    assert not place.exists()


def test_a_stored_result_is_used_for_the_same_step_alone(
    tmp_path: Path,
) -> None:
    with pytest.raises(KeyboardInterrupt), stored_steps(Counting(), tmp_path / "s", True) as kept:
        run(kept, Scaled(MATRIX, 2.0), range(6))
        run(kept, Calls(scaled, (MATRIX, 2.0)), range(6))
        raise KeyboardInterrupt
    for resume, step, expected in (
        (True, Calls(scaled, (MATRIX, 2.0)), 4),
        (True, Calls(scaled, (MATRIX, 3.0)), 10),
        (True, Calls(shifted, (MATRIX, 2.0)), 10),
        (True, Scaled(MATRIX, 2.0), 4),
        (True, Scaled(MATRIX, 3.0), 10),
        (True, Scaled(MATRIX + 1, 2.0), 10),
        (False, Scaled(MATRIX, 2.0), 10),
    ):
        n_run, found = run_and_keep(tmp_path / "s", step, range(10), resume)
        plain = run(Crew(1), step, range(10))
        assert [packed(found[row]) for row in range(10)] == [
            packed(plain[row]) for row in range(10)
        ]
        assert n_run == expected


def test_what_a_killed_process_wrote_half_is_cut_off(tmp_path: Path) -> None:
    step = Scaled(MATRIX, 2.0)
    run_and_keep(tmp_path, step, range(6), True)
    (file,) = (file for file in tmp_path.iterdir() if file.name != "lock")
    content = file.read_bytes()
    whole = len(content) // 6
    for end in range(0, len(content), 37):
        file.write_bytes(content[:end])
        n_run, found = run_and_keep(tmp_path, step, range(6), True)
        assert n_run == 6 - end // whole
        assert packed(found[5]) == packed(run(Crew(1), step, range(5, 6))[5])


def test_steps_are_stored_in_one_place_by_one_training(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadData), stored_steps(Crew(1), tmp_path / "steps", False):
        raise BadData("row 1: expected another, found this one")
    assert not list(tmp_path.iterdir())
    refused = pytest.raises(
        Unavailable, match="expected no other training that keeps its steps there"
    )
    with (
        stored_steps(Crew(1), tmp_path / "m", False),
        refused,
        stored_steps(Crew(1), tmp_path / "m", True),
    ):
        pass


def test_values_come_back_from_bytes_and_views_as_they_were() -> None:
    value = RowOutput(3, 0.1, [MATRIX, None, MATRIX[:0]])
    back = unpacked(RowOutput, packed(value))
    assert (back.number, back.share, back.arrays[1]) == (3, 0.1, None)
    assert np.array_equal(back.arrays[0], MATRIX) and back.arrays[2].shape == (0, 5)
    assert digest_of(value) != digest_of(value._replace(share=0.2))
    assert digest_of(MATRIX) != digest_of(MATRIX.reshape(5, 20))
    with pytest.raises(TypeError, match="found object"):
        packed([object()])
    with pytest.raises(ValueError, match="expected an array of 400 bytes, found 300"):
        unpacked(RowOutput, packed(value)[:-100])
    # arrays of others are seen through views that are not read-only
    step = Scaled(MATRIX.copy(), 1.0)
    step.matrix.flags.writeable = False
    seen = mapped(step, shared)
    assert seen.matrix.flags.writeable and np.shares_memory(seen.matrix, step.matrix)
    assert seen.factor == step.factor


def test_trainings_that_are_no_steps_are_refused(run_here: Run, tmp_path: Path) -> None:
    data = write_data(tmp_path / "train.jsonl", 20)
    for trainer, options, found in (
        ("lomtree", (), "found lomtree, which learns one row after the other"),
        ("huffman-tree", (), "found huffman-tree, which learns"),
        ("plt", ("-p", "solver=sgd"), "found plt, with solver=sgd, which learns row by row"),
        (
            "ldsm",
            ("--stream", "--resume"),
            "ray: expected rows in memory, label-tree or ovr, found a stream",
        ),
    ):
        given = ("--data", data, "--model", "m", "--ray", "auto", *options)
        answer = run_here("train", trainer, *given, store=tmp_path / "s")
        assert answer.returncode == 2 and found in answer.stderr, answer.stderr
    assert not list(tmp_path.glob("s/models/*"))
