"""Errors -> what clients are told: one table from an error's code to its status and title.

`docs/errors.md` lists the table; a test compares the two.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from model_store.errors import StoreError
from service.errors import BadInput, XylemError, told_of
from service.logs import log


class Problem(NamedTuple):
    """What a code means."""

    status: int
    title: str


PROBLEMS: dict[str, Problem] = {
    "malformed-json": Problem(400, "The body is not JSON"),
    "bad-request": Problem(422, "A field is unknown, missing, of the wrong type or out of range"),
    "bad-input": Problem(422, "The input cannot be used"),
    "bad-data": Problem(422, "The data cannot be used"),
    "bad-model": Problem(422, "The model of another library cannot be imported"),
    "bad-parameter": Problem(422, "A parameter is unknown, of the wrong type or out of range"),
    "bad-instance": Problem(422, "An instance cannot be turned into features of this model"),
    "unknown-label": Problem(422, "The model has no such label"),
    "limit-exceeded": Problem(422, "A limit is exceeded"),
    "bad-names": Problem(422, "The names cannot be used"),
    "unsupported-option": Problem(422, "The route or the model does not have the option"),
    "thresholds-not-tuned": Problem(409, "The model has no tuned thresholds"),
    "conflict": Problem(409, "The present state forbids it"),
    "version-in-use": Problem(409, "An alias names the version"),
    "nothing-to-roll-back": Problem(409, "The alias has no earlier version"),
    "body-too-large": Problem(413, "The body is larger than the limit"),
    "body-timeout": Problem(408, "The body did not arrive in time"),
    "unsupported-media-type": Problem(415, "The content type is not one that the route takes"),
    "unsupported-content-encoding": Problem(415, "Encoded bodies are not taken"),
    "unauthorized": Problem(401, "The route is for admins"),
    "invalid-name": Problem(404, "No model, version or alias has such a name"),
    "not-found": Problem(404, "The store has no such thing"),
    "model-not-found": Problem(404, "No such model"),
    "version-not-found": Problem(404, "No such version of the model"),
    "alias-not-found": Problem(404, "No such alias of the model"),
    "route-not-found": Problem(404, "No such route"),
    "method-not-allowed": Problem(405, "The route does not have the method"),
    "http-error": Problem(400, "The request cannot be served"),
    "overloaded": Problem(503, "Too much is asked at once"),
    "timed-out": Problem(503, "The answer took longer than the limit"),
    "unavailable": Problem(503, "Try again later"),
    "model-unavailable": Problem(503, "The model's version cannot be served"),
    "database-unavailable": Problem(503, "The database does not answer"),
    "database-unsupported": Problem(503, "The database has the schema of a newer release"),
    "model-corrupt": Problem(503, "The model's files are damaged"),
    "model-schema-unsupported": Problem(503, "The model's format is one that this release does not know"),
    "store-unreadable": Problem(503, "The store cannot be read"),
    "store-unwritable": Problem(503, "The store cannot be written"),
    "store-error": Problem(500, "The store failed"),
    "error": Problem(500, "The service failed"),
    "internal-error": Problem(500, "The service failed"),
}
"""Each code's status and title. A code never changes its meaning; a new fault gets a new code."""


def code_of(error: Exception) -> str:
    """Return the code of an error: its own, else that of the nearest class above it that the table knows."""
    codes = (kind.__dict__.get("code") for kind in type(error).__mro__)
    return next((code for code in codes if code in PROBLEMS), "internal-error")


def describe_error(error: Exception) -> dict[str, Any]:
    """Return what an error object says: its code, its detail and, where known, the field at fault."""
    described: dict[str, Any] = {"code": code_of(error), "detail": told_of(error)}
    if isinstance(error, BadInput) and error.path:
        described["errors"] = [{"path": error.path, "detail": str(error)}]
    return described


def log_untold(error: Exception, **fields: Any) -> None:
    """Log the message of an error of which clients are told less."""
    if isinstance(error, XylemError | StoreError) and error.told is not None:
        log(logging.ERROR, "request_failed", detail=str(error), **fields)
