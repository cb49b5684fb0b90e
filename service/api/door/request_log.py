"""What is noted of each answered request: its id, its log line and its figures."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from bisect import bisect_left
from http import HTTPStatus
from itertools import count
from typing import NamedTuple

from service.access.key_text import without_secrets
from service.api.door.admission import PROBES
from service.api.door.metrics import SECONDS, Metrics, Series, Timing
from service.logs import Request, log_requests, said_of
from service.traces.tracer import Trace

SETTLE_SECONDS = 0.002
"""For so long requests that were answered wait to be counted and logged: what is done for several at once
costs a fraction of what it does for each, between answers that leave nothing of it in the caches."""

_FORGOTTEN_SECONDS = 1.0
"""When one waits for longer, the event loop that was to settle it has ended: the next asks its own."""

_PROCESS = os.urandom(8).hex()
_SERIAL = count(1)


class AnsweredBy(NamedTuple):
    """Which version a request was answered by, and the alias that it was named by; None: by its number."""

    model: str
    version: int
    alias: str | None


ANSWERED_BY = "xylem.answered_by"
"""The key of a request's scope under which a route leaves which version answers it."""


class RequestOutcome(NamedTuple):
    """What became of a request, the same for those that are alike: where it counts, what is logged.

    level  of its log line
    """

    timing: Timing
    said: bytes
    code: str | None
    level: int


class RequestLog:
    """Counts and logs answered requests, several at once. Event loop only.

    metrics     where they are counted
    access_log  whether each is logged; all are counted
    """

    def __init__(self, metrics: Metrics, access_log: bool) -> None:
        self.metrics = metrics
        self._access_log = access_log
        self._ended: list[tuple[float, str, RequestOutcome, float]] = []
        self._settled_by = 0.0
        metrics.settle = self.settle

    def record(
        self, request_id: str, outcome: RequestOutcome, seconds: float, trace: Trace | None = None
    ) -> None:
        """Note an answered request, to be counted and logged in a moment, with those that follow it.

        trace   which tells of it, and whose id its log line has
        """
        now = time.time()
        if trace is not None:
            trace_id = trace.id_text
            if trace.own is not None:
                outcome.timing.point_to(trace_id, seconds, now)
            said = b'%b,"trace_id":"%b"' % (outcome.said, trace_id.encode())
            outcome = RequestOutcome(outcome.timing, said, outcome.code, outcome.level)
        if now > self._settled_by:
            self._settled_by = now + _FORGOTTEN_SECONDS
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self.settle)
        self._ended.append((now, request_id, outcome, seconds))

    def settle(self) -> None:
        """Count and log what was noted."""
        ended, self._ended, self._settled_by = self._ended, [], 0.0
        for _, _, outcome, seconds in ended:
            outcome.timing.counts[bisect_left(SECONDS, seconds)] += 1
            outcome.timing.seconds += seconds
            if outcome.code is not None:
                self.metrics.errors[outcome.code] += 1
        if self._access_log and ended:
            log_requests([Request(at, number, of.said, took, of.level) for at, number, of, took in ended])

    def outcome(
        self,
        method: str,
        route: str,
        path: str,
        status: int,
        code: str | None,
        by: AnsweredBy | None = None,
    ) -> RequestOutcome:
        """Return what became of a request; `route` is its pattern, `code` that of a problem.

        by  the version that answered, or refused; None: the request named none
        """
        version = {} if by is None else by._asdict()
        said = said_of(
            method=method, route=route, path=without_secrets(path[:256]), status=status, code=code, **version
        )
        model, number = ("", "") if by is None else (by.model, str(by.version))
        level = logging.DEBUG if path in PROBES and status == HTTPStatus.OK else logging.INFO
        return RequestOutcome(self.metrics.timing(Series(route, status, model, number)), said, code, level)


def new_request_id() -> str:
    """Return an id that no other request has."""
    return f"{_PROCESS}{next(_SERIAL):08x}"
