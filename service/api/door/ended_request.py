"""What is known of a request that has ended: what figures, log lines and spans say of it alike."""

from __future__ import annotations

from typing import NamedTuple

from service.access.key_text import without_secrets
from service.traces.tracer import SpanShape

_FAILED = 500
"""The least status that is a fault of the service's, and so of its span (OpenTelemetry, HTTP spans)."""


class AnsweredBy(NamedTuple):
    """Which version a request was answered by, and the alias that it was named by; None: by its number."""

    model: str
    version: int
    alias: str | None


ANSWERED_BY = "xylem.answered_by"
"""The key of a request's scope under which a route leaves which version answers it."""


class EndedRequest(NamedTuple):
    """What became of a request.

    route  the route's pattern
    code   that of a problem; None: it had none
    by     the version that answered, or refused; None: the request named none
    key    the id of the key that let it pass; None: it needed none, or had none that does
    """

    method: str
    route: str
    path: str
    status: int
    code: str | None
    by: AnsweredBy | None = None
    key: str | None = None


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
