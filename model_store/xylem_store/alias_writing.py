"""The part of the store that changes aliases: the document, and the move that records the change.

Every change takes the same steps: read the document, apply the change, verify the versions that
are new to it, take the model's lock, check that the document is still the same, append the move,
and rename the next document over the old one. Readers need no lock.
"""

from pathlib import Path
from typing import Any, NamedTuple

from xylem_store.alias import Alias, Change, apply, promoted, removed, render_alias, rolled_back
from xylem_store.errors import AliasNotFound, Conflict, Corrupt, NotFound
from xylem_store.files import StoreFiles
from xylem_store.fs import Buffer, write_file
from xylem_store.identifiers import ALIASES, LATEST, MOVES, alias_file, check_alias, check_version
from xylem_store.moves import (
    MOVES_BYTES_MAX,
    PROMOTED,
    REFUSED,
    REMOVED,
    ROLLED_BACK,
    Cause,
    Move,
    move_of,
    render_move,
)
from xylem_store.reading import StoreReader, no_version
from xylem_store.staging import Staging

_ATTEMPTS = 16  # to change an alias that other writers change meanwhile


class AliasChange(NamedTuple):
    """An alias of a model before and after a change; `new_alias` is None if it was removed."""

    model: str
    alias: str
    old_alias: Alias
    new_alias: Alias | None

    @property
    def version(self) -> int | None:
        """Return the version that the alias names after the change, None if it was removed."""
        return None if self.new_alias is None else self.new_alias.version

    def move(self) -> dict[str, Any]:
        """Return the JSON of a moved alias: the version that it names now, and the one before."""
        return {
            "model": self.model,
            "alias": self.alias,
            "version": self.version,
            "previous_version": self.old_alias.version or None,
        }

    def split(self) -> dict[str, Any]:
        """Return the JSON of an alias: its version, its canary and its shadow."""
        return {
            "model": self.model,
            "alias": self.alias,
            "version": self.version,
            **(self.new_alias or Alias(0)).split(),
        }


