"""Errors of the service. `code` is stable: clients and scripts may rely on it. No HTTP here.

XylemError
├── BadInput                 the caller's fault; the command line exits with 2
│   ├── BadData              bad-data: a data file, named with its line
│   ├── BadParameter         bad-parameter: a setting or trainer parameter
│   ├── BadInstance          bad-instance: an instance that cannot be turned into a row
│   ├── UnknownLabel         unknown-label
│   └── LimitExceeded        limit-exceeded: names the limit, its value and what was found
└── Unavailable              unavailable: try again later
"""

from __future__ import annotations


class XylemError(Exception):
    """Anything the service refuses or fails at; the message says what was expected and what was found."""

    code = "error"


class BadInput(XylemError):
    """The caller gave something that cannot be used."""

    code = "bad-input"


class BadData(BadInput):
    """A data file that cannot be used; the message begins with `file:line:`."""

    code = "bad-data"


class BadParameter(BadInput):
    """A parameter or setting out of its range, of the wrong type, or unknown."""

    code = "bad-parameter"


class BadInstance(BadInput):
    """An instance that cannot be turned into a sparse row."""

    code = "bad-instance"


class UnknownLabel(BadInput):
    """A label that the model does not have."""

    code = "unknown-label"


class LimitExceeded(BadInput):
    """More than a limit allows; the message names the limit."""

    code = "limit-exceeded"


class Unavailable(XylemError):
    """Cannot be done now; the same call may succeed later."""

    code = "unavailable"
