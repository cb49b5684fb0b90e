"""Registry: the changes of models that commands, HTTP and jobs make.

They promote and remove versions, roll aliases back, and deny labels.
"""

import itertools
from collections.abc import Container

from pydantic import BaseModel, Field
from sqlalchemy import delete, select

from xylem.base import (
    CONCEPTS,
    FEEDBACK_ROWS,
    VERSIONS,
    BadParameter,
    Database,
    DatabaseUnavailable,
)
from xylem_store import (
    LATEST,
    PROMOTED,
    AliasChange,
    Cause,
    Change,
    Conflict,
    Manifest,
    Move,
    Readable,
    Store,
    VersionInUse,
    canary_promoted,
    check_alias,
    is_alias,
)


class Removal(BaseModel):
    """The parts of a model that were removed."""

    model: str
    versions: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    thresholds: bool = Field(
        description="whether there were thresholds of a version, which are removed, too"
    )


class Registry:
    """The models of a store, and the thresholds of their versions in a database. Thread-safe.

    All calls block, and raise StoreError. The database is used only for thresholds and rows of
    feedback: aliases move without it. Without a database, thresholds stay.

    follows  the object store whose aliases are the truth: then changes here raise Conflict; None:
             changes are made here
    """

    def __init__(self, store: Store, database: Database | None, follows: str | None = None) -> None:
        self._store = store
        self._follows = follows
        self._database = database

    def check_own(self) -> None:
        """Raise Conflict if the store follows another one, so that changes must be made there."""
        if self._follows is not None:
            raise Conflict(
                "expected a store whose models are changed here, found one that follows "
                f"{self._follows}: change that one with xylem models push"
            )

    def change(
        self, model: str, alias: str, action: str, change: Change, cause: Cause
    ) -> AliasChange:
        """Change an existing alias by a function of `xylem_store`: see `Store.change_alias`."""
        self.check_own()
        return self._store.change_alias(model, alias, action, change, cause)

    def promote(
        self, model: str, version: str | int | None, alias: str, cause: Cause
    ) -> AliasChange:
        """Make an alias name a version, all of whose digests and invariants are checked first.

        version  a number or an alias; None: the canary of the alias

        The canary and the shadow of the alias end. An alias that does not exist is created. Raises
        NotFound, InvalidName, Corrupt for a version that is damaged or another model's, Conflict if
        there is no canary, and StoreUnwritable; then the alias stays as it is.
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
        """Remove a version, and its thresholds in the database.

        Processes that have the version open can go on using it.

        A version that an alias names is refused; `with_aliases` removes these aliases first, but
        never `latest`. A canary or a shadow is refused in any case. For a version that is gone
        already, the call removes the thresholds, if an earlier call could not. Raises VersionInUse,
        NotFound, StoreUnwritable and DatabaseUnavailable, whose message says so if the version is
        gone already.
        """
        self.check_own()
        place = f"{model}@{version}"
        if version not in self._store.versions(model):
            if (
                thresholds
                and version <= self._store.last_version(model)
                and self._forget(model, (version,), place)
            ):
                return Removal(model=model, thresholds=True)
            self._store.resolve(model, version)  # raises NotFound, which names what is missing
        users = self._store.users_of(model, version)
        is_canary_or_shadow = not all(map(is_alias, users))  # such as "canary of ALIAS"
        if LATEST in users or is_canary_or_shadow or (users and not with_aliases):
            raise VersionInUse(f"{place}: expected no alias to name it, found {', '.join(users)}")
        for alias in users:
            self.delete_alias(model, alias, cause)
        self._store.delete(model, version)
        return Removal(
            model=model,
            versions=(version,),
            aliases=tuple(users),
            thresholds=thresholds and self._forget(model, (version,), place),
        )

    def delete_model(
        self, model: str, cause: Cause, *, confirm: str, thresholds: bool = True
    ) -> Removal:
        """Remove a model with its aliases, versions, thresholds and rows of feedback.

        confirm  the name once more, so that nobody deletes by mistake; raises BadParameter

        For a model that is gone already, the call removes thresholds and rows that an earlier call
        could not remove. Raises ModelNotFound, StoreUnwritable and DatabaseUnavailable, whose
        message says so if the model is gone already.
        """
        self.check_own()
        if confirm != model:
            raise BadParameter(
                f"confirm: expected the name of the model, {model!r}, found {confirm!r:.80}"
            )
        if not self._store.versions(model):
            deleted_versions = range(1, self._store.last_version(model) + 1)
            if thresholds and self._forget(model, deleted_versions, model, rows=True):
                return Removal(model=model, thresholds=True)
            self._store.resolve(model)  # raises ModelNotFound
        aliases = tuple(self._store.info(model).aliases)
        versions = self._store.delete_model(model, cause)
        forgotten = thresholds and self._forget(model, versions, model, rows=True)
        return Removal(model=model, versions=versions, aliases=aliases, thresholds=forgotten)

    def history(
        self, model: str, alias: str | None = None, before_id: int | None = None, limit: int = 100
    ) -> list[Move]:
        """Return up to `limit` moves of a model's aliases, the newest first.

        before_id  only moves with a lower id, for the next page

        A model that is gone keeps its history. Raises ModelNotFound if there is neither model nor
        history, and InvalidName.
        """
        if alias is not None:
            check_alias(alias)
        moves = self._store.moves(model)
        if not moves:
            self._store.resolve(model)  # raises ModelNotFound if there is no such model
        matches = (
            move
            for move in reversed(moves)
            if alias in (None, move.alias) and (before_id is None or move.id < before_id)
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
        """Remove the thresholds of deleted versions, and the texts of a deleted model.

        Returns whether there were thresholds.
        """
        if self._database is None:
            return False
        try:
            if rows:
                with self._database.write() as connection:
                    for table in (FEEDBACK_ROWS, CONCEPTS):
                        connection.execute(delete(table).where(table.c.model == model))
            with self._database.read() as connection:
                tuned_versions = [
                    version
                    for version in connection.execute(
                        select(VERSIONS.c.version).where(VERSIONS.c.model == model)
                    ).scalars()
                    if version in versions
                ]
            if tuned_versions:
                from xylem.thresholds import (
                    ThresholdDatabase,
                )  # imported only now, as kernels come with it

                for version in tuned_versions:
                    ThresholdDatabase(self._database).delete(model, version)
            return bool(tuned_versions)
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(
                f"{place} is deleted, its thresholds are not: {error}"
            ) from error
