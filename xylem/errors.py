"""Errors of the client. No message, and no field, has the key.

ClientError
├── ProblemError        the server refused: an RFC 9457 problem, with its stable `code`
├── ConnectionFailed    no answer: nobody listens, the connection broke, it took too long
├── WaitTimeout         a job that was waited for has not ended in time
└── BadAnswer           an answer that is none of this service: not JSON, cut off, too long, a redirect
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import orjson

_DETAIL_MAX = 2000


class ClientError(Exception):
    """Anything a call of the client fails at."""


class ConnectionFailed(ClientError):
    """There is no answer: nobody listens, the connection broke, or it took too long.

    was_sent  whether the server may have seen the request
    """

    def __init__(self, detail: str, *, was_sent: bool = True) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class WaitTimeout(ClientError):
    """A job that was waited for has not ended in time; it goes on."""


class BadAnswer(ClientError):
    """An answer that cannot be used: not JSON, not of the expected shape, cut off, too long, a redirect."""


class FieldError(NamedTuple):
    """A fault of a field of a request: where it is, and what was expected and found."""

    path: str
    detail: str


class ProblemError(ClientError):
    """The server refused a request.

    status      of HTTP; 200 for a fault that ended a stream after its head was sent
    code        stable, one of docs/errors.md; empty if the answer was no problem object (of a proxy, say)
    detail      what was expected and what was found
    errors      the fields at fault, where the server names them
    request_id  by which the server's log knows the request; None if it was not told
    retry_after  seconds that the server asks to wait; None: it does not
    """

    retry_after: float | None = None

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: tuple[FieldError, ...] = (),
        request_id: str | None = None,
    ) -> None:
        super().__init__(status, code, detail, errors, request_id)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.request_id = request_id

    def __str__(self) -> str:
        said = f"{self.status} {self.code}: {self.detail}" if self.code else f"{self.status}: {self.detail}"
        return f"{said} (request {self.request_id})" if self.request_id else said


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """Return the error that an answer other than success is; a body that is no problem object is not shown.

    headers  with names in lower case
    """
    if 300 <= status < 400:
        return BadAnswer(f"expected an answer, found a redirect ({status}), which is not followed")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("code"), str):
        fields = {"detail": "expected a problem object, found another answer"}
    error = problem_from(status, fields, headers.get("x-request-id"))
    error.retry_after = retry_after(headers)
    return error


def problem_from(status: int, fields: dict[str, object], request_id: str | None = None) -> ProblemError:
    """Return the error of a problem object, or of the error of a stream."""
    told = fields.get("request_id")
    return ProblemError(
        status,
        str(fields.get("code", "")),
        str(fields.get("detail", ""))[:_DETAIL_MAX],
        field_errors(fields.get("errors")),
        told if isinstance(told, str) else request_id,
    )


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that Retry-After asks for, as a number or as a date; None without a sane one.

    headers  with lower-case names
    now      seconds since the epoch, for a date
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def field_errors(value: object) -> tuple[FieldError, ...]:
    """Return the faults of fields that an error object lists."""
    if not isinstance(value, list):
        return ()
    return tuple(
        FieldError(str(one.get("path", "")), str(one.get("detail", "")))
        for one in value
        if isinstance(one, dict)
    )


def fault_of_stream(line: bytes) -> ProblemError | None:
    """Return the error that ended a stream of answers, if its last line tells one: it has no `line`."""
    if not line.startswith(b'{"error"'):
        return None
    try:
        error = orjson.loads(line)["error"]
    except orjson.JSONDecodeError:
        return None
    if not isinstance(error, dict) or "line" in error or "code" not in error:
        return None
    return problem_from(200, error)
