"""Data of a request for figures, log lines and traces: its stages, its span, and how it ended."""

from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from xylem.base import SpanShape, StageTimes, StageTimings, Trace, without_secrets

# The key of a request's ASGI scope under which its timings are.
TIMINGS = "xylem.stages"

# The key of a request's ASGI scope under which its span is, if it has one.
TRACE = "xylem.trace"


def timings_of(scope: Scope) -> StageTimings:
    """Return the timings of a request, and begin its next stage."""
    timings: StageTimings = scope.setdefault(TIMINGS, StageTimings())
    timings.begin()
    return timings


def timings_of_block(
    scope: Scope, stages: StageTimes
) -> tuple[StageTimings, Callable[[object], None]]:
    """Return timings for one block of a stream, and a function that counts them.

    The function is to be called when the block is answered. Event loop only.
    """
    request_timings: StageTimings = scope.setdefault(TIMINGS, StageTimings())
    timings = StageTimings(is_traced=request_timings.is_traced)

    def count(_: object) -> None:
        stages.count(timings)
        request_timings.add(timings)

    return timings, count


def trace_id_of(scope: Scope) -> dict[str, str]:
    """Return the field `trace_id` of a request's log lines; empty if it has no trace."""
    trace: Trace | None = scope.get(TRACE)
    return {} if trace is None else {"trace_id": trace.id}


def span_of(scope: Scope) -> str | None:
    """Return the request's span as a `traceparent`, which others continue; None without a span."""
    trace: Trace | None = scope.get(TRACE)
    return None if trace is None else trace.traceparent


# the least status that is a fault of the server, and of its span (OpenTelemetry, HTTP spans)
_FAULT_STATUS_MIN = 500

_PATH_CHARACTERS_MAX = 256  # of a path in a span


class AnsweredBy(NamedTuple):
    """The version that answered a request.

    alias  the alias by which the request named it; None: it named the version by its number
    """

    model: str
    version: int
    alias: str | None


# The key of a request's ASGI scope under which a route puts the version that answers it.
ANSWERED_BY = "xylem.answered_by"


class EndedRequest(NamedTuple):
    """How a request ended.

    code         the code of its problem; None: it had no problem
    answered_by  the version that answered, or refused; None: the request named no version
    key          the id of the key with which it was allowed; None: it needed no key, or had no
                 valid one
    """

    method: str
    route: str
    path: str
    status: int
    code: str | None
    answered_by: AnsweredBy | None = None
    key: str | None = None


def shape_of(ended: EndedRequest) -> SpanShape:
    """Return the common part of the spans of all requests that ended alike."""
    method, route, path, status, code, answered_by, _ = ended
    model, version, alias = answered_by or (None, None, None)
    attributes = (
        ("http.request.method", method),
        ("http.route", route),
        ("url.path", without_secrets(path[:_PATH_CHARACTERS_MAX])),
        ("http.response.status_code", status),
        ("xylem.model", model),
        ("xylem.version", version),
        ("xylem.alias", alias),
        ("xylem.code", code),
    )
    return SpanShape(
        f"{method} {route}",
        "server",
        tuple((name, value) for name, value in attributes if value is not None),
        code or str(status) if status >= _FAULT_STATUS_MIN else None,
    )
