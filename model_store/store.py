"""The store: models, their versions and aliases as directories and files. FORMAT.md is the spec.

A version is staged beside the others, synced, and renamed to where it belongs; an alias is a file replaced
by renaming. So a reader sees the old or the new, also after a crash or a loss of power, and needs no lock.
Writers of one model take turns through a lock file; a lock ends with its process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from model_store.aliases import Alias, render_alias
from model_store.archive import Readable, read_archive
from model_store.errors import (
    AliasNotFound,
    Conflict,
    Corrupt,
    ModelNotFound,
    NotFound,
    NothingToRollBack,
    StoreUnwritable,
    VersionInUse,
)
from model_store.fs import make_dirs, write_file
from model_store.identifiers import (
    VERSION_MAX,
    check_alias,
    check_model,
    check_version,
)
from model_store.label_info import LABEL_INFO, map_label_info
from model_store.label_writing import LabelWriter
from model_store.layout import ALIASES, DENIED, LAST, SPLITS, VERSIONS
from model_store.layout import LATEST as LATEST
from model_store.layout import MODELS as MODELS
from model_store.made_for import made_for_of
from model_store.manifest import Manifest, manifest_digest
from model_store.reading import ModelInfo as ModelInfo
from model_store.reading import no_version
from model_store.splits import Split, render_split
from model_store.version import (
    Draft,
    manifest_of,
    map_version,
    verify_version,
    write_arrays,
    write_manifest,
)


class Store(LabelWriter):
    """A directory of models; any number of processes may read and write it at once."""

    def prepare(self) -> None:
        """Make the store where there is none; raise StoreUnwritable when a version could not be staged in it.

        Before long work whose result is to be published. The directory that holds the store must be there: a
        path that was mistyped is refused rather than made. A disk may still fill up afterwards.
        """
        with self._writing(0), self._stage():
            pass

    def publish(self, name: str, draft: Draft, *, latest: bool = True) -> Manifest:
        """Write a draft as the model's next version, move `latest` to it, and return its manifest.

        Without `latest` that alias stays, but for a model's first version, which it always names. A draft
        that says what it was made for (`model_store.made_for`) is published once: where such a version is
        there already, it stays the only one, and its manifest is returned.

        When this returns, the version survives a loss of power. When it raises, `latest` is where it was:
        Corrupt for a draft that breaks the format, StoreUnwritable when the disk refuses. Should the disk
        fail at the very last step, the complete version is there without its alias: promote it.
        """
        check_model(name)
        manifest = manifest_of(draft)
        needed = draft.needed_bytes()
        with self._writing(needed), self._stage() as stage:
            self._require_space(needed)
            self._fs.mkdir(stage / "version")
            infos = write_arrays(self._fs, stage / "version", draft.arrays())
            manifest = dataclasses.replace(manifest, arrays=infos)
            made_for = made_for_of(draft.extra)
            return self._commit(name, stage, manifest, made_for=made_for, latest=latest)

    def import_(self, file: Readable, name: str, *, latest: bool = True) -> Manifest:
        """Publish a version that `export` wrote, as the next version of model `name`; see `publish`.

        `file` is read once from its present place on, and need not be able to seek. The version is verified
        wholly before it is published. Label info that came with it becomes the model's unless that has some.
        Raises Corrupt for an archive that is not a version.
        """
        check_model(name)
        with self._writing(0), self._stage() as stage:
            self._fs.mkdir(stage / "version")
            info = stage / LABEL_INFO
            manifest = read_archive(self._fs, file, stage / "version", self._require_space, info)
            verify_version(*map_version(self._fs, stage / "version", manifest))
            has_info = LABEL_INFO in [entry.name for entry in self._entries(stage)]
            if has_info:
                map_label_info(self._fs, info, f"archive: {LABEL_INFO}")
            manifest = self._commit(name, stage, manifest, latest=latest)
            if has_info:
                with self._locked(name):
                    self._adopt_label_info(name, info)
            return manifest

    def mirror(self, file: Readable, name: str, version: int, digest: str) -> Manifest:
        """Publish a version that `export` wrote under the number that it had in another store.

        digest  its `manifest_digest`
        No alias moves, but `latest` of a model's first version. A version that is there already stays. Raises
        Corrupt for an archive of another version, or of none, Conflict where the number is another's here.
        """
        check_model(name)
        with self._writing(0), self._stage() as stage:
            self._fs.mkdir(stage / "version")
            manifest = read_archive(self._fs, file, stage / "version", self._require_space)
            found = f"{manifest.model}@{manifest.version} of {manifest_digest(manifest)}"
            if found != f"{name}@{version} of {digest}":
                raise Corrupt("archive", f"{name}@{version} of {digest}", found)
            verify_version(*map_version(self._fs, stage / "version", manifest))
            with self._locked(name):
                if version in self.versions(name):
                    if manifest_digest(self.manifest(name, version)) != digest:
                        raise Conflict(f"{name}@{version}: expected the version of {digest}, found another")
                    return manifest
                write_manifest(self._fs, stage / "version", manifest)
                self._write_version(name, version, stage, moves_latest=not self.versions(name))
        return manifest

    def promote(self, name: str, version: int, alias: str = LATEST) -> None:
        """Make an alias name a version, verified first. Raises NotFound, Corrupt, StoreUnwritable.

        An alias whose file is damaged is made anew, without its history. A split of the alias ends.
        """
        check_alias(alias)
        self._open(name, version, verify=True)
        with self._writing(0), self._stage() as stage, self._locked(name):
            if version not in self.versions(name):
                raise no_version(name, version)
            self._write_alias(stage, self._moved(name, alias, version))
            self._put_alias(name, stage, alias)

    def rollback(self, name: str, alias: str = LATEST, to: int | None = None) -> int:
        """Make an alias name the version it named before, or with `to` one further back, verified first.

        Returns that version. What the alias named after it is forgotten: the next step back leads further
        back. Versions deleted since are passed over. `to` the version that it names already only ends its
        split, and so does a step back while there is a canary. Raises NothingToRollBack when none is left,
        NotFound, Corrupt or StoreUnwritable.
        """
        self.alias(name, alias)
        with self._writing(0), self._stage() as stage, self._locked(name):
            now = self.alias(name, alias)
            if to == now.version or (to is None and self._has_canary(name, alias)):
                self._drop_split(name, stage, alias)
                return now.version
            back = now.back(self.versions(name), to)
            if back is None:
                which = "an earlier version" if to is None else f"version {to} among the earlier ones"
                raise NothingToRollBack(f"{name}: expected {which} of {alias}, found none")
            self._open(name, back.version, verify=True)
            self._write_alias(stage, back)
            self._put_alias(name, stage, alias)
        return back.version

    def put_split(self, name: str, alias: str, split: Split, *, expected: Split | None = None) -> None:
        """Have other versions stand beside the one that an alias names, verified first.

        expected  the split that was read before, without canary and shadow where there was none; None: any

        Raises BadSplit, NotFound, Corrupt, StoreUnwritable, and Conflict when the alias does not name
        `split.stable`, or has another split than expected. The split ends when the alias is moved, whoever
        moves it.
        """
        split.check()
        for version in split.others:
            self._open(name, version, verify=True)
        with self._writing(0), self._stage() as stage, self._locked(name):
            now = self.alias(name, alias)
            if now.version != split.stable:
                raise Conflict(f"{name}: expected {alias} to name {split.stable}, found {now.version}")
            self._require_split(name, alias, expected)
            for version in split.others:
                if version not in self.versions(name):
                    raise no_version(name, version)
            home = make_dirs(self._fs, self._home(name), SPLITS).parent
            if alias not in [entry.name for entry in self._entries(home / ALIASES)]:
                self._write_alias(stage, now)  # `latest`, which without a file moves by itself
                self._put_alias(name, stage, alias)
            write_file(self._fs, stage / "split", [render_split(split)])
            self._fs.rename(stage / "split", home / SPLITS / alias)
            self._fs.fsync_dir(home / SPLITS)

    def end_split(self, name: str, alias: str, *, expected: Split | None = None) -> None:
        """Remove what stands beside the version that an alias names, damaged or not, if there is anything.

        Raises NotFound, StoreUnwritable, and Conflict as `put_split` does.
        """
        if not self.versions(name):
            raise self._missing(name, ModelNotFound(name))
        with self._writing(0), self._stage() as stage, self._locked(name):
            if check_alias(alias) not in self._alias_names(name):
                raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))
            self._require_split(name, alias, expected)
            self._drop_split(name, stage, alias)

    def delete(self, name: str, version: int) -> None:
        """Remove a version that no alias names; who has it open keeps it. Its number is not used again.

        Raises NotFound, VersionInUse, Corrupt for a damaged alias (promote it anew), or StoreUnwritable.
        """
        self.resolve(name, check_version(version))
        with self._writing(0), self._stage() as stage, self._locked(name):
            versions = self.versions(name)
            if version not in versions:
                raise no_version(name, version)
            users = self.users_of(name, version)
            if users:
                raise VersionInUse(
                    f"{name}@{version}: expected no alias to name it, found {', '.join(users)}"
                )
            self._keep_last(name, stage)
            self._fs.rename(self._version_path(name, version), stage / "deleted")
            self._fs.fsync_dir(self._home(name) / VERSIONS)

    def delete_alias(self, name: str, alias: str) -> None:
        """Remove an alias, damaged or not; the version that it names stays.

        Raises NotFound, Conflict for `latest`, which every model has, or StoreUnwritable.
        """
        if check_alias(alias) == LATEST:
            raise Conflict(f"{name}: expected an alias that a model can be without, found {LATEST}")
        with self._writing(0), self._stage() as stage, self._locked(name):
            if alias not in self._alias_names(name):
                raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))
            self._fs.rename(self._home(name) / ALIASES / alias, stage / "deleted")
            self._fs.fsync_dir(self._home(name) / ALIASES)
            self._drop_split(name, stage, alias)
            self._drop_denied(name, stage, alias)

    def delete_model(self, name: str) -> tuple[int, ...]:
        """Remove a model, its aliases, its label info and all its versions, and return their numbers.

        Who has a version open keeps it. The numbers are not used again, should a model of that name be
        published later. A crash leaves the model as it was, or without label info, or with `latest` alone, or
        gone. Raises ModelNotFound or StoreUnwritable.
        """
        self._require_model(name)
        with self._writing(0), self._stage() as stage, self._locked(name):
            versions = self.versions(name)
            self._keep_last(name, stage)
            self._remove_label_info(name, stage)
            there = [entry.name for entry in self._entries(self._home(name))]
            for part in (SPLITS, ALIASES, VERSIONS, DENIED):
                if part in there:
                    self._fs.rename(self._home(name) / part, stage / part)
                    self._fs.fsync_dir(self._home(name))
        return versions

    # --- parts

    def _commit(
        self,
        name: str,
        stage: Path,
        manifest: Manifest,
        *,
        made_for: str | None = None,
        latest: bool,
    ) -> Manifest:
        """Give the staged arrays a number and a manifest, and make them the latest version, or a further one.

        Everything that takes space is written before the first rename. `latest` is written before it too
        where it stays and has no file, which would have it name the highest version.
        """
        with self._locked(name):
            if made_for is not None and (there := self.published(name, made_for)):
                return there
            version = self._next_version(name)
            manifest = dataclasses.replace(manifest, model=name, version=version)
            write_manifest(self._fs, stage / "version", manifest)
            self._write_version(name, version, stage, moves_latest=latest or not self.versions(name))
        return manifest

    def _write_version(self, name: str, version: int, stage: Path, *, moves_latest: bool) -> None:
        """Put a staged version in its place, and have `latest` name it or stay; under the lock."""
        if moves_latest:
            self._write_alias(stage, self._moved(name, LATEST, version))
        elif LATEST not in [entry.name for entry in self._entries(self._home(name) / ALIASES)]:
            self._write_alias(stage, self.alias(name, LATEST))  # which without a file names the highest
            self._put_alias(name, stage, LATEST)
        self._fs.rename(stage / "version", self._version_path(name, version))
        self._fs.fsync_dir(self._home(name) / VERSIONS)
        if moves_latest:
            self._put_alias(name, stage, LATEST)

    def _keep_last(self, name: str, stage: Path) -> None:
        """Keep the highest number that a version has or had; under the lock."""
        write_file(self._fs, stage / LAST, [render_alias(Alias(self.last_version(name), ()))])
        self._fs.rename(stage / LAST, self._home(name) / LAST)
        self._fs.fsync_dir(self._home(name))

    def _next_version(self, name: str) -> int:
        """Return a number that no version has or had; under the lock."""
        version = self.last_version(name) + 1
        if version > VERSION_MAX:
            raise StoreUnwritable(f"{name}: expected at most {VERSION_MAX} versions, found all numbers used")
        return version

    def _moved(self, name: str, alias: str, version: int) -> Alias:
        """Return an alias as it will be once it names `version`; a missing or damaged one begins anew."""
        try:
            return self.alias(name, alias).moved(version)
        except (NotFound, Corrupt):
            return Alias(version, ())

    def _write_alias(self, stage: Path, alias: Alias) -> None:
        write_file(self._fs, stage / "alias", [render_alias(alias)])

    def _put_alias(self, name: str, stage: Path, alias: str) -> None:
        """Replace an alias's file by the staged one, and sync; its split ends.

        One that holds goes after the move: no reader sees the alias with the split gone and not moved. One
        that does not hold goes before: the move must not bring it into force.
        """
        if not self._has_split(name, alias):
            self._drop_split(name, stage, alias)
        self._fs.rename(stage / "alias", self._home(name) / ALIASES / alias)
        self._fs.fsync_dir(self._home(name) / ALIASES)
        self._drop_split(name, stage, alias)

    def _require_split(self, name: str, alias: str, expected: Split | None) -> None:
        """Raise Conflict where an alias has another split than was read before; under the lock."""
        if expected is None:
            return
        now = self.split(name, alias) or Split(self.alias(name, alias).version)
        if now != expected:
            found = "that somebody has changed it"
            raise Conflict(f"{name}: expected the split of {alias} as it was read, found {found}")

    def _has_split(self, name: str, alias: str) -> bool:
        with contextlib.suppress(NotFound, Corrupt):
            return self.split(name, alias) is not None
        return False

    def _has_canary(self, name: str, alias: str) -> bool:
        with contextlib.suppress(Corrupt):
            split = self.split(name, alias)
            return split is not None and split.canary is not None
        return False

    def _drop_split(self, name: str, stage: Path, alias: str) -> None:
        """Remove the file of a split, if there is one, and sync."""
        directory = self._home(name) / SPLITS
        if alias in [entry.name for entry in self._entries(directory)]:
            self._fs.rename(directory / alias, stage / "ended")
            self._fs.fsync_dir(directory)
