"""Shadows: copies of answered requests, answered once more by
another version, compared and counted.

What a shadow answers is never returned, moves no thresholds, and fails no request. It has one
thread, a share of its time, and a bounded queue: what finds no place in it is dropped, and counted.
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
from numpy.typing import NDArray

from xylem.base import Limits, XylemError, log
from xylem.serving.answer import SearchDialect
from xylem.serving.dialect import Body, Reply
from xylem.serving.served import ServedVersion
from xylem_store import StoreError

TOPS = (1, 5)
"""How many of the first labels are compared."""


class ShadowCopy(NamedTuple):
    """A request in a dialect, its answer, the version that gave it, and the shadow."""

    dialect: SearchDialect
    body: Body
    answer: Reply
    answered: ServedVersion
    shadow: ServedVersion

    @property
    def n_bytes(self) -> int:
        """Return how much memory it holds."""
        return len(self.body.message) + sum(map(len, self.answer.parts))

    def answer_again(self, limits: Limits, stop: NDArray[np.uint8]) -> Reply:
        """Return the shadow's answer; once `stop` is set, what is sure. Raises as an
        answer does.
        """
        query = self.dialect.read(self.body, limits)
        return self.dialect.answer_fully(query.compared(), self.shadow, stop)


def compare(
    returned: Sequence[Sequence[str]], shadow: Sequence[Sequence[str]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many of the first labels were compared, for each of TOPS, and how many both have.

    Of a row at most so many as the longer of its two lists has: a label that only one gives is no
    agreement.
    """
    compared = [0] * len(TOPS)
    agreed = [0] * len(TOPS)
    for returned_row, shadow_row in zip_longest(returned, shadow, fillvalue=()):
        for i, top in enumerate(TOPS):
            compared[i] += min(top, max(len(returned_row), len(shadow_row)))
            agreed[i] += len(set(returned_row[:top]) & set(shadow_row[:top]))
    return tuple(compared), tuple(agreed)


SECONDS_MAX = 1.0
"""A search of a shadow that has taken longer is ended when the next request is offered."""

BYTES_MAX = 16 << 20
"""Of the bodies and answers that wait."""

Result = Literal["answered", "failed", "slow", "dropped"]


class ShadowOutcome(NamedTuple):
    """What became of a copy of a request.

    version   the shadow's; `answered` is the version whose answer was returned
    seconds   that the shadow took, 0 if it was not asked
    compared  labels, for each of TOPS; of them `agreed` were the same
    """

    model: str
    version: int
    answered: int
    result: Result
    seconds: float = 0.0
    compared: tuple[int, ...] = (0, 0)
    agreed: tuple[int, ...] = (0, 0)


class Shadows:
    """Answers copies of requests in a thread, which begins with the first of them.

    record  is told what becomes of each, by any thread
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
        """Have a shadow answer a request too, once its answer is on its way. Event loop only."""
        asyncio.get_running_loop().call_soon(self._put, copy)

    def close(self) -> None:
        """Let the thread end; what waits is dropped."""
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
        self._waiting.put_nowait(copy)  # there is room: only the event loop puts
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="xylem-shadow", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Answer what waits, and rest after each so that the share of time is kept."""
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
            self._closing.wait(pause_ratio * (time.monotonic() - began))

    def _answer(self, copy: ShadowCopy) -> ShadowOutcome:
        """Return what becomes of a copy. Never raises."""
        began = time.perf_counter()
        try:
            self._stop.fill(0)
            again = copy.answer_again(self._limits, self._stop)
            seconds = time.perf_counter() - began
            if self._stop[0]:
                return _outcome(copy, "slow", seconds)
            firsts: list[list[list[str]]] = []
            for reply, served in ((copy.answer, copy.answered), (again, copy.shadow)):
                json = b"".join(reply.parts)
                firsts.append(copy.dialect.first_labels(json, reply.n_json, max(TOPS), served))
            compared, agreed = compare(*firsts) if firsts[0] else ((0, 0), (0, 0))  # of tensors
            return _outcome(copy, "answered", seconds)._replace(compared=compared, agreed=agreed)
        except (
            XylemError,
            StoreError,
        ):  # it takes other instances, has no thresholds, knows a label not
            pass
        except Exception as error:
            name = copy.shadow.name
            version = copy.shadow.version
            log(logging.ERROR, "shadow_failed", model=name, version=version, error=error)
        return _outcome(copy, "failed", time.perf_counter() - began)


def _outcome(copy: ShadowCopy, result: Result, seconds: float = 0.0) -> ShadowOutcome:
    """Return what became of a copy, without labels compared."""
    return ShadowOutcome(
        copy.shadow.name, copy.shadow.version, copy.answered.version, result, seconds
    )
