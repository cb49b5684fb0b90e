"""Threads for work that is too long for the event loop, with a bounded queue before them."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from xylem.base import Overloaded, TimedOut
from xylem.serving import LONG_BYTES

T = TypeVar("T")


class WorkPool:
    """Threads for blocking calls; calls are refused when all threads and the queue are full.

    calls  a name for the calls in the error message, such as "predictions"
    """

    def __init__(
        self, threads: int, queue_max: int, seconds_max: float, calls: str = "predictions"
    ) -> None:
        self._calls = calls
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="xylem-work")
        self._n_threads = threads
        self.n_places = threads + queue_max
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self.pending = 0  # calls that run or wait

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what the function returns. Event loop only.

        Raises Overloaded if the queue is full, and TimedOut after the limit: then a call that waits
        is dropped, and one that runs holds its thread until it ends.
        """
        if self.pending >= self.n_places:
            raise Overloaded(
                f"expected at most {self.n_places} {self._calls} at a time, found more"
            )
        with self._lock:
            self.pending += 1
        call = self._threads.submit(function, *arguments)
        call.add_done_callback(self._end)
        future = asyncio.wrap_future(call)
        try:
            done, _ = await asyncio.wait((future,), timeout=self._seconds_max)
        finally:  # also when the request is cancelled, a call that waits is dropped
            if not future.done():
                call.cancel()  # at once: the future would do it in the next turn of the event loop
                future.cancel()
        if not done:
            raise TimedOut(f"expected an answer within {self._seconds_max:g} seconds")
        return future.result()

    async def read(self, read: Callable[..., T], body: bytes, *arguments: object) -> T:
        """Return what `read` returns for a body; a long body is read in a thread.

        Raises the errors of `read` and of `run`.
        """
        return (
            read(body, *arguments)
            if len(body) <= LONG_BYTES
            else await self.run(read, body, *arguments)
        )

    def waiting(self) -> int:
        """Return how many calls wait for a thread."""
        return max(0, self.pending - self._n_threads)

    def close(self) -> None:
        """Let the threads end once they are idle; drop the calls that wait."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end(self, _: Future[T]) -> None:
        with self._lock:
            self.pending -= 1
