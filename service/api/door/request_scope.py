"""The outside of every request: its id, its admission, its log line, its figures, the answer to an error."""

from __future__ import annotations

import logging
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from model_store.errors import StoreError
from service.api.door.admission import Admission
from service.api.door.body_guard import BodyGuard
from service.api.door.ended_request import ANSWERED_BY, EndedRequest
from service.api.door.heads import OWN, headers_of
from service.api.door.problems import error_response, problem_response
from service.api.door.request_log import RequestLog
from service.api.door.stage_notes import NOTES, TRACE, trace_id_of
from service.errors import XylemError
from service.logs import log
from service.stages import StageNotes

CLIENT_GONE = 499
"""The status logged for a request whose client left before the answer."""


class RequestScope:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, admission: Admission, requests: RequestLog) -> None:
        self._app = app
        self._admission = admission
        self._metrics = requests.metrics
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter_ns()
        method = scope["method"]
        if method == "HEAD":  # what GET answers, whose body the server leaves out
            scope = {**scope, "method": "GET"}
        scope[OWN] = own = headers_of(scope["headers"])
        scope["request_id"], trace = self._requests.begin(own, scope["path"])
        if trace is not None:
            scope[TRACE] = trace
        scope[NOTES] = StageNotes(is_traced=trace is not None and trace.span_id != 0)
        bytes_max = self._admission.bytes_max(scope)
        guard = BodyGuard(scope, receive, send, scope["request_id"], bytes_max, self._admission.draining())
        admitted = self._admission.enter(scope)
        self._metrics.in_flight += 1
        try:
            if not admitted:
                raise self._admission.refusal()
            guard.check_head()
            await self._app(scope, guard.receive, guard.send)
        except ClientDisconnect:
            guard.status = CLIENT_GONE
        except Exception as error:
            await self._answer_error(scope, guard, error)
        finally:
            if admitted:
                self._admission.leave()
            self._metrics.in_flight -= 1
            self._record(method, scope, guard.status, started)

    def _record(self, method: str, scope: Scope, status: int, started: int) -> None:
        """Note an answered request: its figures, its log line, its span."""
        route, code = getattr(scope.get("route"), "path", "none"), scope.get("error_code")
        principal = scope.get("state", {}).get("principal")
        key = None if principal is None else principal.key_id or None
        ended = EndedRequest(method, route, scope["path"], status, code, scope.get(ANSWERED_BY), key)
        self._requests.end(scope["request_id"], ended, started, scope.get(TRACE), scope[NOTES])

    async def _answer_error(self, scope: Scope, guard: BodyGuard, error: Exception) -> None:
        """Answer with the error's problem; raise it again, logged, when an answer has begun already."""
        foreseen = isinstance(error, XylemError | StoreError)
        if not foreseen or guard.status:
            log(logging.ERROR, "failure", request_id=scope["request_id"], error=error, **trace_id_of(scope))
        if guard.status:
            raise error
        if foreseen:
            answer = error_response(scope, error)
        else:
            scope["error_code"] = "internal-error"
            detail = "the service failed; its log has the request's id"
            answer = problem_response(scope, "internal-error", detail)
        await answer(scope, guard.receive, guard.send)
