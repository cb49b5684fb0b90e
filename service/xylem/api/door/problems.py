"""Errors -> answers: RFC 9457 bodies.

Every answer that is not 2xx is made here, also the framework's.
"""

from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from xylem.api.door.request_timings import trace_id_of
from xylem.base import AccessRefused, BadInput, XylemError
from xylem.serving import PROBLEMS, code_of, describe_error, log_untold
from xylem_store import StoreError


class BodyTooLarge(BadInput, code="body-too-large"):
    """A body of more bytes than the limit."""


class BodyTimeout(BadInput, code="body-timeout"):
    """A body that did not arrive in time."""


class UnsupportedMediaType(BadInput, code="unsupported-media-type"):
    """A Content-Type that the route does not take."""


class UnsupportedEncoding(BadInput, code="unsupported-content-encoding"):
    """A Content-Encoding that is not gzip."""


class BrokenEncoding(BadInput, code="broken-content-encoding"):
    """A body that says it is gzip data and is not."""


class CorsRefused(BadInput, code="cors-refused"):
    """A question of a page of another origin whether it may send a request, which it may not."""


class BadHead(BadInput, code="http-error"):
    """A request whose head breaks the rules of HTTP."""


class HeadTooLong(BadHead, code="head-too-long"):
    """A request whose target and headers have more bytes than the limit."""


def problem_response(
    scope: Scope, code: str, detail: str, challenge: str | None = None, **members: Any
) -> Response:
    """Return the answer for a fault: its row of the table, `detail`, and members of its own."""
    status, title = PROBLEMS[code]
    root = scope.get("root_path", "")
    body = {
        "type": f"{root}/docs#{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "instance": f"{root}{scope['path']}",
        "request_id": scope.get("request_id"),
        **members,
    }
    if scope["path"].startswith("/v2/"):  # clients of the Open Inference Protocol read it there
        body["error"] = detail
    headers = {"retry-after": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    if challenge is not None:
        headers["www-authenticate"] = challenge
    return Response(orjson.dumps(body), status, headers, media_type="application/problem+json")


def error_response(scope: Scope, error: Exception) -> Response:
    """Return the answer for an error of ours."""
    scope["error_code"] = code_of(error)
    log_untold(error, request_id=scope.get("request_id"), **trace_id_of(scope))
    challenge = error.challenge if isinstance(error, AccessRefused) else None
    return problem_response(scope, challenge=challenge, **describe_error(error))


_HTTP_CODES = {404: "route-not-found", 405: "method-not-allowed"}


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http-error")
    request.scope["error_code"] = code
    headers = dict(error.headers or {})
    if "Allow" in headers:  # of one route; each method has its own
        fitting = [
            route
            for route in request.app.routes
            if route.matches(request.scope)[0] is not Match.NONE
        ]
        headers["Allow"] = ", ".join(
            sorted({method for route in fitting for method in route.methods})
        )
    expected = headers.get("Allow") or "a route of /docs"
    if code not in _HTTP_CODES.values():
        expected = "a request that can be served"
    requested = f"{request.method} {request.url.path[:200]}"
    response = problem_response(request.scope, code, f"expected {expected}, found {requested}")
    response.headers.update(headers)
    return response


def install_handlers(app: FastAPI) -> None:
    """Answer every error of `app` with a problem; the request scope has what is left over."""
    for kind in (XylemError, StoreError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
