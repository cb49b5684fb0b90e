"""What is known of a request that has ended: what figures, log lines and spans say of it alike."""

from __future__ import annotations

from typing import NamedTuple


class AnsweredBy(NamedTuple):
    """Which version a request was answered by, and the alias that it was named by; None: by its number."""

    model: str
    version: int
    alias: str | None


ANSWERED_BY = "xylem.answered_by"
"""The key of a request's scope under which a route leaves which version answers it."""


class EndedRequest(NamedTuple):
    """What became of a request.

    route  the route's pattern
    code   that of a problem; None: it had none
    by     the version that answered, or refused; None: the request named none
    key    the id of the key that let it pass; None: it needed none, or had none that does
    """

    method: str
    route: str
    path: str
    status: int
    code: str | None
    by: AnsweredBy | None = None
    key: str | None = None
