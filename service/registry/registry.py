"""Registry: promote, roll back, remove. What the command line, HTTP and jobs do to models goes through here.

The store is the truth; see `history` for how what it says and what the database tells stay together.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container
from typing import NamedTuple

from model_store.errors import Conflict, Corrupt, NotFound, NothingToRollBack, VersionInUse
from model_store.identifiers import check_alias, is_alias
from model_store.splits import Split
from model_store.store import LATEST, Store
from service.db.engine import Database
from service.errors import BadParameter, DatabaseUnavailable
from service.logs import log
from service.registry.causes import Cause
from service.registry.denials import AliasDenials
from service.registry.history import (
    PROMOTED,
    PUBLISHED,
    REFUSED,
    REMOVED,
    ROLLED_BACK,
    SPLIT,
    AliasChange,
    AliasHistory,
    AliasState,
    Step,
)
from service.registry.threshold_rows import forget_thresholds


class AliasMove(NamedTuple):
    """What an alias named before, and names now; None: it was, or is, not there.

    recorded  whether the history has it; if not, the next look at the history writes it down
    """

    model: str
    alias: str
    before: int | None
    now: int | None
    recorded: bool


class SplitMove(NamedTuple):
    """What stands beside the version that an alias names from now on; None: nothing.

    recorded  as of AliasMove
    """

    model: str
    alias: str
    version: int
    split: Split | None
    recorded: bool


class Removal(NamedTuple):
    """What was removed of a model.

    versions    their numbers
    aliases     names of the aliases that went too
    thresholds  whether the database had thresholds of any of the versions, which are gone
    """

    model: str
    versions: tuple[int, ...]
    aliases: tuple[str, ...]
    thresholds: bool


class Registry:
    """The models of a store, and the history of their aliases in a database. Thread-safe, all calls block.

    Without a database nothing is written down, and thresholds stay: what the store says is found later. Calls
    raise StoreError; with a database also DatabaseUnavailable, then nothing was changed unless it says so.

    follows  the object store whose aliases are the truth: changes here are refused, as Conflict; None: they
             are made here
    """

    def __init__(self, store: Store, database: Database | None, follows: str | None = None) -> None:
        self._store = store
        self._follows = follows
        self._database = database
        self._history = None if database is None else AliasHistory(database, self.state)
        self.denials = AliasDenials(store, self._history, self.check_own)

    def check_own(self) -> None:
        """Raise Conflict when another store's aliases and versions are followed."""
        if self._follows is not None:
            raise Conflict(
                f"expected a store whose models are changed here, found one that follows {self._follows}: "
                "xylem models push changes that one"
            )

    def named(self, model: str, alias: str) -> int | None:
        """Return the version that an alias names; None for one that is not there, or is damaged."""
        try:
            return self._store.alias(model, alias).version
        except (NotFound, Corrupt):
            return None

    def state(self, model: str, alias: str) -> AliasState:
        """Return what an alias names, and what stands beside that; a damaged split is none."""
        split = None
        with contextlib.suppress(NotFound, Corrupt):
            split = self._store.split(model, alias)
        return AliasState(self.named(model, alias), split and split.facts())

    def promote(self, model: str, version: str | int | None, alias: str, cause: Cause) -> AliasMove:
        """Make an alias name a version (by number or alias), all of whose digests and invariants are checked.

        None: its canary. A split of the alias ends. Raises NotFound, InvalidName, Corrupt for a version that
        is damaged, or another model's, Conflict where there is no canary, and StoreUnwritable; the alias then
        stays where it is.
        """
        self.check_own()
        check_alias(alias)
        if version is None:
            split = self._store.split(model, alias)
            version = split and split.canary
            if version is None:
                raise Conflict(f"{model}: expected a version, or a canary of {alias}, found neither")
        number = self._store.resolve(model, version)
        self._store.open(model, number)
        step = Step(model, alias, PROMOTED, number, cause)
        return self._move(step, lambda: self._store.promote(model, number, alias))

    def refuse(self, model: str, version: int, alias: str, cause: Cause) -> None:
        """Write down that a promotion rule left an alias where it is; `cause.verdict` says why."""
        if self._history is not None:
            self._history.note_stayed(Step(model, alias, REFUSED, version, cause))

    def published(self, model: str, version: int, cause: Cause) -> None:
        """Write down who published a version to which `latest` has moved."""
        if self._history is not None:
            self._history.note_published(Step(model, LATEST, PUBLISHED, version, cause))

    def rollback(self, model: str, alias: str, cause: Cause, to: int | None = None) -> AliasMove:
        """Make an alias name the version that it named before, or with `to` one further back.

        One step back leads past versions deleted since. What it named after is forgotten: a second step leads
        further back, not to and fro. While the alias has a canary, a step back ends its split, and it goes on
        to name what it names; so does `to` that version. Raises NothingToRollBack where there is no such
        step, and what `promote` raises.
        """
        self.check_own()
        named = self._store.alias(model, alias)
        target, split = named.version, None
        with contextlib.suppress(Corrupt):
            split = self._store.split(model, alias)
        ends_canary = to is None and split is not None and split.canary is not None
        if to != target and not ends_canary:
            back = named.back(self._store.versions(model), to)
            if back is None:
                which = "an earlier version" if to is None else f"version {to} among the earlier ones"
                raise NothingToRollBack(f"{model}: expected {which} of {alias}, found none")
            target = back.version
            self._store.open(model, target)
        step = Step(model, alias, ROLLED_BACK, target, cause)
        return self._move(step, lambda: self._store.rollback(model, alias, target))

    def change_split(
        self, model: str, alias: str, change: Callable[[Split], Split], cause: Cause
    ) -> SplitMove:
        """Change what stands beside the version that an alias names; each version is verified first.

        change  takes the split as it is, without canary and shadow where there is none, and returns the next

        Raises what `change` does, BadSplit, NotFound, Corrupt and StoreUnwritable, and Conflict when somebody
        else moves the alias or changes its split at the same time: nothing of theirs is lost.
        """
        self.check_own()
        check_alias(alias)
        named = self._store.alias(model, alias).version
        before = self._store.split(model, alias) or Split(named)
        split = change(before)
        ends = not split.others
        if not ends:
            split.check()
            for version in split.others:
                self._store.open(model, version)
        step = Step(model, alias, SPLIT, named, cause, None if ends else split.facts())

        def act() -> None:
            if ends:
                self._store.end_split(model, alias, expected=before)
            else:
                self._store.put_split(model, alias, split, expected=before)

        recorded = self._make(step, self._intend(step), act)
        return SplitMove(model, alias, named, None if ends else split, recorded)

    def delete_alias(self, model: str, alias: str, cause: Cause) -> AliasMove:
        """Remove an alias, damaged or not; the version that it names stays.

        Raises NotFound, Conflict for `latest`, StoreUnwritable.
        """
        self.check_own()
        step = Step(model, alias, REMOVED, None, cause)
        return self._move(step, lambda: self._store.delete_alias(model, alias))

    def delete_version(
        self, model: str, version: int, cause: Cause, *, with_aliases: bool = False, thresholds: bool = True
    ) -> Removal:
        """Remove a version and what the database has of its thresholds; who has it open keeps it.

        A version that an alias names is refused; `with_aliases` those go first, though never `latest`. So is
        a canary or a shadow, in any case. Asked
        again for a version that is gone it removes what a first call could not: thresholds. Raises
        VersionInUse, NotFound, StoreUnwritable; DatabaseUnavailable when the version is gone already says so.
        """
        self.check_own()
        place = f"{model}@{version}"
        if version not in self._store.versions(model):
            last = self._store.last_version(model)
            if thresholds and version <= last and self._forget(model, (version,), place):
                return Removal(model, (), (), True)
            self._store.resolve(model, version)  # which says what is not there
        users = self._store.users_of(model, version)
        is_beside = not all(map(is_alias, users))  # a canary or a shadow
        if LATEST in users or is_beside or (users and not with_aliases):
            found = ", ".join(users)
            raise VersionInUse(f"{place}: expected no alias to name it, found {found}")
        for alias in users:
            self.delete_alias(model, alias, cause)
        self._store.delete(model, version)
        return Removal(model, (version,), tuple(users), thresholds and self._forget(model, (version,), place))

    def delete_model(self, model: str, cause: Cause, *, confirm: str, thresholds: bool = True) -> Removal:
        """Remove a model with its aliases, versions, and thresholds; who has a version open keeps it.

        confirm  the name once more: who calls by mistake does not give it. Raises BadParameter

        Asked again for a model that is gone it removes what a first call could not. Raises ModelNotFound,
        StoreUnwritable; DatabaseUnavailable when the model is gone already says so.
        """
        self.check_own()
        if confirm != model:
            raise BadParameter(f"confirm: expected the name of the model, {model!r}, found {confirm!r:.80}")
        if not self._store.versions(model):
            were = range(1, self._store.last_version(model) + 1)
            if thresholds and self._forget(model, were, model):
                return Removal(model, (), (), True)
            self._store.resolve(model)  # which says that it is not there
        aliases = tuple(self._aliases(model))
        intentions = [self._intend(Step(model, alias, REMOVED, None, cause)) for alias in aliases]
        try:
            versions = self._store.delete_model(model)
        except Exception:
            for intention in filter(None, intentions):
                self._give_up(intention)
            raise
        for alias, intention in zip(aliases, intentions, strict=True):
            self._make(Step(model, alias, REMOVED, None, cause), intention, lambda: None)
        return Removal(model, versions, aliases, thresholds and self._forget(model, versions, model))

    def history(
        self, model: str, alias: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AliasChange]:
        """Return up to `limit` moves of a model's aliases (1 to 1000), the newest first.

        With `before` those that have a lower id: for the next page. Moves made past the registry are written
        down first. A model that is gone keeps its history. Raises ModelNotFound where there is neither, and
        InvalidName.
        """
        if alias is not None:
            check_alias(alias)
        if self._history is None:
            self._store.resolve(model)
            return []
        self._history.settle(model, list(self._aliases(model)))
        changes = self._history.page(model, alias, before, limit)
        if not changes and not self._store.versions(model):
            self._store.resolve(model)
        return changes

    def changes_to(self, model: str, version: int) -> list[AliasChange]:
        """Return the moves of aliases to a version, and what rules refused, the newest first."""
        return [] if self._history is None else self._history.of_version(model, version)

    def _aliases(self, model: str) -> dict[str, int]:
        """Return what the aliases of a model name; damaged ones are left out."""
        return dict(self._store.info(model).aliases)

    def _move(self, step: Step, act: Callable[[], object]) -> AliasMove:
        """Make a move, written down before and after."""
        before = self.named(step.model, step.alias)
        recorded = self._make(step, self._intend(step), act)
        return AliasMove(step.model, step.alias, before, self.named(step.model, step.alias), recorded)

    def _intend(self, step: Step) -> int:
        return 0 if self._history is None else self._history.intend(step)

    def _make(self, step: Step, intention: int, act: Callable[[], object]) -> bool:
        """Do what was intended; return whether it is written down as done. Raises what `act` does."""
        if self._history is None:
            act()
            return False
        acted = False

        def act_once() -> None:
            nonlocal acted
            act()
            acted = True

        try:
            self._history.make(step, intention, act_once)
        except DatabaseUnavailable as error:
            if not acted:
                raise
            log(
                logging.WARNING, "alias_history_behind", model=step.model, alias=step.alias, detail=str(error)
            )
            return False
        except Exception:
            self._give_up(intention)
            raise
        return True

    def _give_up(self, intention: int) -> None:
        assert self._history is not None
        try:
            self._history.give_up(intention)
        except DatabaseUnavailable as error:
            log(logging.WARNING, "alias_intention_left", detail=str(error))

    def _forget(self, model: str, versions: Container[int], place: str) -> bool:
        """Remove the thresholds of versions that are gone; return whether there were any."""
        if self._database is None:
            return False
        try:
            return forget_thresholds(self._database, model, versions)
        except DatabaseUnavailable as error:
            message = f"{place} is deleted, its thresholds are not: {error}"
            raise DatabaseUnavailable(message) from error
