"""The span of a request, and its stages' beneath it. Nothing here runs while traces are off."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from starlette.types import Scope

from service.access.key_text import without_secrets
from service.api.door.admission import ALWAYS
from service.api.door.request_log import AnsweredBy
from service.api.door.stage_notes import TRACE
from service.stages import STAGES
from service.traces.context import TRACESTATE_MAX
from service.traces.tracer import SpanFacts, Trace, Tracer

_FAILED = 500
"""The least status that is a fault of the service's, and so of its span (OpenTelemetry, HTTP spans)."""


class Exchange(NamedTuple):
    """What a span says of a request and its answer.

    began   when the request came, by `perf_counter_ns`
    code    that of a problem
    by      the version that answered
    """

    request_id: str
    method: str
    route: str
    path: str
    status: int
    code: str | None
    by: AnsweredBy | None
    began: int


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


class EndedRequest(NamedTuple):
    """A request that was answered: what its span tells, once it is sent.

    stages  (stage, began, ended) of each of its stages
    """

    exchange: Exchange
    stages: Sequence[tuple[int, int, int]]

    @property
    def n_parts(self) -> int:
        """Return how many stages it has."""
        return len(self.stages)

    def facts(self) -> SpanFacts:
        """Return what the span says."""
        exchange, by = self.exchange, self.exchange.by
        attributes: dict[str, str | int | bool] = {
            "http.request.method": exchange.method,
            "http.route": exchange.route,
            "url.path": without_secrets(exchange.path[:256]),
            "http.response.status_code": exchange.status,
            "xylem.request_id": exchange.request_id,
        }
        if by is not None:
            attributes |= {"xylem.model": by.model, "xylem.version": by.version}
            if by.alias is not None:
                attributes["xylem.alias"] = by.alias
        fault = exchange.code or str(exchange.status) if exchange.status >= _FAILED else None
        if exchange.code is not None:
            attributes["xylem.code"] = exchange.code
        stages = sorted(self.stages, key=itemgetter(1))
        parts = [(STAGES[stage], began, ended) for stage, began, ended in stages]
        name = f"{exchange.method} {exchange.route}"
        return SpanFacts(name, "server", exchange.began, attributes, parts, fault)
