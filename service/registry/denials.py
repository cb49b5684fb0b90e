"""Labels that aliases deny: taken in and off by their names, and told beside the version they meet."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from model_store.errors import BadNames, Corrupt
from model_store.identifiers import check_alias
from model_store.names import NameTable, find_all, nearest_name
from model_store.store import Store
from service.errors import DatabaseUnavailable, UnknownLabel
from service.logs import log
from service.nearest import did_you_mean
from service.registry.causes import Cause
from service.registry.history import DENIED, AliasHistory, Step

NAMES_TOLD, NAME_CHARACTERS_TOLD = 5, 80
"""Names of labels that came and went which the history keeps, and how much of each."""

Change = Callable[[tuple[str, ...]], Collection[str]]
"""What an alias denies now -> what it is to deny."""


class Denial(NamedTuple):
    """What an alias denies.

    version   what the alias names
    labels    by name, ascending
    unknown   those of them that the version does not have: they are kept for one that has them
    recorded  whether the history has the change
    """

    model: str
    alias: str
    version: int
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    recorded: bool = False


class AliasDenials:
    """What the aliases of a store deny. Thread-safe, all calls block and raise StoreError.

    history    None: nothing is written down
    check_own  raises Conflict where models are not changed here
    """

    def __init__(self, store: Store, history: AliasHistory | None, check_own: Callable[[], None]) -> None:
        self._store = store
        self._history = history
        self._check_own = check_own

    def show(self, model: str, alias: str) -> Denial:
        """Return what an alias denies. Raises NotFound, Corrupt."""
        labels = self._store.denied(model, alias)
        return self._denial(model, alias, labels)

    def change(self, model: str, alias: str, change: Change, cause: Cause, *, anew: bool = False) -> Denial:
        """Have an alias deny other labels; those that come must be of a version that answers for it.

        anew  what it denies now does not matter: it may be damaged

        Raises what `change` does, UnknownLabel, BadNames for too many, NotFound, Corrupt, StoreUnwritable,
        and Conflict when somebody else changes them at the same time. Where the database does not answer, the
        change is made and not recorded.
        """
        self._check_own()
        before: tuple[str, ...] | None = None
        try:
            before = self._store.denied(model, check_alias(alias))
        except Corrupt:
            if not anew:
                raise
        wanted = change(before or ())
        self._check_known(model, alias, set(wanted).difference(before or ()))
        labels = self._store.put_denied(model, alias, tuple(wanted), expected=before)
        found = self._denial(model, alias, labels)
        return found._replace(recorded=self._record(found, before or (), cause))

    def _tables(self, model: str, alias: str) -> list[NameTable]:
        """Return the names of labels of the versions that answer for an alias, that of its own first."""
        versions = [self._store.alias(model, alias).version]
        with contextlib.suppress(Corrupt):
            split = self._store.split(model, alias)
            versions += [] if split is None else split.others
        return [self._store.open(model, version).labels for version in versions]

    def _check_known(self, model: str, alias: str, names: Collection[str]) -> None:
        """Raise UnknownLabel for a name that no version has which answers for the alias."""
        if names:
            check_known(self._tables(model, alias), names, f"{model}@{alias}")

    def _denial(self, model: str, alias: str, labels: tuple[str, ...]) -> Denial:
        version = self._store.alias(model, alias).version
        unknown: tuple[str, ...] = ()
        if labels:
            unknown = unknown_in(self._store.open(model, version).labels, labels)
        return Denial(model, alias, version, labels, unknown)

    def _record(self, found: Denial, before: Sequence[str], cause: Cause) -> bool:
        """Write a change down; return whether that was done."""
        if self._history is None or found.labels == before:
            return False
        told = {
            "denied": len(found.labels),
            "added": _told(set(found.labels).difference(before)),
            "removed": _told(set(before).difference(found.labels)),
        }
        step = Step(found.model, found.alias, DENIED, found.version, cause._replace(verdict=told))
        try:
            self._history.note_stayed(step)
        except DatabaseUnavailable as error:
            place = f"{found.model}@{found.alias}"
            log(logging.WARNING, "alias_history_behind", alias=place, detail=str(error))
            return False
        return True


def unknown_in(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a version does not have."""
    return tuple(name for name, i in zip(names, find_all(table, names), strict=True) if i < 0)


def check_known(tables: Sequence[NameTable], names: Collection[str], what: str) -> None:
    """Raise UnknownLabel for a name that none of some versions has, of which `what` tells."""
    unknown = set(names).intersection(*(unknown_in(table, tuple(names)) for table in tables))
    if unknown:
        name = min(unknown)
        near = nearest_name(tables[0], name)
        hint = "" if near is None else f"; did you mean {near!r:.80}?"
        raise UnknownLabel(f"expected labels of {what}, found {name!r:.80}{hint}").at("labels")


def deny_also(names: Collection[str]) -> Change:
    """Return the change that denies labels besides those that are denied."""
    return lambda before: {*before, *names}


def deny_only(names: Collection[str]) -> Change:
    """Return the change that denies these labels and no other."""
    return lambda before: names


def allow_again(names: Collection[str]) -> Change:
    """Return the change that takes labels off; it raises BadNames for one that is not denied."""

    def change(before: tuple[str, ...]) -> Collection[str]:
        for name in sorted(set(names).difference(before)):
            hint = did_you_mean(name, before, is_quoted=True)
            raise BadNames(f"expected labels that the alias denies, found {name!r:.80}{hint}")
        return set(before).difference(names)

    return change


def _told(names: Collection[str]) -> list[str]:
    return [name[:NAME_CHARACTERS_TOLD] for name in sorted(names)[:NAMES_TOLD]]
