"""The span of a job: its phases, and how it ended."""

from time import perf_counter_ns
from typing import Any

from xylem.admin.jobs.job import Job
from xylem.base import (
    SpanShape,
    Stretch,
    Tracer,
)

PHASES_MAX = 256  # the most phases in a span


class JobSpan:
    """The span of a job, a child of the request that submitted it. One thread at a time.

    fields  fields for log lines; empty if there is no span
    """

    def __init__(self, tracer: Tracer | None, job: Job) -> None:
        self._tracer = tracer
        self._job = job
        parent = None if job.traceparent is None else job.traceparent.encode()
        self._trace = None if tracer is None else tracer.begin(parent)
        self._began = perf_counter_ns()
        self.fields: dict[str, Any] = {} if self._trace is None else {"trace_id": self._trace.id}
        self._ended: list[Stretch] = []
        self._phase = ""
        self._phase_began = 0

    def note(self, phase: str) -> None:
        """Record the phase of the job; if it has changed, the phase begins now."""
        if phase == self._phase:
            return
        now = perf_counter_ns()
        if self._phase and len(self._ended) < PHASES_MAX:
            self._ended.append(((self._phase,), (self._phase_began, now)))
        self._phase = phase
        self._phase_began = now

    def end(self, end: str, code: str) -> None:
        """End the span with the end of the job; `code` tells why the job failed."""
        if self._tracer is None or self._trace is None:
            return
        job = self._job
        attributes = (
            ("xylem.kind", job.kind),
            ("xylem.model", job.model),
            ("xylem.end", end),
            ("xylem.job", job.id),
            ("xylem.attempt", job.attempts),
        )
        fault = None if end == "succeeded" else code or end
        shape = SpanShape(f"job {job.kind}", "consumer", attributes, fault)
        self.note("")
        self._tracer.end(self._trace, shape, self._began, self._ended)
