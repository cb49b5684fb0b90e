"""The errors that answers of a server stand for."""

from collections.abc import Mapping

import orjson

from xylem.errors import BadAnswer, ClientError, FieldError, ProblemError

_DETAIL_MAX = 2000  # the most characters of a server's message that an error shows


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """Return the error for an answer other than success; only a problem object is shown.

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
    retry_after = headers.get("retry-after", "")
    if retry_after.isascii() and retry_after.isdigit():
        error.retry_after = float(retry_after[:12])
    return error


def problem_from(
    status: int, fields: dict[str, object], request_id: str | None = None
) -> ProblemError:
    """Return the error for a problem object, or for the error object of a stream."""
    stated_id = fields.get("request_id")
    return ProblemError(
        status,
        str(fields.get("code", "")),
        str(fields.get("detail", ""))[:_DETAIL_MAX],
        field_errors(fields.get("errors")),
        stated_id if isinstance(stated_id, str) else request_id,
    )


def field_errors(value: object) -> tuple[FieldError, ...]:
    """Return the faults of fields in the list of an error object."""
    if not isinstance(value, list):
        return ()
    return tuple(
        FieldError(str(entry.get("path", "")), str(entry.get("detail", "")))
        for entry in value
        if isinstance(entry, dict)
    )


def fault_of_stream(line: bytes) -> ProblemError | None:
    """Return the error that ended a stream of answers, from its last line; None if there is none.

    Such an error has no `line`: it does not belong to a single line.
    """
    if not line.startswith(b'{"error"'):
        return None
    try:
        error = orjson.loads(line)["error"]
    except orjson.JSONDecodeError:
        return None
    return (
        problem_from(200, error)
        if isinstance(error, dict) and "code" in error and "line" not in error
        else None
    )
