"""What a request's scope keeps for figures and traces: notes of its stages, which routes write; its span."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Scope

from service.base.stages import StageNotes, StageTimes
from service.traces.tracer import Trace

NOTES = "xylem.stages"
"""The key of a request's scope under which its notes are."""

TRACE = "xylem.trace"
"""That under which its span is, if it has one."""


def notes_of(scope: Scope) -> StageNotes:
    """Return the notes of a request, which begin anew now."""
    notes: StageNotes = scope.setdefault(NOTES, StageNotes())
    notes.begin()
    return notes


def notes_of_block(scope: Scope, stages: StageTimes) -> tuple[StageNotes, Callable[[object], None]]:
    """Return notes for a block of a stream, and what counts them when it is answered. Event loop only."""
    whole: StageNotes = scope.setdefault(NOTES, StageNotes())
    notes = StageNotes(is_traced=whole.is_traced)

    def count(_: object) -> None:
        stages.count(notes)
        whole.add(notes)

    return notes, count


def trace_id_of(scope: Scope) -> dict[str, str]:
    """Return the field of a log line that says which trace a request belongs to; empty: to none known."""
    trace: Trace | None = scope.get(TRACE)
    return {} if trace is None else {"trace_id": trace.id}


def span_of(scope: Scope) -> str | None:
    """Return the span of a request as others continue it, a `traceparent`; None: it has none."""
    trace: Trace | None = scope.get(TRACE)
    return None if trace is None else trace.traceparent
