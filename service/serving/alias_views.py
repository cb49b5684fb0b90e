"""What serves an alias that denies labels: a view of each version that answers for it, made once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from model_store.store import ModelInfo
from service.logs import log

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


class AliasViews(Generic[T]):
    """The views of versions for aliases that deny labels, as one look at the store found them.

    before  those of the look before, whose views of the same labels are kept; None: this is the first look
    """

    def __init__(self, deny: Deny[T], before: AliasViews[T] | None = None) -> None:
        self._deny = deny
        self._before = before
        self._denied: dict[AliasKey, tuple[str, ...]] = {}
        self._views: dict[AliasKey, tuple[tuple[T, T], ...]] = {}

    def read(
        self,
        infos: Sequence[ModelInfo],
        served: Mapping[AliasKey, int],
        fail: Callable[[str, str, str], object],
    ) -> set[AliasKey]:
        """Take the labels that aliases deny, once; return the aliases that cannot be served.

        Where their file is damaged, what was served before is served on. An alias that was not served before
        is not served then: it might answer what it must not. `fail` is told of each model, alias and fault.
        """
        before, self._before = self._before, None
        known = {} if before is None else before._denied
        unserved = set()
        for info in infos:
            self._denied |= {(info.name, alias): labels for alias, labels in info.denied.items()}
            for alias in info.broken_denied:
                key = info.name, alias
                fail(*key, "the file of its denied labels is damaged")
                if key in known:
                    self._denied[key] = known[key]
                elif key not in served:
                    unserved.add(key)
        for key in sorted(known.keys() | self._denied.keys()):
            labels = self._denied.get(key, ())
            if labels != known.get(key, ()):
                log(logging.INFO, "alias_denied", model=key[0], alias=key[1], labels=len(labels))
            elif before is not None:
                self._views[key] = before._views.get(key, ())
        return unserved

    def known(self, model: str, alias: str, served: T) -> T | None:
        """Return what serves an alias by a version: the version itself without a set; None: not made yet."""
        if (model, alias) not in self._denied:
            return served
        views = self._views.get((model, alias), ())
        return next((view for version, view in views if version is served), None)

    def of(self, model: str, alias: str, served: T) -> T:
        """Do as `known`, and make the view where it is not there yet. Blocking: O(nodes)."""
        found = self.known(model, alias, served)
        if found is None:
            found = self._deny(served, self._denied[model, alias])
            views = self._views.get((model, alias), ())
            self._views[model, alias] = (*views, (served, found))[-VIEWS_MAX:]
        return found
