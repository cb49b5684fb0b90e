"""Record each answered request: its id, its log line, its figures and its span."""

import asyncio
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import count
from time import perf_counter_ns, time_ns
from typing import NamedTuple, TypeAlias

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

# How long answered requests wait to be counted and logged.
#
# Settling several requests together costs a fraction of settling each by itself: between two
# answers, nothing of that code is left in the processor's caches.
SETTLE_SECONDS = 0.002

# the longest time that requests wait for `settle`, in nanoseconds. After it, the event loop that
# should have settled them must have ended: the next request schedules `settle` in its own loop
_FORGOTTEN_NS = 1_000_000_000

# Returns an id that no other request has.
#
# It is not a Python function, because each request would pay for its call.
new_request_id: Callable[[], str] = map(f"{os.urandom(8).hex()}%08x".__mod__, count(1)).__next__


class RequestOutcome(NamedTuple):
    """The record of all requests that ended alike.

    timing      where they are counted
    log_fields  the fields of their log lines, as JSON
    code        the code of their problem; None: they had none
    level       the level of their log lines
    shape       the common part of their spans; None: they have no spans
    """

    timing: Timing
    log_fields: bytes
    code: str | None
    level: int
    shape: SpanShape | None


# a recorded request: its end, id, outcome, begin, span, and the times of its stages. The times of a
# sampled request are stretches for its span; of another one, intervals to count
_Recorded: TypeAlias = tuple[
    int, str, RequestOutcome, int, Trace | None, Sequence[Stretch], Sequence[StageInterval]
]


class RequestLog:
    """Counts, logs and traces answered requests, several at once. Event loop only.

    access_log  whether each request is logged; all are counted
    tracer      sends the spans of sampled requests; None: traces are off
    """

    def __init__(self, metrics: Metrics, access_log: bool, tracer: Tracer | None = None) -> None:
        self.metrics = metrics
        self.tracer = tracer
        self._access_log = access_log
        self._ended: list[_Recorded] = []
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
        """Record a request that has just been answered; it is settled soon, together with others.

        began   when it began, by `perf_counter_ns`
        trace   its span, whose trace id is in its log line
        stages  the times of its stages, which this call clears
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

    def begin(self, headers: RequestHeaders, path: str = "") -> tuple[str, Trace | None]:
        """Return the id of a request, the client's if it sent one, and its span.

        The span is None if traces are off, the path is one of ALWAYS, or a new trace is not
        sampled.
        """
        request_id = new_request_id() if headers.request_id is None else headers.request_id.decode()
        return (
            (request_id, None)
            if self.tracer is None or path in ALWAYS
            else (request_id, self.tracer.begin(headers.traceparent, headers.tracestate))
        )

    def end(
        self,
        request_id: str,
        ended: EndedRequest,
        began: int,
        trace: Trace | None,
        stages: StageTimings,
    ) -> None:
        """Record a request as `record` does; its RequestOutcome is made from `ended`."""
        self.record(
            request_id, self.outcome(ended, is_traced=stages.is_traced), began, trace, stages
        )

    def settle(self) -> None:
        """Count, log and trace the requests that were recorded."""
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
            bucket = bisect_left(SECONDS, seconds)
            outcome.timing.counts[bucket] += 1
            outcome.timing.seconds += seconds
            if outcome.code is not None:
                self.metrics.errors[outcome.code] += 1
            if trace is not None:
                log_fields = b'%b,"trace_id":"%b"' % (log_fields, trace.id.encode())
                if tracer is not None and outcome.shape is not None and trace.span_id:
                    outcome.timing.exemplars[bucket] = trace, seconds, end_time
                    tracer.send(
                        EndedTrace(
                            trace=trace,
                            shape=outcome.shape,
                            request_id=request_id,
                            began=began,
                            ended=ended,
                            clock_offset=clock_offset,
                            stretches=stretches,
                        )
                    )
            if self._access_log:
                lines.append(Request(end_time, request_id, log_fields, seconds, outcome.level))
        if lines:
            log_requests(lines)

    def outcome(self, ended: EndedRequest, *, is_traced: bool) -> RequestOutcome:
        """Return the record of requests that ended as `ended`; with a shape if `is_traced`."""
        method, route, path, status, code, version, key = ended
        extra_fields = {} if version is None else version._asdict()
        extra_fields |= {} if key is None else {"key": key}
        model, number = ("", "") if version is None else (version.model, str(version.version))
        return RequestOutcome(
            self.metrics.timing(Series(route, status, model, number)),
            encode_fields(
                method=method,
                route=route,
                path=without_secrets(path[:256]),
                status=status,
                code=code,
                **extra_fields,
            ),
            code,
            logging.DEBUG if path in PROBES and status == HTTPStatus.OK else logging.INFO,
            shape_of(ended) if is_traced else None,
        )
