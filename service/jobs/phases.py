"""The span of a job, and its phases beneath it, which began and ended as its process told them."""

from time import perf_counter_ns
from typing import Any

from service.base.stages import Stretch
from service.jobs.job import Job
from service.traces.tracer import SpanShape, Tracer

PHASES_MAX = 256
"""The most phases that are told of."""


class JobSpan:
    """The span of a job, which continues that of the request that made it. One thread at a time.

    fields   what log lines say of it; nothing where there is none
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
        """Note which phase the job is in: another one than before has begun now."""
        if phase == self._phase:
            return
        now = perf_counter_ns()
        if self._phase and len(self._ended) < PHASES_MAX:
            self._ended.append(((self._phase,), (self._phase_began, now)))
        self._phase, self._phase_began = phase, now

    def end(self, end: str, code: str) -> None:
        """End it as the job has ended; `code` says why it failed."""
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
        fault = code or end if end != "succeeded" else None
        shape = SpanShape(f"job {job.kind}", "consumer", attributes, fault)
        self.note("")
        self._tracer.end(self._trace, shape, self._began, self._ended)
