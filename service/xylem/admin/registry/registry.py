"""Registry: promote, roll back, remove, deny labels: what commands, HTTP and jobs do to models."""

import itertools
from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from sqlalchemy import delete, select

from xylem.base import (
    FEEDBACK_ROWS,
    VERSIONS,
    BadParameter,
    Database,
    DatabaseUnavailable,
    UnknownLabel,
    did_you_mean,
)
from xylem_store import (
    LATEST,
    PROMOTED,
    Alias,
    AliasChange,
    BadNames,
    Cause,
    Change,
    Conflict,
    LabelChange,
    Manifest,
    Move,
    NameTable,
    Readable,
    Store,
    VersionInUse,
    canary_promoted,
    check_alias,
    denying,
    find_all,
    is_alias,
)


class Denial(NamedTuple):
    """What an alias denies.

    version   what the alias names
    labels    by name, ascending
    unknown   those of them that the version does not have: they are kept for one that has them
    """

    model: str
    alias: str
    version: int
    labels: tuple[str, ...]
    unknown: tuple[str, ...]


def denial_of(store: Store, model: str, name: str, alias: Alias) -> Denial:
    """Return what an alias denies. Raises NotFound, Corrupt."""
    unknown: tuple[str, ...] = ()
    if alias.denied:
        unknown = unknown_in(store.open(model, alias.version).labels, alias.denied)
    return Denial(model, name, alias.version, alias.denied, unknown)


def denying_known(store: Store, model: str, name: str, labels: LabelChange) -> Change:
    """Return the change of what an alias denies; labels that come must
    be of a version that answers for it.

    The change raises what `labels` does, UnknownLabel, BadNames for too many, NotFound, Corrupt.
    """

    def change(alias: Alias) -> Alias | None:
        changed_alias = denying(labels)(alias)
        if changed_alias is not None and (
            new := set(changed_alias.denied).difference(alias.denied)
        ):
            tables = [store.open(model, version).labels for version in alias.versions]
            check_known(tables, new, f"{model}@{name}")
        return changed_alias

    return change


