"""Running the many small pieces of a training on threads, so that an interrupt stops them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from service.trainers.source import OnRows

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[str, int, int], None]
"""Called in the caller's thread with (stage, units done, units in all)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def derived_seed(*words: int) -> int:
    """Return a seed of 63 bits that depends on all the words: the user's seed, then what it is for."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Crew:
    """So many threads, and the flag that ends their work early.

    stop  uint8[1]  1 when the work has been given up: kernels may look at it, their results are dropped
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.stop = np.zeros(1, np.uint8)

    def run(self, work: Callable[[T], R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Call `work` on every item, and `done(item, result)` in the caller's thread as results come.

        When the caller's thread is interrupted, or a call fails, items not yet begun are dropped, those
        being worked on are told to stop and waited for, and the exception goes on.
        """
        todo = iter(items)
        running: dict[Future[R], T] = {}
        with ThreadPoolExecutor(self.threads, thread_name_prefix="train") as pool:
            try:
                more = True
                while more or running:
                    while more and len(running) < 2 * self.threads:
                        for item in todo:
                            running[pool.submit(work, item)] = item
                            break
                        else:
                            more = False
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done(running.pop(future), future.result())
            except BaseException:
                self.stop[0] = 1
                for future in running:
                    future.cancel()
                raise


@dataclass(frozen=True)
class Tools:
    """What a training, or a part of it, works with.

    seed      the same data, parameters and seed give the same bits, whatever the number of threads
    crew      its threads
    progress  is told how far it is
    on_rows   is shown rows of the first pass before they are learnt, by a trainer that shows them
    """

    seed: int = 0
    crew: Crew = field(default_factory=lambda: Crew(1))
    progress: Progress = no_progress
    on_rows: OnRows | None = None

    def seeded(self, *words: int) -> Tools:
        """Return the same with a seed of its own for a part of the work."""
        return replace(self, seed=derived_seed(self.seed, *words))

    def of_tree(self, tree: int, n_trees: int) -> Tools:
        """Return what a tree of several is trained with: its number follows the name of each stage."""
        part, progress = self.seeded(tree), self.progress
        if n_trees == 1:
            return part
        told = f"tree {tree + 1} of {n_trees}"
        return replace(part, progress=lambda stage, done, total: progress(f"{stage}, {told}", done, total))
