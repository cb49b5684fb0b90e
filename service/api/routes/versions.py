"""Which version a request's path means."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request

from model_store.errors import AliasNotFound, VersionNotFound
from model_store.identifiers import is_alias, is_version
from service.api.door.ended_request import ANSWERED_BY, AnsweredBy
from service.serving.served import DEFAULT_ALIAS, LiveServed, ServedVersion
from service.serving.split import KEY_HEADER

_KEY_NAME = KEY_HEADER.encode()


class ChosenVersion(NamedTuple):
    """What answers a request, and the shadow that is to answer a copy of it, if any."""

    served: ServedVersion
    shadow: ServedVersion | None = None


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


async def choose_served(request: Request, live: LiveServed) -> ChosenVersion:
    """Return what answers a prediction: for an alias with a canary, the version that the key falls to.

    Raises what `find_served` does.
    """
    return chosen_of(request, live, await find_served(request, live))


def chosen_of(request: Request, live: LiveServed, served: ServedVersion) -> ChosenVersion:
    """Return what answers a prediction of a version that was found, which its alias may have split."""
    alias = request.scope[ANSWERED_BY].alias
    split = None if alias is None else live.splits.get((served.name, alias))
    if split is None:
        return ChosenVersion(served)
    key = _key_of(request)
    canary = split.canary_for(key)
    if canary is not None:
        served = canary
        request.scope[ANSWERED_BY] = AnsweredBy(served.name, served.version, alias)
    return ChosenVersion(served, split.shadow_for(key))


def _key_of(request: Request) -> bytes:
    """Return the key that a request brings, or its id."""
    found = next((value for name, value in request.scope["headers"] if name == _KEY_NAME), b"").strip()
    return found or str(request.scope["request_id"]).encode()


def stale_headers(served: ServedVersion) -> dict[str, str]:
    """Return what an answer at tuned thresholds says when the database does not answer: they may be old."""
    return {"xylem-thresholds": "stale"} if served.thresholds.is_stale else {}
