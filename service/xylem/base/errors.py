"""Errors of the service. No HTTP here.

`code` is stable: clients and scripts may rely on it. BadInput is the caller's fault: the command
line exits with 2. Unavailable may succeed later. `docs/errors.md` lists all errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self


class XylemError(Exception):
    """An error that the service raises; the message says what was expected and what was found.

    public_message  for clients, if the message itself must not be shown to them; else None
    headers         those of the answer that tells the error
    """

    code = "error"
    public_message: str | None = None
    headers: Mapping[str, str] = {}

    def __init_subclass__(cls, code: str | None = None) -> None:
        if code is not None:
            cls.code = code


class BadInput(XylemError, code="bad-input"):
    """The caller gave something that cannot be used.

    path  where it is in a request, such as `instances[3].text`
    """

    path: str | None = None

    def with_path(self, path: str) -> Self:
        """Set the place in the request to `path`, and return this error."""
        self.path = path
        return self

    def without_frames(self) -> Self:
        """Remove the cause and the frames of this error, and return it, so that it can be kept.

        A traceback refers to the frames of its callers. If one of them keeps the error, both refer
        to each other: a cycle, with all that they hold.
        """
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self

    def within(self, outer: str) -> Self:
        """Put `outer` in front of the place in the request, and return this error."""
        return self.with_path(f"{outer}.{self.path}" if self.path else outer)

    def without(self, outer: str) -> Self:
        """Remove `outer` from the front of the place in the request, and return this error."""
        return self.with_path((self.path or "").removeprefix(outer).removeprefix("."))


class BadData(BadInput, code="bad-data"):
    """A data file that cannot be used; the message begins with `file:line:`."""


class BadModel(BadInput, code="bad-model"):
    """A model file of another library that cannot be imported; the message begins with the file."""


class ParameterFault(NamedTuple):
    """What is wrong with a parameter.

    name  empty if no single parameter is at fault
    """

    name: str
    message: str


class BadParameter(BadInput, code="bad-parameter"):
    """A parameter or setting that is unknown, of the wrong type, or out of its range.

    faults  what is wrong with each parameter, where several were checked together
    """

    faults: tuple[ParameterFault, ...] = ()

    @classmethod
    def from_faults(cls, faults: Iterable[ParameterFault]) -> Self:
        """Return one error that has all these faults."""
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
    """Several fields of a request that cannot be used.

    faults  an error for each field, with its place
    """

    def __init__(self, faults: Sequence[BadInput]) -> None:
        super().__init__("; ".join(map(located, faults)))
        self.faults = tuple(faults)


class UnsupportedOption(BadInput, code="unsupported-option"):
    """An option that the route or the model does not have."""


class NotTuned(BadInput, code="thresholds-not-tuned"):
    """Tuned thresholds were requested, but the model has none; the message says how to tune."""


class UnknownLabel(BadInput, code="unknown-label"):
    """A label that the model does not have."""


class LimitExceeded(BadInput, code="limit-exceeded"):
    """More than a limit allows; the message names the limit."""


class KeyNotFound(BadInput, code="key-not-found"):
    """A key of the service that does not exist, or is not in force where it must be."""


class AccessRefused(BadInput, code="unauthorized"):
    """A request without a key where one is needed, or with an unknown key.

    headers  the challenge of the answer (RFC 6750)
    """

    headers: Mapping[str, str] = {"www-authenticate": 'Bearer realm="xylem"'}


class KeyRevoked(AccessRefused, code="key-revoked"):
    """A key that was revoked."""

    headers: Mapping[str, str] = {"www-authenticate": 'Bearer realm="xylem", error="invalid_token"'}


class KeyExpired(AccessRefused, code="key-expired"):
    """A key that has expired."""

    headers: Mapping[str, str] = {"www-authenticate": 'Bearer realm="xylem", error="invalid_token"'}


class ScopeMissing(AccessRefused, code="scope-missing"):
    """A key in force that does not have the scope that the route needs."""

    headers: Mapping[str, str] = {
        "www-authenticate": 'Bearer realm="xylem", error="insufficient_scope"'
    }


class TooManyRequests(XylemError, code="too-many-requests"):
    """A request beyond a limit of its key.

    headers  when it may be sent again, and the limits
    """

    def __init__(self, message: str, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.headers = headers


class Unavailable(XylemError, code="unavailable"):
    """Something that cannot be done now; the same call may succeed later."""


class Overloaded(Unavailable, code="overloaded"):
    """Too many requests, or too much work, at once."""


class TimedOut(Unavailable, code="timed-out"):
    """A request that was not answered within a time limit."""


class DatabaseUnavailable(Unavailable, code="database-unavailable"):
    """A database that does not answer, or cannot be written."""

    @classmethod
    def confidential(cls, message: str) -> Self:
        """Return an error whose message goes to the log only; clients read a general one.

        The message comes from the database, and may name hosts, users and paths.
        """
        error = cls(message)
        error.public_message = "expected a database that answers, found that it does not"
        return error


class DatabaseUnsupported(DatabaseUnavailable, code="database-unsupported"):
    """A database with the schema of a newer release, or an encoding other than UTF8."""


def public_message_of(error: Exception) -> str:
    """Return the message of an error that clients may read.

    For an error of the service or of the store this is its public message, for any other error only
    its type. Messages of the system name paths of the machine; those are for the log.
    """
    # only errors of the service and of the store have the attribute
    return (
        error.public_message or located(error)
        if hasattr(error, "public_message")
        else type(error).__name__
    )


def located(error: Exception) -> str:
    """Return the message of an error, with the place in the request in front, if it has one.

    A message that begins with the words of the place stays as it is.
    """
    path = (error.path or "") if isinstance(error, BadInput) else ""
    is_there = str(error).startswith(path.replace("_", " "))
    return str(error) if is_there else f"{path}: {error}"
