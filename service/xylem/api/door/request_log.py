"""What is noted of each answered request: its id, its log line, its figures and its span."""

import asyncio
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import count
from time import perf_counter_ns, time_ns
from typing import NamedTuple

from xylem.api.door.admission import ALWAYS, PROBES
from xylem.api.door.heads import RequestHeaders
from xylem.api.door.metrics import SECONDS, Metrics, Series, Timing
from xylem.api.door.request_timings import EndedRequest, shape_of
from xylem.base import (
    EndedTrace,
    Noted,
    Request,
    SpanShape,
    StageTimings,
    Stretch,
    Trace,
    Tracer,
    log_requests,
    said_of,
    without_secrets,
)

SETTLE_SECONDS = 0.002
"""For so long requests that were answered wait to be counted and logged: what is done for several
at once costs a fraction of what it does for each, between answers that leave nothing of it in the
caches.
"""

_FORGOTTEN_NS = 1_000_000_000
"""When one waits for longer, the event loop that was to settle it has ended: the next
asks its own.
"""

new_request_id: Callable[[], str] = map(f"{os.urandom(8).hex()}%08x".__mod__, count(1)).__next__
"""Returns an id that no other request has; without a function of
Python's, which each request would call.
"""


class RequestOutcome(NamedTuple):
    """What is noted of requests that ended alike: where they count, what is logged.

    shape  of the span; None: there is none
    """

    timing: Timing
    said: bytes
    code: str | None
    level: int
    shape: SpanShape | None


class RequestLog:
    """Counts, logs and traces answered requests, several at once. Event loop only.

    access_log  whether each is logged; all are counted
    tracer      what sends the spans of those that are sampled; None: traces are off
    """

    def __init__(self, metrics: Metrics, access_log: bool, tracer: Tracer | None = None) -> None:
        self.metrics = metrics
        self.tracer = tracer
        self._access_log = access_log
        self._ended: list[
            tuple[int, str, RequestOutcome, int, Trace | None, Sequence[Stretch], Sequence[Noted]]
        ] = []
        self._settled_by = 0
        metrics.settle = self.settle

    def record(
        self,
        request_id: str,
        outcome: RequestOutcome,
        began: int,
        trace: Trace | None = None,
        stages: StageTimings | None = None,
    ) -> None:
        """Note a request that is answered now, to be settled in a
        moment, with those that follow it.

        began   when it began, by `perf_counter_ns`
        trace   which tells of it, and whose id its log line has
        stages  its stages, which begin anew
        """
        told: Sequence[Stretch] = ()
        noted: Sequence[Noted] = ()
        if stages is not None:
            if stages.is_traced:
                self.metrics.stages.count(stages)
                told = stages.drain_stages()
            elif stages.noted:
                noted = stages.noted
                stages.noted = []
        now = perf_counter_ns()
        if now > self._settled_by:
            self._settled_by = now + _FORGOTTEN_NS
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self.settle)
        self._ended.append((now, request_id, outcome, began, trace, told, noted))

    def begin(self, own: RequestHeaders, path: str = "") -> tuple[str, Trace | None]:
        """Return the id of a request, which it may bring, and its span, which probes never have."""
        request_id = new_request_id() if own.request_id is None else own.request_id.decode()
        if self.tracer is None or path in ALWAYS:
            return request_id, None
        return request_id, self.tracer.begin(own.traceparent, own.tracestate)

    def end(
        self,
        request_id: str,
        ended: EndedRequest,
        began: int,
        trace: Trace | None,
        stages: StageTimings,
    ) -> None:
        """Note a request as `record` does, that ended in a way of its own."""
        self.record(
            request_id, self.outcome(ended, is_traced=stages.is_traced), began, trace, stages
        )

    def settle(self) -> None:
        """Count, log and trace what was noted."""
        noted = self._ended
        self._ended = []
        self._settled_by = 0
        since = time_ns() - perf_counter_ns()
        tracer = self.tracer
        lines = []
        for ended, request_id, outcome, began, trace, told, stages in noted:
            if stages:
                self.metrics.stages.count_all(stages)
            seconds = 1e-9 * (ended - began)
            at = 1e-9 * (ended + since)
            said = outcome.said
            place = bisect_left(SECONDS, seconds)
            outcome.timing.counts[place] += 1
            outcome.timing.seconds += seconds
            if outcome.code is not None:
                self.metrics.errors[outcome.code] += 1
            if trace is not None:
                said = b'%b,"trace_id":"%b"' % (said, trace.id.encode())
                if tracer is not None and outcome.shape is not None and trace.span_id:
                    outcome.timing.exemplars[place] = trace, seconds, at
                    tracer.send(
                        EndedTrace(
                            trace=trace,
                            shape=outcome.shape,
                            request_id=request_id,
                            began=began,
                            ended=ended,
                            since=since,
                            stretches=told,
                        )
                    )
            if self._access_log:
                lines.append(Request(at, request_id, said, seconds, outcome.level))
        if lines:
            log_requests(lines)

    def outcome(self, ended: EndedRequest, *, is_traced: bool) -> RequestOutcome:
        """Return what is noted of requests that ended so;
        `is_traced`: of those that have a span, too.
        """
        method, route, path, status, code, by, key = ended
        more = {} if by is None else by._asdict()
        more |= {} if key is None else {"key": key}
        said = said_of(
            method=method,
            route=route,
            path=without_secrets(path[:256]),
            status=status,
            code=code,
            **more,
        )
        model, number = ("", "") if by is None else (by.model, str(by.version))
        level = logging.DEBUG if path in PROBES and status == HTTPStatus.OK else logging.INFO
        timing = self.metrics.timing(Series(route, status, model, number))
        return RequestOutcome(timing, said, code, level, shape_of(ended) if is_traced else None)
