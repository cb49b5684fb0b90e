"""Serve aliases: leave out denied labels, choose canaries and shadows, and report the state."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from xylem.base import log
from xylem_store import PARTS, Alias, ModelInfo, TrafficShare

T = TypeVar("T")

# The header with the key of a request: one version answers all requests with the same key.
KEY_HEADER = "xylem-canary-key"


class Chooser:
    """Says whether a key is in a chosen part of all keys; the answer is the same in every process.

    Each key has a point between 0 and 1. The point depends on the version too, so that different
    users get each canary. A key is chosen if its point lies below the part; so if the part grows,
    every chosen key stays chosen.
    """

    def __init__(self, role: str, model: str, version: int, part: int) -> None:
        """Take the part, in units of 1 / PARTS, that a role (canary, shadow) of a version gets."""
        self._hash = hashlib.blake2b(f"{role} {model}@{version}\n".encode(), digest_size=8)
        self._end = (part << 64) // PARTS

    def takes(self, key: bytes) -> bool:
        """Return whether a key is chosen."""
        point = self._hash.copy()
        point.update(key)
        return int.from_bytes(point.digest(), "big") < self._end


class ChosenVersion(NamedTuple, Generic[T]):
    """The version that answers a request, and the shadow that answers a copy of it, if any."""

    served: T
    shadow: T | None = None


class LiveSplit(Generic[T]):
    """The versions that answer for an alias besides its own: a canary, a shadow, or both."""

    def __init__(self, model: str, alias: Alias, canary: T | None, shadow: T | None) -> None:
        """Take the objects that serve the canary and the shadow of an alias, or None."""
        self.canary = canary
        self.shadow = shadow
        self._canary_of = Chooser("canary", model, *(alias.canary or TrafficShare(0, 0)))
        self._shadow_of = Chooser("shadow", model, *(alias.shadow or TrafficShare(0, 0)))

    def choose(self, stable: T, key: bytes) -> ChosenVersion[T]:
        """Return the versions for requests with a key; `stable` serves the alias's own version."""
        return ChosenVersion(
            self.canary if self.canary is not None and self._canary_of.takes(key) else stable,
            self.shadow if self.shadow is not None and self._shadow_of.takes(key) else None,
        )


# A model's name and an alias.
AliasKey = tuple[str, str]

# Takes the object that serves a version, and labels; returns one that never answers these.
Deny = Callable[[T, Sequence[str]], T]

# The most views of an alias that are kept: of its version, canary, shadow, and some old ones.
VIEWS_MAX = 8


