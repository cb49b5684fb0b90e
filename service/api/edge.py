"""The outside of every request: its id, its log line, its figures, and the answer to what nobody foresaw."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.metrics import Metrics
from service.api.problems import problem_response
from service.logs import log

CLIENT_GONE = 499
"""The status logged for a request whose client left before the answer."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Edge:
    """ASGI middleware around all others.

    draining   whether the server is about to stop: connections are then closed after their answer
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, access_log: bool, draining: Callable[[], bool]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._access_log = access_log
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["request_id"] = request_id.decode()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-request-id", request_id)]
                if self._draining():
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        started = time.perf_counter()
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_GONE
        except Exception as error:
            log(logging.ERROR, "failure", request_id=scope["request_id"], error=error)
            if status:
                raise
            scope["error_code"] = "internal-error"
            detail = "the service failed; its log has the request's id"
            await problem_response(scope, "internal-error", detail)(scope, receive, send_with_id)
        finally:
            self._metrics.in_flight.dec()
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request and log it."""
        route = getattr(scope.get("route"), "path", "none")
        code = scope.get("error_code")
        self._metrics.record_request(route, status, code, seconds)
        if self._access_log:
            log(
                logging.INFO,
                "request",
                request_id=scope["request_id"],
                method=scope["method"],
                route=route,
                path=scope["path"][:256],
                status=status,
                code=code,
                ms=round(1000 * seconds, 3),
            )


def _request_id(scope: Scope) -> bytes:
    """Return the id that the client gave the request if it is a sane one, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return os.urandom(12).hex().encode()
