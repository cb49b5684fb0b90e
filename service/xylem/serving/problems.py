"""The status and title of each error code, and the parts of an error that clients see.

`docs/errors.md` lists the table; a test compares the two.
"""

import logging
from typing import Any, NamedTuple

from xylem.base import BadFields, BadInput, XylemError, log, public_message_of
from xylem_store import StoreError


class ProblemType(NamedTuple):
    """The meaning of an error code: its HTTP status and its title."""

    status: int
    title: str


# The status and title of each code.
#
# A code never changes its meaning; a new fault gets a new code.
PROBLEMS: dict[str, ProblemType] = {
    "malformed-json": ProblemType(400, "The body is not JSON"),
    "bad-request": ProblemType(
        422, "A field is unknown, missing, of the wrong type or out of range"
    ),
    "bad-input": ProblemType(422, "The input cannot be used"),
    "bad-data": ProblemType(422, "The data cannot be used"),
    "bad-model": ProblemType(422, "The model of another library, or the encoder, cannot be used"),
    "bad-parameter": ProblemType(422, "A parameter is unknown, of the wrong type or out of range"),
    "bad-instance": ProblemType(422, "An instance cannot be turned into features of this model"),
    "unknown-label": ProblemType(422, "The model has no such label"),
    "limit-exceeded": ProblemType(422, "A limit is exceeded"),
    "bad-names": ProblemType(422, "The names cannot be used"),
    "unsupported-option": ProblemType(422, "The route or the model does not have the option"),
    "thresholds-not-tuned": ProblemType(409, "The model has no tuned thresholds"),
    "job-conflict": ProblemType(409, "The state of the job forbids it"),
    "idempotency-conflict": ProblemType(
        409, "The idempotency key came with another request before"
    ),
    "bad-split": ProblemType(422, "The weights of a canary or a shadow do not fit"),
    "conflict": ProblemType(409, "The present state forbids it"),
    "version-in-use": ProblemType(409, "An alias names the version"),
    "nothing-to-roll-back": ProblemType(409, "The alias has no earlier version"),
    "body-too-large": ProblemType(413, "The body is larger than the limit"),
    "body-timeout": ProblemType(408, "The body did not arrive in time"),
    "unsupported-media-type": ProblemType(415, "The content type is not one that the route takes"),
    "unsupported-content-encoding": ProblemType(415, "The content encoding is not gzip"),
    "broken-content-encoding": ProblemType(400, "The body is not what its content encoding says"),
    "unauthorized": ProblemType(401, "The route needs a key"),
    "key-revoked": ProblemType(401, "The key was revoked"),
    "key-expired": ProblemType(401, "The key has expired"),
    "scope-missing": ProblemType(403, "The key does not have the scope of the route"),
    "key-not-found": ProblemType(404, "No such key, or none in force"),
    "cors-refused": ProblemType(403, "A page of that origin may not send such a request"),
    "invalid-name": ProblemType(404, "No model, version or alias has such a name"),
    "not-found": ProblemType(404, "The store has no such thing"),
    "model-not-found": ProblemType(404, "No such model"),
    "version-not-found": ProblemType(404, "No such version of the model"),
    "alias-not-found": ProblemType(404, "No such alias of the model"),
    "encoder-not-found": ProblemType(404, "No such sentence encoder"),
    "job-not-found": ProblemType(404, "No such job"),
    "schedule-not-found": ProblemType(404, "No such schedule"),
    "data-not-found": ProblemType(404, "No such data file"),
    "route-not-found": ProblemType(404, "No such route"),
    "method-not-allowed": ProblemType(405, "The route does not have the method"),
    "http-error": ProblemType(400, "The request cannot be served"),
    "bad-range": ProblemType(416, "The file does not have the requested range"),
    "head-too-long": ProblemType(431, "The request's target and headers are longer than the limit"),
    "too-many-requests": ProblemType(429, "The key is at its limit"),
    "overloaded": ProblemType(503, "Too much is asked at once"),
    "timed-out": ProblemType(503, "The answer took longer than the limit"),
    "unavailable": ProblemType(503, "Try again later"),
    "model-unavailable": ProblemType(503, "The model's version cannot be served"),
    "database-unavailable": ProblemType(503, "The database does not answer"),
    "database-unsupported": ProblemType(503, "The database has a newer schema, or not UTF8"),
    "thresholds-foreign": ProblemType(
        503, "The database has thresholds of another version of this name"
    ),
    "model-corrupt": ProblemType(503, "The model's files are damaged"),
    "model-schema-unsupported": ProblemType(
        503, "The model's format is one that this release does not know"
    ),
    "store-unreadable": ProblemType(503, "The store cannot be read"),
    "store-unwritable": ProblemType(503, "The store cannot be written"),
    "store-error": ProblemType(500, "The store failed"),
    "error": ProblemType(500, "The service failed"),
    "internal-error": ProblemType(500, "The service failed"),
}


def code_of(error: Exception) -> str:
    """Return the code of an error: its own, or that of its nearest base class in the table."""
    for part in (error, *type(error).__mro__):
        code = vars(part).get("code")
        if code in PROBLEMS:
            return str(code)
    return "internal-error"


def describe_error(error: Exception) -> dict[str, Any]:
    """Return an error as JSON: its code, its detail and, if known, the fields at fault."""
    described: dict[str, Any] = {"code": code_of(error), "detail": public_message_of(error)}
    if isinstance(error, BadFields):
        described["errors"] = [
            {"path": fault.path or "", "detail": str(fault)} for fault in error.faults
        ]
    elif isinstance(error, BadInput) and error.path:
        described["errors"] = [{"path": error.path, "detail": str(error)}]
    return described


def log_untold(error: Exception, **fields: Any) -> None:
    """Log the full message of an error if clients see only a part of it."""
    if isinstance(error, XylemError | StoreError) and error.public_message is not None:
        log(logging.ERROR, "request_failed", detail=str(error), **fields)
