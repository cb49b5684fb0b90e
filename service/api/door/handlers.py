"""Which errors the application answers with problems: ours, and those of the framework."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from model_store.errors import StoreError
from service.api.door.problems import error_response, problem_response
from service.base.errors import XylemError

_HTTP_CODES = {404: "route-not-found", 405: "method-not-allowed"}


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, error)


async def _answer_http_error(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown routes and methods."""
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http-error")
    request.scope["error_code"] = code
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = _methods_of(request, routes) or headers["Allow"]
    expected = headers.get("Allow") or "a route of /docs"
    if code not in _HTTP_CODES.values():
        expected = "a request that can be served"
    found = f"{request.method} {request.url.path[:200]}"
    response = problem_response(request.scope, code, f"expected {expected}, found {found}")
    response.headers.update(headers)
    return response


def _methods_of(request: Request, routes: Sequence[BaseRoute]) -> str:
    """Return the methods of a path: the framework names those of one route, and each method has its own."""
    found: set[str] = set()
    for route in routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return ", ".join(sorted(found))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer what the framework's own validation refuses."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"path": ".".join(map(str, fault["loc"])), "detail": str(fault["msg"])} for fault in error.errors()
    ]
    request.scope["error_code"] = "bad-request"
    return problem_response(request.scope, "bad-request", faults[0]["detail"], errors=faults)


def install(app: FastAPI, routes: Sequence[BaseRoute] = ()) -> None:
    """Answer every error of `app` with a problem; the request scope has what is left over.

    routes  of the app: of a path's, 405 names all methods
    """
    for kind in (XylemError, StoreError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(HTTPException, functools.partial(_answer_http_error, routes))
    app.add_exception_handler(RequestValidationError, _answer_invalid)
