"""Stores of before 0.1.0, in which an alias was three files: what it
names, its split and what it denies.
"""

import contextlib
from pathlib import Path
from typing import Any

from xylem_store.alias import ALIAS_BYTES_MAX, Alias, TrafficShare
from xylem_store.alias_writing import AliasWriter
from xylem_store.documents import parse_sealed
from xylem_store.identifiers import ALIASES, LATEST, MODELS, alias_in, is_alias, is_model
from xylem_store.moves import ADOPTED, move_of

_OTHERS = ("splits", "denied")


class OldStore(AliasWriter):
    """A store that may have aliases of before 0.1.0."""

    def migrate(self) -> list[str]:
        """Make documents of all such aliases; return the models that had some.

        May be interrupted and repeated: an old file goes once its document is there, `latest` last.
        Raises Corrupt for a file that is damaged: remove it, and what it said is gone. Raises
        StoreUnwritable.
        """
        found = [entry.name for entry in self._entries(self.root / MODELS) if is_model(entry.name)]
        old = [name for name in found if self._old_files(name)]
        for name in old:
            with self._writing(0), self._stage() as stage, self._locked(name):
                self._migrate(name, stage)
        return old

    # --- parts

    def _alias_files(self, name: str) -> set[str]:
        """Return the aliases that have a document, whatever else is there."""
        entries = self._entries(self._home(name) / ALIASES)
        return {alias for entry in entries if (alias := alias_in(entry.name)) is not None}

    def _old_files(self, name: str) -> list[str]:
        files = [entry.name for entry in self._entries(self._home(name) / ALIASES)]
        old = [file for file in files if is_alias(file) and alias_in(file) is None]
        return sorted(old, key=lambda file: (file == LATEST, file))

    def _migrate(self, name: str, stage: Path) -> None:
        home = self._home(name)
        old = self._old_files(name)
        for alias in set(old) - self._alias_files(name):
            after = self._old_alias(name, alias)
            self._replace(
                name, alias, stage, move_of(alias, ADOPTED, after, after, self._cause), after
            )
        for part in _OTHERS:
            if part in [entry.name for entry in self._entries(home)]:
                self._fs.rename(home / part, stage / part)
        self._fs.fsync_dir(home)
        for alias in old:
            self._fs.rename(home / ALIASES / alias, stage / f"old-{alias}")
            self._fs.fsync_dir(home / ALIASES)

    def _old_alias(self, name: str, alias: str) -> Alias:
        """Return what the files of an alias say. Raises Corrupt."""
        named, split, denied = (self._fields(name, part, alias) for part in (ALIASES, *_OTHERS))
        assert named is not None
        found = Alias(named["version"], tuple(named["history"]))
        if split is not None and split["stable"] == found.version:  # another split did not count
            canary, shadow = (
                TrafficShare(version, split[parts])
                if (version := split[role]) is not None
                else None
                for role, parts in (("canary", "weight"), ("shadow", "share"))
            )
            found = found._replace(canary=canary, shadow=shadow)
        return found if denied is None else found._replace(denied=tuple(denied["labels"]))

    def _fields(self, name: str, part: str, alias: str) -> dict[str, Any] | None:
        """Return the fields of a file, which its seal proves to be
        as it was written; None without one.
        """
        path = self._home(name) / part / alias
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return parse_sealed(self._fs.read(path, 2 * ALIAS_BYTES_MAX), f"{name}: {part}/{alias}")
        return None
