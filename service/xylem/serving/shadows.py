"""Shadows: another version answers copies of requests; both answers are compared and counted.

The answer of a shadow is never returned, moves no thresholds, and fails no request. Shadows have
one thread, a share of its time, and a bounded queue; requests that find no place in the queue are
dropped and counted.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from xylem.base import Limits, XylemError, log
from xylem.serving.dialects.dialect import Body, Reply
from xylem.serving.dialects.search import SearchDialect
from xylem.serving.live.served import ServedVersion
from xylem_store import U8, StoreError

# The numbers of first labels that are compared.
TOPS = (1, 5)


class ShadowCopy(NamedTuple):
    """A copy of a request.

    dialect   the dialect of the request
    answer    the answer that was returned
    answered  the version that gave this answer
    shadow    the version that answers again
    """

    dialect: SearchDialect
    body: Body
    answer: Reply
    answered: ServedVersion
    shadow: ServedVersion

    @property
    def n_bytes(self) -> int:
        """Return how many bytes of memory it holds."""
        return len(self.body.message) + sum(map(len, self.answer.parts))

    def answer_again(self, limits: Limits, stop: U8) -> Reply:
        """Return the shadow's answer; when `stop` is set, only what is certain by then.

        Raises as `SearchDialect.answer_fully`.
        """
        return self.dialect.answer_fully(
            self.dialect.read(self.body, limits).compared(), self.shadow, stop
        )


def compare(
    returned: Sequence[Sequence[str]], shadow: Sequence[Sequence[str]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return, for each of TOPS, how many first labels were compared and how many were the same.

    For each row, as many labels are compared as the longer of its two lists has: a label that only
    one version gives counts as a disagreement.
    """
    compared = [0] * len(TOPS)
    agreed = [0] * len(TOPS)
    for returned_row, shadow_row in zip_longest(returned, shadow, fillvalue=()):
        for i, top in enumerate(TOPS):
            compared[i] += min(top, max(len(returned_row), len(shadow_row)))
            agreed[i] += len(set(returned_row[:top]) & set(shadow_row[:top]))
    return tuple(compared), tuple(agreed)


# A shadow's search that has taken longer is stopped when the next request is offered.
SECONDS_MAX = 1.0

# The most bytes of bodies and answers that wait.
BYTES_MAX = 16 << 20

Result = Literal["answered", "failed", "slow", "dropped"]

# The result of `compare` where there are no labels: tensors need not have any.
NOT_COMPARED = (0,) * len(TOPS), (0,) * len(TOPS)


class ShadowOutcome(NamedTuple):
    """The outcome of a copy of a request.

    version   the shadow's version
    answered  the version whose answer was returned
    seconds   the time that the shadow took; 0 if it did not answer
    compared  how many labels were compared, for each of TOPS
    agreed    how many of these were the same
    """

    model: str
    version: int
    answered: int
    result: Result
    seconds: float = 0.0
    compared: tuple[int, ...] = (0, 0)
    agreed: tuple[int, ...] = (0, 0)


class Shadows:
    """Answers copies of requests in a thread, which starts with the first copy.

    record  receives the outcome of each copy; called by any thread
    """

    def __init__(self, limits: Limits, record: Callable[[ShadowOutcome], None]) -> None:
        self._limits = limits
        self._record = record
        self._waiting: queue.Queue[ShadowCopy | None] = queue.Queue(limits.shadow_queue_max)
        self._lock = threading.Lock()
        self._n_bytes = 0
        self._stop = np.zeros(1, np.uint8)
        self._late_at = float("inf")
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, copy: ShadowCopy) -> None:
        """Have a shadow answer a request again, after its answer was sent. Event loop only."""
        asyncio.get_running_loop().call_soon(self._put, copy)

    def close(self) -> None:
        """Stop the thread; copies that wait are dropped."""
        self._closing.set()
        self._stop.fill(1)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _put(self, copy: ShadowCopy) -> None:
        if self._closing.is_set():
            return
        if time.monotonic() > self._late_at:
            self._stop.fill(1)
        with self._lock:
            has_room = self._n_bytes + copy.n_bytes <= BYTES_MAX and not self._waiting.full()
            self._n_bytes += copy.n_bytes if has_room else 0
        if not has_room:
            self._record(_outcome(copy, "dropped"))
            return
        self._waiting.put_nowait(copy)  # never full here: only the event loop puts copies
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="xylem-shadow", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Answer the copies that wait, and pause after each to keep to the share of time."""
        pause_ratio = 1 / self._limits.shadow_time_share - 1
        while not self._closing.is_set():
            copy = self._waiting.get()
            if copy is None:
                return
            began = time.monotonic()
            self._late_at = began + SECONDS_MAX
            self._record(self._answer(copy))
            self._late_at = float("inf")
            with self._lock:
                self._n_bytes -= copy.n_bytes
            del copy  # a version that is closed must not wait for the next copy
            self._closing.wait(pause_ratio * (time.monotonic() - began))

    def _answer(self, copy: ShadowCopy) -> ShadowOutcome:
        """Answer a copy and compare; return the outcome. Never raises."""
        began = time.perf_counter()
        try:
            self._stop.fill(0)
            second_reply = copy.answer_again(self._limits, self._stop)
            seconds = time.perf_counter() - began
            if self._stop[0]:
                return _outcome(copy, "slow", seconds)
            label_lists = [
                copy.dialect.first_labels(b"".join(reply.parts), reply.n_json, max(TOPS), served)
                for reply, served in ((copy.answer, copy.answered), (second_reply, copy.shadow))
            ]
            compared, agreed = compare(*label_lists) if label_lists[0] else NOT_COMPARED
            return _outcome(copy, "answered", seconds)._replace(compared=compared, agreed=agreed)
        except (
            XylemError,
            StoreError,
        ):  # the shadow takes other instances, has no thresholds, or lacks a label
            pass
        except Exception as error:
            log(
                logging.ERROR,
                "shadow_failed",
                model=copy.shadow.name,
                version=copy.shadow.version,
                error=error,
            )
        return _outcome(copy, "failed", time.perf_counter() - began)


def _outcome(copy: ShadowCopy, result: Result, seconds: float = 0.0) -> ShadowOutcome:
    """Return the outcome of a copy, with no labels compared."""
    return ShadowOutcome(
        copy.shadow.name, copy.shadow.version, copy.answered.version, result, seconds
    )
