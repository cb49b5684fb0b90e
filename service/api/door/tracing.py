"""The span of a request, and its stages' beneath it. Nothing here runs while traces are off."""

from __future__ import annotations

from starlette.types import Scope

from service.access.key_text import without_secrets
from service.api.door.admission import ALWAYS
from service.api.door.ended_request import EndedRequest
from service.api.door.stage_notes import TRACE
from service.traces.context import TRACESTATE_MAX
from service.traces.tracer import SpanShape, Trace, Tracer

_FAILED = 500
"""The least status that is a fault of the service's, and so of its span (OpenTelemetry, HTTP spans)."""


def begin_trace(tracer: Tracer, scope: Scope) -> Trace | None:
    """Return the span of a request, as its headers say; None: it has none, as probes never have."""
    if scope["path"] in ALWAYS:
        return None
    parents, states = [], []
    for name, value in scope["headers"]:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    state = b",".join(states)  # a list of several headers, as others are (W3C Trace Context, 3.3.1)
    trace = tracer.begin(parents[0] if len(parents) == 1 else None, state[: TRACESTATE_MAX + 1])
    if trace is not None:
        scope[TRACE] = trace
    return trace


def shape_of(ended: EndedRequest) -> SpanShape:
    """Return what the spans of requests have in common that end alike."""
    method, route, path, status, code, by, _ = ended
    attributes: list[tuple[str, str | int]] = [
        ("http.request.method", method),
        ("http.route", route),
        ("url.path", without_secrets(path[:256])),
        ("http.response.status_code", status),
    ]
    if by is not None:
        attributes += [("xylem.model", by.model), ("xylem.version", by.version)]
        if by.alias is not None:
            attributes.append(("xylem.alias", by.alias))
    if code is not None:
        attributes.append(("xylem.code", code))
    fault = code or str(status) if status >= _FAILED else None
    return SpanShape(f"{method} {route}", "server", tuple(attributes), fault)
