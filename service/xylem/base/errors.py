"""Errors of the service. `code` is stable: clients and scripts may rely on it. No HTTP here.

BadInput is the caller's fault: the command line exits with 2. Unavailable may succeed later.
`docs/errors.md` lists them all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self


class XylemError(Exception):
    """Anything the service refuses or fails at; the message says
    what was expected and what was found.
    """

    code = "error"

    public_message: str | None = None
    """What clients are told instead of the message, where that says more than they should know."""

    def __init_subclass__(cls, code: str | None = None) -> None:
        """Take the code of a class; one that says none has that of the class above it."""
        if code is not None:
            cls.code = code


class BadInput(XylemError, code="bad-input"):
    """The caller gave something that cannot be used; `path` says where
    in a request: `instances[3].text`.
    """

    path: str | None = None

    def at(self, path: str) -> Self:
        """Return this error, its place being `path`."""
        self.path = path
        return self

    def without_frames(self) -> Self:
        """Return this error as one that is told later, without the frames that raised it.

        A frame has its callers', and who keeps the error is one of them: a cycle, with all that
        they hold.
        """
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self

    def within(self, outer: str) -> Self:
        """Return this error, its place so far being one within `outer`."""
        return self.at(f"{outer}.{self.path}" if self.path else outer)

    def without(self, outer: str) -> Self:
        """Return this error, its place being told from `outer` on, within which it was."""
        return self.at((self.path or "").removeprefix(outer).removeprefix("."))


class BadData(BadInput, code="bad-data"):
    """A data file that cannot be used; the message begins with `file:line:`."""


class BadModel(BadInput, code="bad-model"):
    """A file of a model that another library saved, which cannot be
    imported; the message begins with it.
    """


class ParameterFault(NamedTuple):
    """What is wrong with a parameter; the name is empty where it is none's alone."""

    name: str
    message: str


class BadParameter(BadInput, code="bad-parameter"):
    """A parameter or setting out of its range, of the wrong type, or unknown.

    `faults` has what is wrong with each of several parameters that were given together.
    """

    faults: tuple[ParameterFault, ...] = ()

    @classmethod
    def of(cls, faults: Iterable[ParameterFault]) -> Self:
        """Return the error that tells all these faults."""
        all_faults = tuple(faults)
        error = cls(
            "; ".join(f"{name}: {message}" if name else message for name, message in all_faults)
        )
        error.faults = all_faults
        return error


class BadInstance(BadInput, code="bad-instance"):
    """An instance that cannot be turned into a sparse row."""


class BadRequest(BadInput, code="bad-request"):
    """A field of a request that is unknown, missing, of the wrong type or out of its range."""


class BadFields(BadRequest):
    """Several fields of a request that cannot be used; `faults` has each, with its place."""

    def __init__(self, faults: Sequence[BadInput]) -> None:
        super().__init__("; ".join(map(located, faults)))
        self.faults = tuple(faults)


class MalformedJson(BadInput, code="malformed-json"):
    """Bytes that are not JSON."""


class UnsupportedOption(BadInput, code="unsupported-option"):
    """An option that the route or the model does not have."""


class NotTuned(BadInput, code="thresholds-not-tuned"):
    """Tuned thresholds were asked of a model that has none; the message says how to tune them."""


class UnknownLabel(BadInput, code="unknown-label"):
    """A label that the model does not have."""


class LimitExceeded(BadInput, code="limit-exceeded"):
    """More than a limit allows; the message names the limit."""


class KeyNotFound(BadInput, code="key-not-found"):
    """A key of the service that is not there, or is not in force where it must be."""


class AccessRefused(BadInput, code="unauthorized"):
    """A request without a key where one is needed, or with one that is unknown.

    challenge  what the header WWW-Authenticate of the answer says (RFC 6750)
    """

    challenge = 'Bearer realm="xylem"'


class KeyRevoked(AccessRefused, code="key-revoked"):
    """A key that was revoked."""

    challenge = 'Bearer realm="xylem", error="invalid_token"'


class KeyExpired(AccessRefused, code="key-expired"):
    """A key whose time is over."""

    challenge = 'Bearer realm="xylem", error="invalid_token"'


class ScopeMissing(AccessRefused, code="scope-missing"):
    """A key in force that does not have the scope that the route asks for."""

    challenge = 'Bearer realm="xylem", error="insufficient_scope"'


class JobNotFound(BadInput, code="job-not-found"):
    """No job has this id, or its history is not kept any more."""


class ScheduleNotFound(BadInput, code="schedule-not-found"):
    """There is no schedule with this id."""


class JobConflict(BadInput, code="job-conflict"):
    """The state of a job forbids what was asked."""


class JobFailed(XylemError):
    """A job that a request waited for has failed."""

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class IdempotencyConflict(BadInput, code="idempotency-conflict"):
    """An idempotency key that came with another request before."""


class DataNotFound(BadInput, code="data-not-found"):
    """No file of this name below the data directory."""


class Unavailable(XylemError, code="unavailable"):
    """Cannot be done now; the same call may succeed later."""


class Overloaded(Unavailable, code="overloaded"):
    """Too much is asked at once."""


class TimedOut(Unavailable, code="timed-out"):
    """Not answered in the time that a limit gives."""


class ModelUnavailable(Unavailable, code="model-unavailable"):
    """The model is in the store, but its version cannot be served."""


class DatabaseUnavailable(Unavailable, code="database-unavailable"):
    """The database does not answer, or cannot be written."""

    @classmethod
    def confidential(cls, message: str) -> Self:
        """Return an error with what the database said, which may name
        hosts, users and paths: for the log.
        """
        error = cls(message)
        error.public_message = "expected a database that answers, found that it does not"
        return error


class DatabaseUnsupported(DatabaseUnavailable, code="database-unsupported"):
    """The database has the schema of a newer release, or an encoding other than UTF8."""


class ForeignThresholds(DatabaseUnavailable, code="thresholds-foreign"):
    """The thresholds that the database has for a version are those of another one of that name."""


def public_message_of(error: Exception) -> str:
    """Return what clients are told of an error: of one of ours what it
    tells, of any other its type alone.

    Messages of the system name paths of the machine; those are for the log.
    """
    if not hasattr(error, "public_message"):  # which errors of the service and of the store have
        return type(error).__name__
    return error.public_message or located(error)


def located(error: Exception) -> str:
    """Return the message of an error, the place of a fault in a request in front of it."""
    path = error.path if isinstance(error, BadInput) else None
    return f"{path}: {error}" if path else str(error)
