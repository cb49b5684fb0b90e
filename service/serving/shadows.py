"""Shadows: copies of answered requests, answered once more by another version, compared and counted.

What a shadow answers is never returned, moves no thresholds, and fails no request. It has one thread, a share
of its time, and a bounded queue: what finds no place in it is dropped, and counted.
"""

from __future__ import annotations

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
import orjson

from model_store.errors import StoreError
from service.errors import XylemError
from service.logs import log
from service.serving.answer import answer_query
from service.serving.parse import parse_predict
from service.serving.served import ServedVersion
from service.settings import Limits

TOPS = (1, 5)
"""How many of the first labels are compared."""

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


class _Copy(NamedTuple):
    """A request, its answer, the version that gave it, and the shadow."""

    body: bytes
    answer: bytes
    answered: ServedVersion
    shadow: ServedVersion

    def outcome(self, result: Result, seconds: float = 0.0) -> ShadowOutcome:
        """Return what became of it, without labels compared."""
        return ShadowOutcome(self.shadow.name, self.shadow.version, self.answered.version, result, seconds)

    @property
    def n_bytes(self) -> int:
        """Return how much memory it holds."""
        return len(self.body) + len(self.answer)


class Shadows:
    """Answers copies of requests in a thread, which begins with the first of them.

    record  is told what becomes of each, by any thread
    """

    def __init__(self, limits: Limits, record: Callable[[ShadowOutcome], None]) -> None:
        self._limits = limits
        self._record = record
        self._waiting: queue.Queue[_Copy | None] = queue.Queue(limits.shadow_queue_max)
        self._lock = threading.Lock()
        self._n_bytes = 0
        self._stop = np.zeros(1, np.uint8)
        self._late_at = float("inf")
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, body: bytes, answer: bytes, answered: ServedVersion, shadow: ServedVersion) -> None:
        """Have a shadow answer a request too, once its answer is on its way. Event loop only."""
        asyncio.get_running_loop().call_soon(self._put, _Copy(body, answer, answered, shadow))

    def close(self) -> None:
        """Let the thread end; what waits is dropped."""
        self._closing.set()
        self._stop.fill(1)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _put(self, copy: _Copy) -> None:
        if self._closing.is_set():
            return
        if time.monotonic() > self._late_at:
            self._stop.fill(1)
        with self._lock:
            has_room = self._n_bytes + copy.n_bytes <= BYTES_MAX
            self._n_bytes += copy.n_bytes if has_room else 0
        if has_room:
            try:
                self._waiting.put_nowait(copy)
            except queue.Full:
                self._let_go(copy)
                has_room = False
        if not has_room:
            self._record(copy.outcome("dropped"))
        elif self._thread is None:
            self._thread = threading.Thread(target=self._work, name="xylem-shadow", daemon=True)
            self._thread.start()

    def _let_go(self, copy: _Copy) -> None:
        with self._lock:
            self._n_bytes -= copy.n_bytes

    def _work(self) -> None:
        """Answer what waits, and rest after each so that the share of time is kept."""
        rest = 1 / self._limits.shadow_time_share - 1
        while not self._closing.is_set():
            copy = self._waiting.get()
            if copy is None:
                return
            began = time.monotonic()
            self._late_at = began + SECONDS_MAX
            self._record(self._outcome(copy))
            self._late_at = float("inf")
            self._let_go(copy)
            self._closing.wait(rest * (time.monotonic() - began))

    def _outcome(self, copy: _Copy) -> ShadowOutcome:
        """Return what becomes of a copy. Never raises."""
        began = time.perf_counter()
        try:
            query = parse_predict(copy.body, self._limits).model_copy(update={"explain": False})
            self._stop.fill(0)
            answer = answer_query(query, copy.shadow, self._stop)
            seconds = time.perf_counter() - began
            if self._stop[0]:
                return copy.outcome("slow", seconds)
            compared, agreed = compare(top_labels(copy.answer), top_labels(answer))
            return copy.outcome("answered", seconds)._replace(compared=compared, agreed=agreed)
        except (XylemError, StoreError):  # it takes other instances, has no thresholds, knows a label not
            return copy.outcome("failed", time.perf_counter() - began)
        except Exception as error:
            log(
                logging.ERROR,
                "shadow_failed",
                model=copy.shadow.name,
                version=copy.shadow.version,
                error=error,
            )
            return copy.outcome("failed", time.perf_counter() - began)


def top_labels(answer: bytes) -> list[list[str]]:
    """Return the names of the first labels of each prediction of an answer."""
    predictions = orjson.loads(answer)["predictions"]
    return [[label["label"] for label in one["labels"][: max(TOPS)]] for one in predictions]


def compare(
    returned: Sequence[Sequence[str]], shadow: Sequence[Sequence[str]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many of the first labels were compared, for each of TOPS, and how many both have.

    Of a row at most so many as the longer of its two lists has: a label that only one gives is no agreement.
    """
    compared, agreed = [0] * len(TOPS), [0] * len(TOPS)
    for mine, other in zip_longest(returned, shadow, fillvalue=()):
        for i, top in enumerate(TOPS):
            compared[i] += min(top, max(len(mine), len(other)))
            agreed[i] += len(set(mine[:top]) & set(other[:top]))
    return tuple(compared), tuple(agreed)
