"""What serves the aliases of a store: views of their versions, without the labels that they deny."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from model_store.alias import Alias
from service.logs import log
from service.serving.split import LiveSplit, live_split

T = TypeVar("T")
AliasKey = tuple[str, str]
"""A model's name and an alias."""

Deny = Callable[[T, Sequence[str]], T]
"""Return what serves a version without some labels."""

VIEWS_MAX = 8
"""Views of an alias that are kept: of its version, canary and shadow, and of some that were closed."""


def deny_nothing(served: T, labels: Sequence[str]) -> T:
    """Return what serves a version as it is: for those that ask for versions alone."""
    return served


class ServedAliases(Generic[T]):
    """The aliases as they are served from one look at the store to the next.

    aliases  each as it is served: its version, canary and shadow are open, or asked for later
    before   those of the look before, whose views of the same labels are kept; None: this is the first look
    """

    def __init__(
        self, aliases: Mapping[AliasKey, Alias], deny: Deny[T], before: ServedAliases[T] | None = None
    ) -> None:
        self.aliases = aliases
        self.splits: dict[AliasKey, LiveSplit[T]] = {}
        self._deny = deny
        self._views: dict[AliasKey, tuple[tuple[T, T], ...]] = {}
        for key, alias in aliases.items():
            was = None if before is None else before.aliases.get(key)
            if before is not None and was is not None and was.denied == alias.denied:
                self._views[key] = before._views.get(key, ())
        _log_changes({} if before is None else before.aliases, aliases)

    def open(self, opened: Callable[[str, int], T | None]) -> None:
        """Make the views of what is open, and what serves canaries and shadows; `opened` returns that."""
        for (model, name), alias in self.aliases.items():
            if (served := opened(model, alias.version)) is not None:
                self.view(model, name, served)
            if alias.others:
                views = []
                for beside in (alias.canary, alias.shadow):
                    served = None if beside is None else opened(model, beside.version)
                    views.append(None if served is None else self.view(model, name, served))
                self.splits[model, name] = live_split(model, alias, *views)

    def known(self, model: str, name: str, served: T) -> T | None:
        """Return what serves an alias by a version: that itself if it denies nothing; None: not made yet."""
        alias = self.aliases.get((model, name))
        if alias is None or not alias.denied:
            return served
        views = self._views.get((model, name), ())
        return next((view for version, view in views if version is served), None)

    def view(self, model: str, name: str, served: T) -> T:
        """Do as `known`, and make the view where it is not there yet. Blocking: O(nodes)."""
        found = self.known(model, name, served)
        if found is None:
            found = self._deny(served, self.aliases[model, name].denied)
            views = self._views.get((model, name), ())
            self._views[model, name] = (*views, (served, found))[-VIEWS_MAX:]
        return found


def _log_changes(before: Mapping[AliasKey, Alias], now: Mapping[AliasKey, Alias]) -> None:
    """Log the aliases whose canary, shadow or denied labels came, changed or went."""
    for model, name in sorted(before.keys() | now.keys()):
        old, new = before.get((model, name), Alias(0)), now.get((model, name), Alias(0))
        if old.split() != new.split():
            log(logging.INFO, "model_split", model=model, alias=name, **new.split())
        if old.denied != new.denied:
            log(logging.INFO, "alias_denied", model=model, alias=name, labels=len(new.denied))
