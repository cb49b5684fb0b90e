"""Turn errors into answers: problem details (RFC 9457).

Every answer whose status is not 2xx is made here, also those for errors of the framework.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from xylem.api.door.request_timings import trace_id_of
from xylem.base import BadInput, XylemError
from xylem.serving import PROBLEMS, code_of, describe_error, log_untold
from xylem_store import StoreError

# When a client may try again after 503: an overload or the loss of a database may be short.
RETRY_AFTER_SECONDS = 1

# the start of paths of the Open Inference Protocol, whose clients read the member `error`
_OPEN_INFERENCE = "/v2/"


class BodyTooLarge(BadInput, code="body-too-large"):
    """A body has more bytes than the limit."""


class BodyTimeout(BadInput, code="body-timeout"):
    """A body did not arrive in time."""


class UnsupportedMediaType(BadInput, code="unsupported-media-type"):
    """A Content-Type is not one that the route takes."""


class UnsupportedEncoding(BadInput, code="unsupported-content-encoding"):
    """A Content-Encoding is not gzip."""


class BrokenEncoding(BadInput, code="broken-content-encoding"):
    """A body is not gzip data, although its Content-Encoding is gzip."""


class CorsRefused(BadInput, code="cors-refused"):
    """A page of another origin asked whether it may send a request, and it may not."""


class BadRange(BadInput, code="bad-range"):
    """The header Range does not name a part of the file."""


class BadHead(BadInput, code="http-error"):
    """The head of a request breaks the rules of HTTP."""


class HeadTooLong(BadHead, code="head-too-long"):
    """The target and headers of a request have more bytes than the limit."""


def problem_response(
    scope: Scope, code: str, detail: str, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """Return the answer for an error: the problem of this code.

    code     a key of PROBLEMS, which has the status and the title
    detail   a sentence on what is wrong
    headers  more headers of the answer
    members  more members of the problem
    """
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
    if scope["path"].startswith(_OPEN_INFERENCE):
        body["error"] = detail
    answer = Response(orjson.dumps(body), status, headers, media_type="application/problem+json")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return answer


def error_response(scope: Scope, error: Exception) -> Response:
    """Return the answer for an error of the service.

    Log the error's message if clients are told less than that.
    """
    scope["error_code"] = code_of(error)
    log_untold(error, request_id=scope.get("request_id"), **trace_id_of(scope))
    return problem_response(
        scope,
        headers=error.headers if isinstance(error, XylemError) else None,
        **describe_error(error),
    )


_HTTP_CODES = {404: "route-not-found", 405: "method-not-allowed"}

# the paths of predict in TensorFlow Serving; without a version one looks like a model's page
_TENSORFLOW_PATH = re.compile(r"(/v1/models/[^/:]+(?:/versions/[^/:]+)?):predict")


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer the errors of the framework: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    tensorflow_path = _TENSORFLOW_PATH.fullmatch(request.scope["path"])
    code = _HTTP_CODES.get(404 if tensorflow_path else error.status_code, "http-error")
    headers = {} if tensorflow_path else dict(error.headers or {})
    request.scope["error_code"] = code
    if "Allow" in headers:  # it names the methods of one route, and each method has its own route
        headers["Allow"] = ", ".join(
            sorted(
                {
                    method
                    for route in request.app.routes
                    if route.matches(request.scope)[0] is not Match.NONE
                    for method in route.methods
                }
            )
        )
    expected = (
        "a request that can be served"
        if code not in _HTTP_CODES.values()
        else headers.get("Allow") or "a route of /docs"
    )
    if tensorflow_path is not None:
        expected = f"POST {request.scope.get('root_path', '')}{tensorflow_path[1]}/predict"
    response = problem_response(
        request.scope, code, f"expected {expected}, found {request.method} {request.url.path[:200]}"
    )
    response.headers.update(headers)
    return response


def install_handlers(app: FastAPI) -> None:
    """Answer the errors of the service, the store and the framework with problems.

    The request scope answers all other errors.
    """
    for kind in (XylemError, StoreError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
