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
    Request,
    SpanShape,
    StageInterval,
    StageTimings,
    Stretch,
    Trace,
    Tracer,
    encode_fields,
    log_requests,
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
    log_fields: bytes
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
            tuple[int, str, RequestOutcome, int, Trace | None, Sequence[Stretch], Sequence[StageInterval]]
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
        stretches: Sequence[Stretch] = ()
        intervals: Sequence[StageInterval] = ()
        if stages is not None:
            if stages.is_traced:
                self.metrics.stages.count(stages)
                stretches = stages.drain_stages()
            elif stages.intervals:
                intervals = stages.intervals
                stages.intervals = []
        now = perf_counter_ns()
        if now > self._settled_by:
            self._settled_by = now + _FORGOTTEN_NS
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self.settle)
        self._ended.append((now, request_id, outcome, began, trace, stretches, intervals))

    def begin(self, request_headers: RequestHeaders, path: str = "") -> tuple[str, Trace | None]:
        """Return the id of a request, which it may bring, and its span, which probes never have."""
        request_id = (
            new_request_id()
            if request_headers.request_id is None
            else request_headers.request_id.decode()
        )
        if self.tracer is None or path in ALWAYS:
            return request_id, None
        return request_id, self.tracer.begin(
            request_headers.traceparent, request_headers.tracestate
        )

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
        ended_requests = self._ended
        self._ended = []
        self._settled_by = 0
        clock_offset = time_ns() - perf_counter_ns()
        tracer = self.tracer
        lines = []
        for ended, request_id, outcome, began, trace, stretches, intervals in ended_requests:
            if intervals:
                self.metrics.stages.count_all(intervals)
            seconds = 1e-9 * (ended - began)
            end_time = 1e-9 * (ended + clock_offset)
            log_fields = outcome.log_fields
            place = bisect_left(SECONDS, seconds)
            outcome.timing.counts[place] += 1
            outcome.timing.seconds += seconds
            if outcome.code is not None:
                self.metrics.errors[outcome.code] += 1
            if trace is not None:
                log_fields = b'%b,"trace_id":"%b"' % (log_fields, trace.id.encode())
                if tracer is not None and outcome.shape is not None and trace.span_id:
                    outcome.timing.exemplars[place] = trace, seconds, end_time
                    tracer.send(
                        EndedTrace(
                            trace=trace,
                            shape=outcome.shape,
                            request_id=request_id,
                            began=began,
                            ended=ended,
                            since=clock_offset,
                            stretches=stretches,
                        )
                    )
            if self._access_log:
                lines.append(Request(end_time, request_id, log_fields, seconds, outcome.level))
        if lines:
            log_requests(lines)

    def outcome(self, ended: EndedRequest, *, is_traced: bool) -> RequestOutcome:
        """Return what is noted of requests that ended so;
        `is_traced`: of those that have a span, too.
        """
        method, route, path, status, code, answered_by, key = ended
        extra_fields = {} if answered_by is None else answered_by._asdict()
        extra_fields |= {} if key is None else {"key": key}
        log_fields = encode_fields(
            method=method,
            route=route,
            path=without_secrets(path[:256]),
            status=status,
            code=code,
            **extra_fields,
        )
        model, number = (
            ("", "") if answered_by is None else (answered_by.model, str(answered_by.version))
        )
        level = logging.DEBUG if path in PROBES and status == HTTPStatus.OK else logging.INFO
        timing = self.metrics.timing(Series(route, status, model, number))
        return RequestOutcome(
            timing, log_fields, code, level, shape_of(ended) if is_traced else None
        )
