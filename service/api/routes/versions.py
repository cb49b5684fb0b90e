"""Which version a request's path means."""

from __future__ import annotations

from starlette.requests import Request

from model_store.errors import AliasNotFound, VersionNotFound
from model_store.identifiers import is_alias, is_version
from service.api.door.request_log import ANSWERED_BY, AnsweredBy
from service.serving.served import DEFAULT_ALIAS, LiveServed, ServedVersion


async def find_served(request: Request, live: LiveServed) -> ServedVersion:
    """Return what serves the version that a request's path names: a version, an alias, else `latest`.

    Raises ModelNotFound, VersionNotFound, AliasNotFound, Unavailable and ModelUnavailable.
    """
    parts = request.path_params
    model, version, alias = parts["model"], parts.get("version"), parts.get("alias", DEFAULT_ALIAS)
    if version is not None and not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    if not is_alias(alias):
        raise AliasNotFound(f"alias: expected the name of an alias, found {alias[:80]!r}")
    return await find_version(request, live, model, version or alias)


async def find_version(request: Request, live: LiveServed, model: str, ref: str) -> ServedVersion:
    """Return what serves a version, named by number or alias, and note that it answers the request."""
    served = await live.find(model, ref)
    named_by = None if is_version(ref) else ref
    request.scope[ANSWERED_BY] = AnsweredBy(served.name, served.version, named_by)
    return served


def stale_headers(served: ServedVersion) -> dict[str, str]:
    """Return what an answer at tuned thresholds says when the database does not answer: they may be old."""
    return {"xylem-thresholds": "stale"} if served.thresholds.is_stale else {}
