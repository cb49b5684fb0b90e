"""Errors -> answers: RFC 9457 bodies. Every answer that is not 2xx is made here, also the framework's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Scope

from service.api.door.stage_notes import trace_id_of
from service.base.errors import AccessRefused, BadInput
from service.serving.problems import PROBLEMS, code_of, describe_error, log_untold

RETRY_AFTER_SECONDS = 1

_OPEN_INFERENCE = "/v2/"
"""What the paths of the Open Inference Protocol begin with: its clients read the member `error`."""


class BodyTooLarge(BadInput):
    """A body of more bytes than the limit."""

    code = "body-too-large"


class BodyTimeout(BadInput):
    """A body that did not arrive in time."""

    code = "body-timeout"


class UnsupportedMediaType(BadInput):
    """A Content-Type that the route does not take."""

    code = "unsupported-media-type"


class UnsupportedEncoding(BadInput):
    """A Content-Encoding: bodies are taken as they are."""

    code = "unsupported-content-encoding"


class BadHead(BadInput):
    """A request whose head breaks the rules of HTTP."""

    code = "http-error"


class HeadTooLong(BadHead):
    """A request whose target and headers have more bytes than the limit."""

    code = "head-too-long"


def problem_response(
    scope: Scope, code: str, detail: str, challenge: str | None = None, **more: Any
) -> Response:
    """Return the answer for a fault: its row of the table, `detail`, and members of its own.

    challenge  what the header WWW-Authenticate says
    """
    status, title = PROBLEMS[code]
    body = {
        "type": f"/docs#{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "instance": scope["path"],
        "request_id": scope.get("request_id"),
        **more,
    }
    if scope["path"].startswith(_OPEN_INFERENCE):
        body["error"] = detail
    headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    if challenge is not None:
        headers["www-authenticate"] = challenge
    return Response(orjson.dumps(body), status, headers, media_type="application/problem+json")


def error_response(scope: Scope, error: Exception) -> Response:
    """Return the answer for an error of ours."""
    scope["error_code"] = code_of(error)
    log_untold(error, request_id=scope.get("request_id"), **trace_id_of(scope))
    challenge = error.challenge if isinstance(error, AccessRefused) else None
    return problem_response(scope, challenge=challenge, **describe_error(error))
