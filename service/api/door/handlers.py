"""Which errors the application answers with problems: ours, and those of the framework."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from model_store.errors import StoreError
from service.api.door.problems import error_response, problem_response
from service.errors import XylemError

_HTTP_CODES = {404: "route-not-found", 405: "method-not-allowed"}


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http-error")
    request.scope["error_code"] = code
    headers = error.headers or {}
    expected = headers.get("Allow") or "a route of /docs"
    if code not in _HTTP_CODES.values():
        expected = "a request that can be served"
    found = f"{request.method} {request.url.path[:200]}"
    response = problem_response(request.scope, code, f"expected {expected}, found {found}")
    response.headers.update(headers)
    return response


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer what the framework's own validation refuses."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"path": ".".join(map(str, fault["loc"])), "detail": str(fault["msg"])} for fault in error.errors()
    ]
    request.scope["error_code"] = "bad-request"
    return problem_response(request.scope, "bad-request", faults[0]["detail"], errors=faults)


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem; the request scope has what is left over."""
    for kind in (XylemError, StoreError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
