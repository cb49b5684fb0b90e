"""How aliases are served: without denied labels, with canary and shadow; and what is reported."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from xylem.base import log
from xylem_store import PARTS, Alias, Beside, ModelInfo

T = TypeVar("T")

KEY_HEADER = "xylem-canary-key"
"""The header of a request that says whose it is: requests of one key are answered by
one version.
"""


class Chooser:
    """Says of keys whether they are among a part of all of them; the same in every process.

    A key has a point between 0 and 1, which depends on the version too, so that not the same users
    try every canary. It is among the part if its point lies below it: a part that grows loses no
    key.
    """

    def __init__(self, role: str, model: str, version: int, part: int) -> None:
        """Take a part of PARTS; the points are those of a role (canary, shadow) of a version."""
        self._begun = hashlib.blake2b(f"{role} {model}@{version}\n".encode(), digest_size=8)
        self._below = (part << 64) // PARTS

    def takes(self, key: bytes) -> bool:
        """Return whether a key is among the part."""
        point = self._begun.copy()
        point.update(key)
        return int.from_bytes(point.digest(), "big") < self._below


class ChosenVersion(NamedTuple, Generic[T]):
    """What answers a request, and the shadow that is to answer a copy of it, if any."""

    served: T
    shadow: T | None = None


class LiveSplit(Generic[T]):
    """What answers requests to an alias besides the version that it
    names: a canary, a shadow, or both.
    """

    def __init__(self, model: str, alias: Alias, canary: T | None, shadow: T | None) -> None:
        """Take what serves the canary and the shadow of an alias, each None where there is none."""
        self.canary = canary
        self.shadow = shadow
        self._canary_of = Chooser("canary", model, *(alias.canary or Beside(0, 0)))
        self._shadow_of = Chooser("shadow", model, *(alias.shadow or Beside(0, 0)))

    def choose(self, stable: T, key: bytes) -> ChosenVersion[T]:
        """Return what answers the requests of a key; `stable` is what the alias names."""
        served = self.canary if self.canary is not None and self._canary_of.takes(key) else stable
        hears = self.shadow is not None and self._shadow_of.takes(key)
        return ChosenVersion(served, self.shadow if hears else None)


AliasKey = tuple[str, str]
"""A model's name and an alias."""

Deny = Callable[[T, Sequence[str]], T]
"""Return what serves a version without some labels."""

VIEWS_MAX = 8
"""Views of an alias that are kept: of its version, canary and shadow, and of some
that were closed.
"""


class ServedAliases(Generic[T]):
    """The aliases as they are served from one look at the store to the next.

    aliases  each as it is served: its version, canary and shadow are open, or asked for later
    swaps    how often one was moved from a version to another so far
    """

    def __init__(self, deny: Deny[T], aliases: Mapping[AliasKey, Alias], swaps: int = 0) -> None:
        self.aliases = aliases
        self.swaps = swaps
        self.splits: dict[AliasKey, LiveSplit[T]] = {}
        self.deny = deny
        self._views: dict[AliasKey, tuple[tuple[T, T], ...]] = {}

    def followed_by(
        self, aliases: Mapping[AliasKey, Alias], resident: Mapping[tuple[str, int], T]
    ) -> ServedAliases[T]:
        """Return the aliases of the next look, with views of what is
        open; those of the same labels stay.
        """
        next_aliases = ServedAliases(self.deny, aliases, self.swaps)
        for (model, name), alias in aliases.items():
            previous = self.aliases.get((model, name))
            if previous is not None and previous.denied == alias.denied:
                next_aliases._views[model, name] = self._views.get((model, name), ())
            views = []
            for beside in (alias, alias.canary, alias.shadow):
                served = None if beside is None else resident.get((model, beside.version))
                views.append(None if served is None else next_aliases.view(model, name, served))
            if alias.split_versions:
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

    def known(self, model: str, name: str, served: T) -> T | None:
        """Return what serves an alias by a version: that itself if it
        denies nothing; None: not made yet.
        """
        alias = self.aliases.get((model, name))
        if alias is None or not alias.denied:
            return served
        views = self._views.get((model, name), ())
        return next((view for version, view in views if version is served), None)

    def view(self, model: str, name: str, served: T) -> T:
        """Do as `known`, and make the view where it is not there yet. Blocking: O(nodes)."""
        served_view = self.known(model, name, served)
        if served_view is None:
            served_view = self.deny(served, self.aliases[model, name].denied)
            views = self._views.get((model, name), ())
            self._views[model, name] = (*views, (served, served_view))[-VIEWS_MAX:]
        return served_view


EARLY = object()
"""The generation of a state before the first look, or in which not all of it has been tried."""


class State(NamedTuple):
    """What one look at the store found; never changed, only replaced.

    generation  EARLY as long as the first look goes on
    """

    generation: object
    models: Mapping[str, ModelInfo]
    resident: Mapping[tuple[str, int], object]
    served: ServedAliases[Any]


def state_of(
    generation: object,
    infos: Sequence[ModelInfo],
    aliases: Mapping[AliasKey, Alias],
    resident: Mapping[tuple[str, int], object],
    previous: State,
) -> State:
    """Return the state of these models and aliases, the views of denied labels made."""
    # some labels may be deprecated by now
    resident = {key: previous.served.deny(opened, ()) for key, opened in resident.items()}
    served = previous.served.followed_by(aliases, resident)
    return State(generation, {info.name: info for info in infos}, resident, served)


class Failure(NamedTuple):
    """A version, an alias or label info that cannot be served as the store has it.

    ref        the version's number or the alias's name, or "label_info"; empty: the whole model
    retry_at   when it is tried again, by time.monotonic
    """

    model: str
    ref: str
    detail: str
    retry_at: float


class LiveStatus(NamedTuple):
    """What is served, and what is not.

    aliases  each as it is served: by the version that it names, or an earlier one
    swaps    aliases moved since the start
    """

    aliases: Sequence[tuple[AliasKey, Alias]]
    failures: list[Failure]
    swaps: int
    store_error: str | None


def roles_of(alias: Alias) -> list[tuple[str, int, int]]:
    """Return the role, the version and the part, of PARTS, of each
    version that answers for an alias.
    """
    canary = alias.canary
    shadow = alias.shadow
    roles = [("stable", alias.version, PARTS - (0 if canary is None else canary.parts))]
    if canary is not None:
        roles.append(("canary", *canary))
    if shadow is not None:
        roles.append(("shadow", *shadow))
    return roles
