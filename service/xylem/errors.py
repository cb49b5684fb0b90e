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

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from xylem.base import (
        BadData,
        BadInput,
        BadInstance,
        BadParameter,
        DatabaseUnavailable,
        NotTuned,
        Unavailable,
        UnknownLabel,
        XylemError,
    )
    from xylem_store import StoreError

__all__ = (
    "BadAnswer",
    "BadData",
    "BadInput",
    "BadInstance",
    "BadParameter",
    "ClientError",
    "ConnectionFailed",
    "DatabaseUnavailable",
    "FieldError",
    "NotTuned",
    "ProblemError",
    "StoreError",
    "Unavailable",
    "UnknownLabel",
    "WaitTimeout",
    "XylemError",
)

_OF_MODELS = {
    "xylem_store.errors": "StoreError",
    "xylem.base.errors": """
        BadData BadInput BadInstance BadParameter DatabaseUnavailable NotTuned Unavailable
        UnknownLabel XylemError
    """,
}


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
