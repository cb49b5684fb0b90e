"""The part of the store that changes aliases: a change of a
document, and the move that tells of it.

Every verb goes one way: read the document, change it, verify the versions that come, take the
model's lock, see that the document is the same still, append the move, rename the next document
over it. Readers need no lock.
"""

from pathlib import Path
from typing import NamedTuple

from xylem_store.alias import Alias, Change, apply, promoted, removed, render_alias, rolled_back
from xylem_store.errors import AliasNotFound, Conflict, Corrupt, NotFound
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
from xylem_store.reading import no_version
from xylem_store.writing import StoreWriter

_ATTEMPTS = 16  # tries to change an alias that others change too


class AliasChange(NamedTuple):
    """An alias of a model before and after a change; `after` is None where it was removed."""

    model: str
    alias: str
    old_alias: Alias
    new_alias: Alias | None

    @property
    def version(self) -> int | None:
        """Return what it names now."""
        return None if self.new_alias is None else self.new_alias.version


class AliasWriter(StoreWriter):
    """A directory of models whose aliases may be changed; see `store.Store`."""

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
        """Change an alias; the versions that it comes to name are verified and checked first.

        action  the word for it in the moves of the model
        create  whether an alias that is not there, or is damaged, begins as `Alias(0)`

        When this returns, the change survives a loss of power; when it raises, or the process dies,
        the alias is what it was. Raises what the change does, BadSplit, BadNames, NotFound,
        Corrupt, StoreUnwritable, and Conflict when others change it all the time.
        """
        for _ in range(_ATTEMPTS):
            old_alias = self._alias_or_new(name, alias, create=create)
            new_alias = apply(change, old_alias, f"{name}@{alias}")
            if new_alias == old_alias and old_alias.serial > 0:
                return AliasChange(name, alias, old_alias, new_alias)
            for version in (
                {*new_alias.versions}.difference(old_alias.versions)
                if new_alias is not None
                else ()
            ):
                self._open(name, version, verify=True, check=True)
            with self._writing(0), self._stage() as stage, self._locked(name):
                if self._alias_or_new(name, alias, create=create) != old_alias:
                    continue
                for version in () if new_alias is None else new_alias.versions:
                    if version not in self.versions(name):
                        raise no_version(name, version)
                move = move_of(alias, action, old_alias, new_alias, cause or self._cause)
                return AliasChange(
                    name, alias, old_alias, self._replace(name, alias, stage, move, new_alias)
                )
        raise Conflict(f"{name}: expected to change {alias}, found it changed {_ATTEMPTS} times")

    def promote(
        self, name: str, version: int, alias: str = LATEST, cause: Cause | None = None
    ) -> AliasChange:
        """Make an alias name a version, verified first; canary and shadow of the alias end.

        An alias whose file is damaged is made anew: without its history, and it denies no labels.
        Raises as `change_alias`.
        """
        change = promoted(check_version(version))
        return self.change_alias(name, alias, PROMOTED, change, cause, create=True)

    def rollback(
        self, name: str, alias: str = LATEST, to: int | None = None, cause: Cause | None = None
    ) -> AliasChange:
        """Make an alias name the version it named before, or with
        `to` one further back, verified first.

        What the alias named after it is forgotten: the next step back leads further back. Versions
        deleted since are passed over. `to` the version that it names already only ends its canary
        and shadow, and so does a step back while there is a canary. Raises NothingToRollBack when
        none is left, and as `change_alias`.
        """

        def change(current_alias: Alias) -> Alias | None:
            return rolled_back(name, alias, self.versions(name), to)(current_alias)

        return self.change_alias(name, alias, ROLLED_BACK, change, cause)

    def delete_alias(self, name: str, alias: str, cause: Cause | None = None) -> AliasChange:
        """Remove an alias, damaged or not; the version that it names stays.

        Raises NotFound, Conflict for `latest`, which every model has, or StoreUnwritable.
        """
        if check_alias(alias) == LATEST:
            raise Conflict(f"{name}: expected an alias that a model can be without, found {LATEST}")
        if alias not in self._alias_names(name):
            raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))
        return self.change_alias(name, alias, REMOVED, removed, cause, create=True)

    def note_refusal(self, name: str, alias: str, version: int, cause: Cause) -> None:
        """Write down that a promotion rule left an alias where it is. Raises as `change_alias`."""
        self._require_model(name)
        current_alias = self._alias_or_new(name, alias, create=True)
        move = move_of(alias, REFUSED, current_alias, current_alias, cause)._replace(
            to_version=version
        )
        with self._writing(0), self._locked(name), self._stage() as stage:
            self._append_moves(name, stage, [move])

    # --- parts

    def _alias_or_new(self, name: str, alias: str, *, create: bool) -> Alias:
        """Return an alias as a change finds it.

        Raises NotFound and Corrupt, unless it may begin anew.
        """
        try:
            return self.alias(name, alias)
        except (NotFound, Corrupt):
            if not create:
                raise
            return Alias(0)

    def _replace(
        self, name: str, alias: str, stage: Path, move: Move, new_alias: Alias | None
    ) -> Alias | None:
        """Tell of a move, put the document that it makes in its
        place, and return it; under the lock.
        """
        new_alias = self._stage_alias(name, stage, move, new_alias)
        self._put_alias(name, alias, stage, new_alias)
        return new_alias

    def _stage_alias(
        self, name: str, stage: Path, move: Move, new_alias: Alias | None
    ) -> Alias | None:
        """Write all that a move takes space for: its line, and the
        document that makes it come about.
        """
        number = self._append_moves(name, stage, [move])
        if new_alias is not None:
            new_alias = new_alias._replace(serial=number)
            write_file(self._fs, stage / "alias", [render_alias(new_alias)])
        return new_alias

    def _put_alias(self, name: str, alias: str, stage: Path, new_alias: Alias | None) -> None:
        """Put the staged document in its place, or remove the one that is there, and sync."""
        directory = self._home(name) / ALIASES
        if new_alias is not None:
            self._fs.rename(stage / "alias", directory / alias_file(alias))
        elif alias in self._alias_files(name):
            self._fs.rename(directory / alias_file(alias), stage / "removed")
        self._fs.fsync_dir(directory)

    def _append_moves(self, name: str, stage: Path, moves: list[Move]) -> int:
        """Append moves, and sync; return the number of the last one,
        which they get here; under the lock.
        """
        path = self._home(name) / MOVES
        data = self._moves_bytes(name)
        serials = [document.serial for document in self.info(name).documents.values()]
        number = max([*serials, *(move.id for move in self.moves(name)[-1:])], default=0)
        lines = [render_move(move._replace(id=number + i)) for i, move in enumerate(moves, 1)]
        if len(data) > MOVES_BYTES_MAX:
            data = data[-MOVES_BYTES_MAX // 2 :]
            data = data[data.find(b"\n") + 1 :]
            self._append(stage / MOVES, data)
            self._fs.rename(stage / MOVES, path)
        is_cut_off = data and not data.endswith(b"\n")
        self._append(path, b"".join([b"\n", *lines] if is_cut_off else lines))
        self._fs.fsync_dir(self._home(name))
        return number + len(moves)

    def _append(self, path: Path, data: Buffer) -> None:
        fd = self._fs.append(path)
        try:
            self._fs.write(fd, data)
            self._fs.fsync(fd)
        finally:
            self._fs.close(fd)
