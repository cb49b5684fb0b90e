"""Running the many small pieces of a training on threads, so that an interrupt stops them all."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np

from service.executors.steps import R, Step, T


class Crew:
    """So many threads, and the flag that ends their work early.

    stop  uint8[1]  1 when the work has been given up: kernels may look at it, their results are dropped
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.stop = np.zeros(1, np.uint8)

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Run `step` on every item, as `run`, in any order; each thread has a workspace of its own."""
        local = threading.local()

        def work(item: T) -> R:
            if not hasattr(local, "workspace"):
                local.workspace = step.workspace()
            return step.run(item, local.workspace, self.stop)

        self.run(work, items, done)

    def everywhere(self, call: Callable[[], None]) -> None:
        """Do a call on each machine that runs steps: here. Raises what it does."""
        call()

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
