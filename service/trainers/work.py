"""Running the many small pieces of a training on threads, so that an interrupt stops them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[str, int, int], None]
"""Called in the caller's thread with (stage, units done, units in all)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def of_tree(progress: Progress, tree: int, n_trees: int) -> Progress:
    """Return what tells the progress of one tree of several: which one follows the stage's name."""
    if n_trees == 1:
        return progress
    return lambda stage, done, total: progress(f"{stage}, tree {tree + 1} of {n_trees}", done, total)


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