class AliasWriter:
    """The part of a store that changes aliases; see `store.Store`.

    cause  the cause of moves in calls without one
    """

    def __init__(
        self, files: StoreFiles, reader: StoreReader, staging: Staging, cause: Cause
    ) -> None:
        self.cause = cause
        self._files = files
        self._reader = reader
        self._staging = staging

    def change_alias(
        self,
        name: str,
        alias: str,
        action: str,
        change: Change,
        cause: Cause | None = None,
        *,
        create: bool = False,
    ) -> AliasChange:
        """Change an alias, after verifying and checking the versions that are new to it.

        action  the word for the change in the moves of the model
        create  whether an alias that is missing or damaged begins as `Alias(0)`

        When this returns, the change survives a loss of power; when it raises, or the process dies,
        the alias is what it was. Raises what the change raises, BadSplit, BadNames, NotFound,
        Corrupt, StoreUnwritable, and Conflict if other writers change the alias at every attempt.
        """
        for _ in range(_ATTEMPTS):
            old_alias = self.alias_or_new(name, alias, create=create)
            new_alias = apply(change, old_alias, f"{name}@{alias}")
            if new_alias == old_alias and old_alias.serial > 0:
                return AliasChange(name, alias, old_alias, new_alias)
            for version in (
                () if new_alias is None else {*new_alias.versions}.difference(old_alias.versions)
            ):
                self._reader.open_version(name, version, verify=True, check=True)
            with (
                self._staging.writing(0),
                self._staging.stage() as stage,
                self._staging.locked(name),
            ):
                if self.alias_or_new(name, alias, create=create) != old_alias:
                    continue
                for version in () if new_alias is None else new_alias.versions:
                    if version not in self._reader.versions(name):
                        raise no_version(name, version)
                move = move_of(alias, action, old_alias, new_alias, cause or self.cause)
                return AliasChange(
                    name, alias, old_alias, self.replace(name, alias, stage, move, new_alias)
                )
        raise Conflict(
            f"{name}: expected to change {alias}, found it changed by others {_ATTEMPTS} times"
        )

    def promote(
        self, name: str, version: int, alias: str = LATEST, cause: Cause | None = None
    ) -> AliasChange:
        """Make an alias name a version, verified first; its canary and its shadow end.

        An alias whose file is damaged is made again, without its history and without denied labels.
        Raises what `change_alias` raises.
        """
        return self.change_alias(
            name, alias, PROMOTED, promoted(check_version(version)), cause, create=True
        )

    def rollback(
        self, name: str, alias: str = LATEST, to: int | None = None, cause: Cause | None = None
    ) -> AliasChange:
        """Make an alias name its previous version, or the earlier version `to`, verified first.

        The versions that it named after that one are forgotten: the next step back leads further
        back. Deleted versions are skipped. In two cases the alias keeps its version, and only its
        canary and its shadow end: in a step back if it has a canary, and if `to` is the version
        that it already names. Raises NothingToRollBack if no earlier version is left, and what
        `change_alias` raises.
        """

        def change(current_alias: Alias) -> Alias | None:
            return rolled_back(name, alias, self._reader.versions(name), to)(current_alias)

        return self.change_alias(name, alias, ROLLED_BACK, change, cause)

    def delete_alias(self, name: str, alias: str, cause: Cause | None = None) -> AliasChange:
        """Remove an alias, even a damaged one; the version that it names stays.

        Raises NotFound, Conflict for `latest`, which every model has, or StoreUnwritable.
        """
        if check_alias(alias) == LATEST:
            raise Conflict(
                f"{name}: the alias {LATEST} cannot be deleted, since every model has it"
            )
        if alias not in self._reader.alias_names(name):
            raise self._reader.missing(
                name, AliasNotFound(f"{name}: expected an alias, found {alias!r}")
            )
        return self.change_alias(name, alias, REMOVED, removed, cause, create=True)

    def note_refusal(self, name: str, alias: str, version: int, cause: Cause) -> None:
        """Record that a promotion rule left an alias unchanged.

        Raises what `change_alias` raises.
        """
        self._reader.require_model(name)
        current_alias = self.alias_or_new(name, alias, create=True)
        move = move_of(alias, REFUSED, current_alias, current_alias, cause)._replace(
            to_version=version
        )
        with self._staging.writing(0), self._staging.locked(name), self._staging.stage() as stage:
            self.append_moves(name, stage, [move])

    # --- for the writer of versions

    def alias_or_new(self, name: str, alias: str, *, create: bool) -> Alias:
        """Return the present alias; with `create`, `Alias(0)` for one that is missing or damaged.

        Raises NotFound and Corrupt without `create`.
        """
        try:
            return self._reader.alias(name, alias)
        except (NotFound, Corrupt):
            if not create:
                raise
            return Alias(0)

    def replace(
        self, name: str, alias: str, stage: Path, move: Move, new_alias: Alias | None
    ) -> Alias | None:
        """Append a move, put the new document in place and return it; called under the lock.

        None removes the alias.
        """
        new_alias = self.stage_alias(name, stage, move, new_alias)
        self.put_alias(name, alias, stage, new_alias)
        return new_alias

    def stage_alias(
        self, name: str, stage: Path, move: Move, new_alias: Alias | None
    ) -> Alias | None:
        """Write the line of the move and the staged document; return the document with its serial.

        All that needs disk space is written here.
        """
        number = self.append_moves(name, stage, [move])
        if new_alias is not None:
            new_alias = new_alias._replace(serial=number)
            write_file(self._files.fs, stage / "alias", [render_alias(new_alias)])
        return new_alias

    def put_alias(self, name: str, alias: str, stage: Path, new_alias: Alias | None) -> None:
        """Put the staged document in its place, or remove the existing one, and sync."""
        directory = self._files.home(name) / ALIASES
        if new_alias is not None:
            self._files.fs.rename(stage / "alias", directory / alias_file(alias))
        elif alias in self._files.alias_names(name):
            self._files.fs.rename(directory / alias_file(alias), stage / "removed")
        self._files.fs.fsync_dir(directory)

    def append_moves(self, name: str, stage: Path, moves: list[Move]) -> int:
        """Number and append moves, and sync; return the last number. Called under the lock."""
        path = self._files.home(name) / MOVES
        data = self._files.moves(name)
        serials = [document.serial for document in self._reader.info(name).documents.values()]
        number = max([*serials, *(move.id for move in self._reader.moves(name)[-1:])], default=0)
        lines = [render_move(move._replace(id=number + i)) for i, move in enumerate(moves, 1)]
        if len(data) > MOVES_BYTES_MAX:
            data = data[-MOVES_BYTES_MAX // 2 :]
            data = data[data.find(b"\n") + 1 :]
            self._append(stage / MOVES, data)
            self._files.fs.rename(stage / MOVES, path)
        self._append(
            path, b"".join([b"\n", *lines] if data and not data.endswith(b"\n") else lines)
        )
        self._files.fs.fsync_dir(self._files.home(name))
        return number + len(moves)

    def _append(self, path: Path, data: Buffer) -> None:
        with self._files.fs.closing(self._files.fs.append(path)) as fd:
            self._files.fs.write(fd, data)
            self._files.fs.fsync(fd)
