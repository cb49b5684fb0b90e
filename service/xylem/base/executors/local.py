"""Threads that run the many small steps of a training; an interrupt stops them all."""

import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from ctypes import CDLL
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from xylem.base.errors import Unavailable
from xylem.base.executors.steps import R, Step, T, ValueHandle, packed, unpacked
from xylem.base.extras import load_extra

# Returns memory to the system that is not used any more, with the C library of GNU. Without it the
# library keeps what threads have freed: 260 MB of a stream of 100,000 labels.
_malloc_trim: Callable[[int], int] = getattr(CDLL(None), "malloc_trim", lambda pad: 0)

# The tasks that are sent ahead for each processor of a cluster, so that none waits for one.
AHEAD = 2


class _InFile(NamedTuple):
    """A value that is stored in a file as `packed` made it; `kind` is its type."""

    file: BinaryIO
    kind: Any
    start: int
    length: int

    def get(self) -> Any:
        """Return the value."""
        return unpacked(self.kind, os.pread(self.file.fileno(), self.length, self.start))


class Crew:
    """Threads that run steps, and the flag that ends their work early.

    stop  uint8[1]  1 once the work is given up: kernels may look at it and end early, since their
          results are dropped
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.stop = np.zeros(1, np.uint8)

    @cached_property
    def _scratch(self) -> BinaryIO:
        """Return a file for held values; it has no name, and is closed with the crew."""
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with the crew)
        weakref.finalize(self, file.close)
        return file

    def hold(self, value: R) -> ValueHandle[R]:
        """Put a value where steps can get it, out of this process's memory.

        Raises Unavailable if there is no space.
        """
        return self.spill(value)

    def spill(self, value: R) -> ValueHandle[R]:
        """Put a value into a file of this process, which alone can get it.

        Raises Unavailable if there is no space.
        """
        content = packed(value)
        start = self._scratch.seek(0, os.SEEK_END)
        unwritten = memoryview(content)
        try:
            while unwritten:
                unwritten = unwritten[self._scratch.write(unwritten) :]
        except OSError as error:
            raise Unavailable(
                f"stream: expected space for rows and weights in {tempfile.gettempdir()}, "
                f"found: {error.strerror}"
            ) from None
        return _InFile(self._scratch, type(value), start, len(content))

    def split(
        self, step: Step[ValueHandle[T], list[R]], items: Sequence[ValueHandle[T]], n: int
    ) -> list[list[ValueHandle[R]]]:
        """Run a step with n results on every item; return handles of the results of each item.

        The results stay where they were made.
        """
        handles: dict[ValueHandle[T], list[ValueHandle[R]]] = {}

        def done(item: ValueHandle[T], results: list[R]) -> None:
            handles[item] = [self.hold(result) for result in results]

        self.steps(step, items, done)
        return [handles[item] for item in items]

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Run `step` on every item, in any order, as `run`; each thread has its own workspace."""
        self.run(self._in_threads(step), items, done)
        if "_scratch" in vars(self):  # else it costs a training of 0.4 s 10 ms
            _malloc_trim(0)

    def mapped(self, step: Step[T, R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results of `step` in the order of the items, taking some items ahead.

        With one thread no item is taken ahead, and the step runs in the caller's thread.
        """
        if self.threads == 1:
            workspace = step.workspace()
            for item in items:
                yield step.run(item, workspace, self.stop)
            return
        work = self._in_threads(step)
        running = deque[Future[R]]()
        with ThreadPoolExecutor(self.threads, thread_name_prefix="map") as pool:
            try:
                for item in items:
                    running.append(pool.submit(work, item))
                    if len(running) == 2 * self.threads:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:
                for future in running:
                    future.cancel()

    def _in_threads(self, step: Step[T, R]) -> Callable[[T], R]:
        """Return a function that runs `step`, with a workspace for each thread that calls it."""
        local = threading.local()

        def work(item: T) -> R:
            if not hasattr(local, "workspace"):
                local.workspace = step.workspace()
            return step.run(item, local.workspace, self.stop)

        return work

    def everywhere(self, call: Callable[[], None]) -> None:
        """Call a function on each machine that runs steps: here only on this one.

        Raises the errors of the function.
        """
        call()

    def run(self, work: Callable[[T], R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Call `work` on every item, and `done(item, result)` in the caller's thread for results.

        If the caller's thread is interrupted, or a call fails, items that have not begun are
        dropped, running ones are told to stop and waited for, and the exception is raised again.
        """
        todo = iter(items)
        running: dict[Future[R], T] = {}
        with ThreadPoolExecutor(self.threads, thread_name_prefix="train") as pool:
            try:
                while True:
                    for item in islice(todo, 2 * self.threads - len(running)):
                        running[pool.submit(work, item)] = item
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done(running.pop(future), future.result())
            except BaseException:
                self.stop[0] = 1
                for future in running:
                    future.cancel()
                raise


@contextmanager
def crew_of(threads: int, address: str | None, ahead: int = AHEAD) -> Iterator[Crew]:
    """Yield a crew: the nodes of a Ray cluster, or without an address threads of this process.

    ahead  the number of tasks that are sent ahead for each processor of a cluster

    Raises BadParameter if Ray is missing or the address is invalid, and Unavailable if no cluster
    answers there.
    """
    local = nullcontext(Crew(threads))
    with local if address is None else load_extra("ray").ray_crew(threads, address, ahead) as crew:
        yield crew
