"""Errors that callers of `xylem` may catch. No message and no field has the key of a client.

Errors of models in this process are defined in the service, and imported at their first use:

    XylemError
        BadInput                what cannot be used
            BadData             instances, labels or files
            BadInstance         a single instance
            BadParameter        a parameter or setting
            NotTuned            the model has no tuned thresholds
            UnknownLabel        the model does not have the label
        Unavailable
            DatabaseUnavailable the database of tuned thresholds
    StoreError                  a store: missing, damaged, or not writeable

Errors of the client:

    ClientError
        ProblemError            the server refused: an RFC 9457 problem, with its stable `code`
        ConnectionFailed        no answer: nothing listens, the connection broke, or a time-out
        WaitTimeout             a job that was waited for has not ended in time
        BadAnswer               not an answer of this service: not JSON, cut off, too long, a
                                redirect
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import orjson

if TYPE_CHECKING:
    from xylem.base import BadData as BadData
    from xylem.base import BadInput as BadInput
    from xylem.base import BadInstance as BadInstance
    from xylem.base import BadParameter as BadParameter
    from xylem.base import DatabaseUnavailable as DatabaseUnavailable
    from xylem.base import NotTuned as NotTuned
    from xylem.base import Unavailable as Unavailable
    from xylem.base import UnknownLabel as UnknownLabel
    from xylem.base import XylemError as XylemError
    from xylem_store import StoreError as StoreError

_OF_MODELS = {
    "xylem_store.errors": "StoreError",
    "xylem.base.errors": """
        BadData BadInput BadInstance BadParameter DatabaseUnavailable NotTuned Unavailable
        UnknownLabel XylemError
    """,
}
_DETAIL_MAX = 2000


def __getattr__(name: str) -> object:
    """Import an error of models in this process at its first use: the client needs none."""
    for module, names in _OF_MODELS.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'xylem.errors' has no attribute {name!r}")


class ClientError(Exception):
    """An error of a call of the client."""


class ConnectionFailed(ClientError):
    """No answer: nothing listens, the connection broke, or it took too long.

    was_sent  whether the server may have received the request
    """

    def __init__(self, detail: str, *, was_sent: bool = True) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class WaitTimeout(ClientError):
    """A job that was waited for has not ended in time; it still runs."""


class BadAnswer(ClientError):
    """An answer that cannot be used: not JSON, unexpected, cut off, too long, or a redirect."""


class FieldError(NamedTuple):
    """A fault in a field of a request: where it is, and what was expected and found."""

    path: str
    detail: str


class ProblemError(ClientError):
    """The server refused a request.

    status      of HTTP; 200 for a fault that ended a stream after its head was sent
    code        stable, one of docs/errors.md; empty if the answer was no problem object (for
                example, that of a proxy)
    detail      what was expected and what was found
    errors      the faulty fields, if the server names them
    request_id  the id of the request in the server's log; None if the answer does not have it
    retry_after  seconds that the server asks to wait; None if it asks for none
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
        text = (
            f"{self.status} {self.code}: {self.detail}"
            if self.code
            else f"{self.status}: {self.detail}"
        )
        return f"{text} (request {self.request_id})" if self.request_id else text


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
    if not isinstance(error, dict) or "line" in error or "code" not in error:
        return None
    return problem_from(200, error)


RETRIED = frozenset({200, 429, 502, 503, 504})
"""Statuses to try again after; 200 is a fault that ended a stream after its head."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The rules by which a call that may safely be repeated is tried again.

    Each wait is drawn between half of a bound and all of it; the bound doubles each time
    (exponential backoff with jitter). A Retry-After of the server is waited for in full, up to
    `retry_after_seconds_max`.

    times                    retries after the first try; 0: none
    first_seconds            bound of the first wait
    seconds_max              bound of each wait without Retry-After
    retry_after_seconds_max  bound of a wait for Retry-After
    total_seconds_max        bound of all waits of a call together; a wait beyond it is not begun
    seed                     of the jitter; None: random
    """

    times: int = 4
    first_seconds: float = 0.2
    seconds_max: float = 10.0
    retry_after_seconds_max: float = 60.0
    total_seconds_max: float = 120.0
    seed: int | None = None
    _random: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"retries: expected at least 0, found {self.times}")
        object.__setattr__(self, "_random", random.Random(self.seed))

    def draw(self, n_retries: int) -> float:
        """Return the wait after `n_retries` retries, without Retry-After."""
        bound = min(self.first_seconds * 2.0 ** min(n_retries, 32), self.seconds_max)
        return bound * self._random.uniform(0.5, 1.0)


class Attempts:
    """The retries of one call: their number, and the time waited so far."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._tried = 0
        self._waited = 0.0

    def next_wait(self, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next retry; None if there is no further retry.

        retry_after  the seconds of the server's Retry-After, if it sent one
        """
        limits = self._retries
        if self._tried >= limits.times:
            return None
        wait = limits.draw(self._tried)
        if retry_after is not None:
            wait = min(retry_after, limits.retry_after_seconds_max) + min(
                wait, limits.first_seconds
            )
        if self._waited + wait > limits.total_seconds_max:
            return None
        self._tried += 1
        self._waited += wait
        return wait

    def restart(self) -> None:
        """Count from the beginning, because the call has made progress."""
        self._tried = 0
        self._waited = 0.0


def wait_after(error: ClientError, attempts: Attempts, *, repeatable: bool) -> float:
    """Return the seconds to wait before a failed request is sent again.

    Raises its error if it must not be sent again.
    """
    seconds = None
    if isinstance(error, ConnectionFailed) and (repeatable or not error.was_sent):
        seconds = attempts.next_wait()
    if isinstance(error, ProblemError) and repeatable and error.status in RETRIED:
        seconds = attempts.next_wait(error.retry_after)
    if seconds is None:
        raise error
    return seconds
