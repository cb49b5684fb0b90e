"""Which version a request's path means."""

from __future__ import annotations

from starlette.requests import Request

from model_store.identifiers import is_version
from service.api.door.ended_request import ANSWERED_BY, AnsweredBy
from service.api.door.heads import OWN, reference_of
from service.serving.served import LiveServed, ServedVersion
from service.serving.split import ChosenVersion


async def find_served(request: Request, live: LiveServed) -> ServedVersion:
    """Return what serves the version that a request's path names: a version, an alias, else `latest`.

    Raises ModelNotFound, VersionNotFound, AliasNotFound, Unavailable and ModelUnavailable.
    """
    return await find_version(request, live, *reference_of(request.path_params))


async def find_version(request: Request, live: LiveServed, model: str, ref: str) -> ServedVersion:
    """Return what serves a version, named by number or alias, and note that it answers the request."""
    served = await live.find(model, ref)
    _note(request, served, None if is_version(ref) else ref)
    return served


async def choose_served(
    request: Request, live: LiveServed, model: str, ref: str
) -> ChosenVersion[ServedVersion]:
    """Return what answers a prediction: for an alias with a canary, the version that the key falls to.

    Raises what `find_version` does.
    """
    served = await find_version(request, live, model, ref)
    split = None if is_version(ref) else live.splits.get((model, ref))
    if split is None:
        return ChosenVersion(served)
    chosen = split.choose(served, request.scope[OWN].canary_key or request.scope["request_id"].encode())
    _note(request, chosen.served, ref)
    return chosen


def _note(request: Request, served: ServedVersion, alias: str | None) -> None:
    request.scope[ANSWERED_BY] = AnsweredBy(served.name, served.version, alias)


def stale_headers(served: ServedVersion) -> dict[str, str]:
    """Return what an answer at tuned thresholds says when the database does not answer: they may be old."""
    return {"xylem-thresholds": "stale"} if served.thresholds.is_stale else {}