class ServedAliases(Generic[T]):
    """The aliases as they are served from one look at the store to the next.

    A view is an object that serves a version without the labels that an alias denies.

    aliases  each alias as it is served: its version, canary and shadow are open, or opened on
             request
    swaps    how often any alias was moved to another version so far
    """

    def __init__(self, deny: Deny[T], aliases: Mapping[AliasKey, Alias], swaps: int = 0) -> None:
        self.aliases = aliases
        self.swaps = swaps
        self.splits: dict[AliasKey, LiveSplit[T]] = {}
        self.deny = deny
        self._views: dict[AliasKey, tuple[tuple[T, T], ...]] = {}

    def followed_by(
        self, aliases: Mapping[AliasKey, Alias], resident: Mapping[tuple[str, int], T]
    ) -> "ServedAliases[T]":
        """Return the aliases for the next look, with views of the open versions.

        Views of an alias that denies the same labels as before are taken over.
        """
        next_aliases = ServedAliases(self.deny, aliases, self.swaps)
        for (model, name), alias in aliases.items():
            previous = self.aliases.get((model, name))
            previous_views = self._views.get((model, name))
            if previous_views and previous is not None and previous.denied == alias.denied:
                next_aliases._views[model, name] = previous_views
            views = []
            for beside in (alias, alias.canary, alias.shadow):
                served = None if beside is None else resident.get((model, beside.version))
                views.append(None if served is None else next_aliases.view(model, name, served))
            if alias.split_versions and views[0] is not None:
                next_aliases.splits[model, name] = LiveSplit(model, alias, *views[1:])
        for model, name in sorted(self.aliases.keys() | aliases.keys()):
            old, new = (mapping.get((model, name), Alias(0)) for mapping in (self.aliases, aliases))
            if old.version != new.version and old.version and new.version:
                next_aliases.swaps += 1
                log(
                    logging.INFO,
                    "model_swapped",
                    model=model,
                    alias=name,
                    old=old.version,
                    version=new.version,
                )
            if old.split() != new.split():
                log(logging.INFO, "model_split", model=model, alias=name, **new.split())
            if old.denied != new.denied:
                log(logging.INFO, "alias_denied", model=model, alias=name, labels=len(new.denied))
        return next_aliases

    def existing_view(self, model: str, name: str, served: T) -> T | None:
        """Return the object that answers for an alias with the version `served`.

        This is the alias's view of it, None if it has not been made yet; or `served` itself if the
        alias denies no labels.
        """
        alias = self.aliases.get((model, name))
        if alias is None or not alias.denied:
            return served
        return next(
            (view for version, view in self._views.get((model, name), ()) if version is served),
            None,
        )

    def view(self, model: str, name: str, served: T) -> T:
        """Return the same as `existing_view`, but make the view if there is none.

        Blocking: O(nodes).
        """
        served_view = self.existing_view(model, name, served)
        if served_view is None:
            served_view = self.deny(served, self.aliases[model, name].denied)
            views = self._views.get((model, name), ())
            self._views[model, name] = (*views, (served, served_view))[-VIEWS_MAX:]
        return served_view

    def forget(self, model: str) -> None:
        """Forget the splits and views of a model, of which a version was closed.

        They are made again when they are requested.
        """
        for parts in (self.splits, self._views):
            for key in [key for key in parts.copy() if key[0] == model]:
                parts.pop(key, None)


class State(NamedTuple):
    """The result of one look at the store. Never changed, only replaced.

    is_early    whether the first look is not complete
    resident    the object that serves each (model, version) that an alias keeps open
    is_waited_for  whether any model is one whose versions are opened before they are requested
    """

    is_early: bool
    models: Mapping[str, ModelInfo]
    resident: Mapping[tuple[str, int], object]
    served: ServedAliases[Any]
    is_waited_for: bool = False


def state_of(
    infos: Sequence[ModelInfo],
    aliases: Mapping[AliasKey, Alias],
    resident: Mapping[tuple[str, int], object],
    requested: Mapping[tuple[str, int], object],
    previous: State,
    *,
    is_early: bool,
) -> State:
    """Return the state for these models and aliases, with the views of denied labels made.

    requested  the objects that serve the versions that are open because requests named them
    """
    # deny again: other labels may be deprecated by now
    resident = {key: previous.served.deny(opened, ()) for key, opened in resident.items()}
    return State(
        is_early,
        {info.name: info for info in infos},
        resident,
        previous.served.followed_by(aliases, {**requested, **resident}),
    )


class Failure(NamedTuple):
    """A model, version, alias or label info that cannot be served as the store has it.

    ref        the version's number, the alias's name, or "label_info"; empty: the whole model
    retry_at   when it is tried again, by time.monotonic
    """

    model: str
    ref: str
    detail: str
    retry_at: float


class LiveStatus(NamedTuple):
    """The aliases that are served, and what cannot be served.

    aliases  each alias as it is served: by the version that it names, or an earlier one
    swaps    how often any alias was moved to another version since the start
    n_open, n_opened, n_waiting  versions that are open, that were opened since the start, and
             openings that wait or are under way because of requests
    """

    aliases: Sequence[tuple[AliasKey, Alias]]
    failures: list[Failure]
    swaps: int
    store_error: str | None
    n_open: int = 0
    n_opened: int = 0
    n_waiting: int = 0


def roles_of(alias: Alias) -> list[tuple[str, int, int]]:
    """Return (role, version, parts) of each version that answers for an alias.

    parts   the part of requests that it answers, in units of 1 / PARTS
    """
    canary_parts = 0 if alias.canary is None else alias.canary.parts
    return [
        ("stable", alias.version, PARTS - canary_parts),
        *(
            (role, *share)
            for role, share in (("canary", alias.canary), ("shadow", alias.shadow))
            if share is not None
        ),
    ]