def unknown_in(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a version does not have."""
    return tuple(name for name, i in zip(names, find_all(table, names), strict=True) if i < 0)


def check_known(tables: Sequence[NameTable], names: Collection[str], owner: str) -> None:
    """Raise UnknownLabel for a name that none of some versions has, of which `owner` tells."""
    unknown = set(names).intersection(*(unknown_in(table, tuple(names)) for table in tables))
    if unknown:
        name = min(unknown)
        raise UnknownLabel(f"expected labels of {owner}, found {name!r:.80}").at("labels")


def allow_again(names: Collection[str]) -> LabelChange:
    """Return the change that takes labels off; it raises BadNames for one that is not denied."""

    def change(denied: tuple[str, ...]) -> Collection[str]:
        for name in sorted(set(names).difference(denied)):
            hint = did_you_mean(name, denied, is_quoted=True)
            raise BadNames(f"expected labels that the alias denies, found {name!r:.80}{hint}")
        return set(denied).difference(names)

    return change


class Removal(NamedTuple):
    """What was removed of a model.

    aliases     names of those that went too
    thresholds  whether the database had thresholds of any of the versions, which are gone
    """

    model: str
    versions: tuple[int, ...]
    aliases: tuple[str, ...]
    thresholds: bool


class Registry:
    """The models of a store, and the thresholds of their versions in a database. Thread-safe.

    All calls block, and raise StoreError. The database is asked for thresholds alone: aliases move
    without it. Without one, thresholds stay.

    follows  the object store whose aliases are the truth: changes here are refused, as Conflict;
             None: they are made here
    """

    def __init__(self, store: Store, database: Database | None, follows: str | None = None) -> None:
        self._store = store
        self._follows = follows
        self._database = database

    def check_own(self) -> None:
        """Raise Conflict when another store's aliases and versions are followed."""
        if self._follows is not None:
            raise Conflict(
                "expected a store whose models are changed here, found one that follows "
                f"{self._follows}: "
                "xylem models push changes that one"
            )

    def change(
        self, model: str, alias: str, action: str, change: Change, cause: Cause
    ) -> AliasChange:
        """Change an alias that is there, by any verb of
        `xylem_store.alias`: see `Store.change_alias`.
        """
        self.check_own()
        return self._store.change_alias(model, alias, action, change, cause)

    def promote(
        self, model: str, version: str | int | None, alias: str, cause: Cause
    ) -> AliasChange:
        """Make an alias name a version (by number or alias), all of whose
        digests and invariants are checked.

        None: its canary. Canary and shadow of the alias end. One that is not there is made. Raises
        NotFound, InvalidName, Corrupt for a version that is damaged, or another model's, Conflict
        where there is no canary, and StoreUnwritable; the alias then stays where it is.
        """
        self.check_own()
        check_alias(alias)
        if version is None:
            return self.change(model, alias, PROMOTED, canary_promoted(model, alias), cause)
        number = self._store.resolve(model, version)
        self._store.open(model, number)
        return self._store.promote(model, number, alias, cause)

    def rollback(self, model: str, alias: str, cause: Cause, to: int | None = None) -> AliasChange:
        """Make an alias name an earlier version: see `Store.rollback`."""
        self.check_own()
        return self._store.rollback(model, alias, to, cause)

    def delete_alias(self, model: str, alias: str, cause: Cause) -> AliasChange:
        """Remove an alias: see `Store.delete_alias`."""
        self.check_own()
        return self._store.delete_alias(model, alias, cause)

    def delete_version(
        self,
        model: str,
        version: int,
        cause: Cause,
        *,
        with_aliases: bool = False,
        thresholds: bool = True,
    ) -> Removal:
        """Remove a version and what the database has of its thresholds; who has it open keeps it.

        A version that an alias names is refused; `with_aliases` those go first, though never
        `latest`. So is a canary or a shadow, in any case. Asked again for a version that is gone it
        removes what a first call could not: thresholds. Raises VersionInUse, NotFound,
        StoreUnwritable; DatabaseUnavailable when the version is gone already says so.
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
            users_text = ", ".join(users)
            raise VersionInUse(f"{place}: expected no alias to name it, found {users_text}")
        for alias in users:
            self.delete_alias(model, alias, cause)
        self._store.delete(model, version)
        return Removal(
            model, (version,), tuple(users), thresholds and self._forget(model, (version,), place)
        )

    def delete_model(
        self, model: str, cause: Cause, *, confirm: str, thresholds: bool = True
    ) -> Removal:
        """Remove a model with its aliases, versions, thresholds and rows of feedback.

        confirm  the name once more: who calls by mistake does not give it. Raises BadParameter

        Asked again for a model that is gone it removes what a first call could not. Raises
        ModelNotFound, StoreUnwritable; DatabaseUnavailable when the model is gone already says so.
        """
        self.check_own()
        if confirm != model:
            raise BadParameter(
                f"confirm: expected the name of the model, {model!r}, found {confirm!r:.80}"
            )
        if not self._store.versions(model):
            deleted_versions = range(1, self._store.last_version(model) + 1)
            if thresholds and self._forget(model, deleted_versions, model, rows=True):
                return Removal(model, (), (), True)
            self._store.resolve(model)  # which says that it is not there
        aliases = tuple(self._store.info(model).aliases)
        versions = self._store.delete_model(model, cause)
        forgotten = thresholds and self._forget(model, versions, model, rows=True)
        return Removal(model, versions, aliases, forgotten)

    def history(
        self, model: str, alias: str | None = None, before_id: int | None = None, limit: int = 100
    ) -> list[Move]:
        """Return up to `limit` moves of a model's aliases, the newest first.

        With `before_id` those that have a lower id: for the next page. A model that is gone keeps its
        history. Raises ModelNotFound where there is neither, and InvalidName.
        """
        if alias is not None:
            check_alias(alias)
        moves = self._store.moves(model)
        if not moves:
            self._store.resolve(model)  # which says that there is no such model
        matches = (
            m
            for m in reversed(moves)
            if alias in (None, m.alias) and (before_id is None or m.id < before_id)
        )
        return list(itertools.islice(matches, limit))

    def publish_archive(
        self, model: str, file: Readable, cause: Cause, *, latest: bool = True
    ) -> Manifest:
        """Publish the version in an archive as the next version of a model: see `Store.import_`."""
        self.check_own()
        return self._store.import_(file, model, latest=latest, cause=cause)

    def _forget(
        self, model: str, versions: Container[int], place: str, *, rows: bool = False
    ) -> bool:
        """Remove the thresholds of versions that are gone, and the
        rows of feedback of a model that is.

        Returns whether there were thresholds.
        """
        if self._database is None:
            return False
        try:
            if rows:
                with self._database.write() as connection:
                    connection.execute(delete(FEEDBACK_ROWS).where(FEEDBACK_ROWS.c.model == model))
            with self._database.read() as connection:
                query = select(VERSIONS.c.version).where(VERSIONS.c.model == model)
                tuned_versions = [
                    version
                    for version in connection.execute(query).scalars()
                    if version in versions
                ]
            if tuned_versions:
                from xylem.thresholds import ThresholdDatabase  # and its kernels

                for version in tuned_versions:
                    ThresholdDatabase(self._database).delete(model, version)
            return bool(tuned_versions)
        except DatabaseUnavailable as error:
            message = f"{place} is deleted, its thresholds are not: {error}"
            raise DatabaseUnavailable(message) from error
