"""The store: models, their versions and aliases as directories and files. FORMAT.md is the spec.

A version is staged beside the others, synced, and renamed to where it belongs; an alias is a file replaced
by renaming. So a reader sees the old or the new, also after a crash or a loss of power, and needs no lock.
Writers of one model take turns through a lock file; a lock ends with its process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from model_store import staging
from model_store.aliases import ALIAS_BYTES_MAX, Alias, parse_alias, render_alias
from model_store.archive import archive_pieces, read_archive
from model_store.errors import (
    AliasNotFound,
    Conflict,
    Corrupt,
    ModelNotFound,
    NotFound,
    NothingToRollBack,
    StoreUnreadable,
    StoreUnwritable,
    VersionInUse,
    VersionNotFound,
)
from model_store.fs import Buffer, Entry, FileSystem, make_dirs, write_file
from model_store.identifiers import (
    VERSION_MAX,
    check_alias,
    check_model,
    check_version,
    is_alias,
    is_model,
    is_version,
    parse_ref,
)
from model_store.manifest import Manifest
from model_store.origin import is_of_origin, origin_of
from model_store.verified import Verified
from model_store.version import (
    Draft,
    Model,
    manifest_of,
    map_version,
    read_manifest,
    verify_version,
    write_arrays,
    write_manifest,
)

LATEST = "latest"
"""The alias that every publication moves."""

MODELS, VERSIONS, ALIASES, LAST = "models", "versions", "aliases", "last_version"

_OPEN_ATTEMPTS = 3
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""What opening gives for a link, a pipe, a directory or a socket where a file should be."""


class ModelInfo(NamedTuple):
    """A model of the store: its versions, ascending, what its aliases name, and aliases it cannot read."""

    name: str
    versions: tuple[int, ...]
    aliases: Mapping[str, int]
    broken_aliases: tuple[str, ...] = ()


class Store:
    """A directory of models; any number of processes may read and write it at once."""

    def __init__(self, root: Path, *, fs: FileSystem | None = None) -> None:
        self.root = Path(root)
        self._fs = fs or FileSystem()
        self._verified = Verified()

    # --- reading

    def models(self) -> list[ModelInfo]:
        """Return the models that have a version, by name. Aliases that cannot be read do not raise."""
        found = [e.name for e in self._entries(self.root / MODELS) if e.is_dir and is_model(e.name)]
        return [info for info in map(self._info, found) if info.versions]

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's versions, ascending; none when there is no such model."""
        found = self._entries(self._home(name) / VERSIONS)
        return tuple(sorted(int(e.name) for e in found if e.is_dir and is_version(e.name)))

    def alias(self, name: str, alias: str = LATEST) -> Alias:
        """Return what an alias names now, and before; raise NotFound or Corrupt.

        `latest` without a file names the highest version: its first publisher died at the last step.
        """
        path = self._home(name) / ALIASES / check_alias(alias)
        try:
            with self._reading(path):
                return parse_alias(self._fs.read(path, ALIAS_BYTES_MAX), f"{name}: alias {alias}")
        except (FileNotFoundError, NotADirectoryError):
            versions = self.versions(name)
            if alias == LATEST and versions:
                return Alias(versions[-1], ())
            raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}")) from None

    def resolve(self, name: str, ref: str | int = LATEST) -> int:
        """Return the version that `ref`, a number or an alias, stands for; raise NotFound."""
        parsed = parse_ref(ref)
        if isinstance(parsed, str):
            return self.alias(name, parsed).version
        if parsed not in self.versions(name):
            raise self._missing(name, _no_version(name, parsed))
        return parsed

    def manifest(self, name: str, version: int) -> Manifest:
        """Return the manifest of a version; raise NotFound, Corrupt or StoreUnreadable."""
        directory = self._version_path(name, version)
        with self._reading_version(name, version):
            manifest = read_manifest(self._fs, directory)
            if (manifest.model, manifest.version) != (name, version):
                found = f"{manifest.model}@{manifest.version}"
                raise Corrupt("manifest.json: model and version", f"{name}@{version}", found)
            return manifest

    def open(self, name: str, ref: str | int = LATEST, *, verify: bool = True) -> Model:
        """Return a version with its arrays mapped; raise NotFound, Corrupt or StoreUnreadable.

        With `verify`, every digest and invariant is checked first, unless this object has checked these very
        files before. Without, it takes milliseconds whatever the size, and no kernel may be given the model
        that was not verified before.
        """
        for _ in range(_OPEN_ATTEMPTS):
            version = self.resolve(name, ref)
            try:
                return self._open(name, version, verify=verify)
            except VersionNotFound:  # deleted since; its alias must have moved on before that
                if self.resolve(name, ref) == version:
                    raise
        raise _no_version(name, version)

    def verify(self, name: str, version: int) -> None:
        """Raise Corrupt unless every digest of a version is right and every invariant holds."""
        self._open(name, version, verify=True, again=True)

    def check_readable(self) -> None:
        """Raise StoreUnreadable unless the store is a directory that can be read; it may be empty."""
        try:
            self._fs.entries(self.root)
        except FileNotFoundError:
            raise StoreUnreadable.of(self.root, "the directory of the models", "none") from None
        except NotADirectoryError:
            raise StoreUnreadable.of(self.root, "the directory of the models", "a file") from None
        except OSError as error:
            found = error.strerror or type(error).__name__
            raise StoreUnreadable.of(self.root, "to read the directory of the models", found) from error

    def generation(self) -> tuple[object, ...]:
        """Return a value that differs when a version was published or deleted or an alias moved.

        Compare for equality only. Cost: two directories a model and a file of 200 bytes an alias.
        """
        found: list[object] = []
        for model in self._entries(self.root / MODELS):
            home = self.root / MODELS / model.name
            found.append((model.name, self._entries(home / VERSIONS)))
            for entry in self._entries(home / ALIASES):
                path = home / ALIASES / entry.name
                with contextlib.suppress(FileNotFoundError, Corrupt), self._reading(path):
                    found.append((entry.name, self._fs.read(path, ALIAS_BYTES_MAX)))
        return tuple(found)

    def export(self, name: str, version: int, file: BinaryIO) -> None:
        """Write a version, verified first, to `file` as a tar. Raises NotFound, Corrupt, StoreUnreadable."""
        self.verify(name, version)
        for piece in self._archive(name, version):
            file.write(piece)

    # --- writing

    def prepare(self) -> None:
        """Make the store where there is none; raise StoreUnwritable when a version could not be staged in it.

        Before long work whose result is to be published. The directory that holds the store must be there: a
        path that was mistyped is refused rather than made. A disk may still fill up afterwards.
        """
        with self._writing(0), self._stage():
            pass

    def publish(self, name: str, draft: Draft, *, moves_latest: bool = True) -> Manifest:
        """Write a draft as the model's next version, move `latest` to it, and return its manifest.

        Not `moves_latest`: `latest` goes on naming what it named; of a model without versions the first.
        A draft with an origin (`model_store.origin`) is published once: where a version of that origin is
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
            origin = origin_of(draft.extra)
            return self._commit(name, stage, manifest, origin=origin, moves_latest=moves_latest)

    def published(self, name: str, origin: str) -> Manifest | None:
        """Return the manifest of the version of that origin, None when there is none.

        Cost: the manifests of all versions, the newest first. Raises StoreUnreadable.
        """
        for version in reversed(self.versions(name)):
            with contextlib.suppress(NotFound, Corrupt):
                manifest = self.manifest(name, version)
                if is_of_origin(manifest, origin):
                    return manifest
        return None

    def import_(self, file: BinaryIO, name: str) -> Manifest:
        """Publish a version that `export` wrote, as the next version of model `name`; see `publish`.

        It is verified wholly before it is published. Raises Corrupt for an archive that is not a version.
        """
        check_model(name)
        with self._writing(0), self._stage() as stage:
            self._fs.mkdir(stage / "version")
            manifest = read_archive(self._fs, file, stage / "version", self._require_space)
            verify_version(*map_version(self._fs, stage / "version", manifest))
            return self._commit(name, stage, manifest)

    def promote(self, name: str, version: int, alias: str = LATEST) -> None:
        """Make an alias name a version, verified first. Raises NotFound, Corrupt, StoreUnwritable.

        An alias whose file is damaged is made anew, without its history.
        """
        check_alias(alias)
        self._open(name, version, verify=True)
        with self._writing(0), self._stage() as stage, self._locked(name):
            if version not in self.versions(name):
                raise _no_version(name, version)
            self._write_alias(stage, self._moved(name, alias, version))
            self._put_alias(name, stage, alias)

    def rollback(self, name: str, alias: str = LATEST) -> int:
        """Make an alias name the version it named before, verified first, and return that version.

        Versions deleted since are passed over. Raises NothingToRollBack when none is left, NotFound, Corrupt
        or StoreUnwritable.
        """
        self.alias(name, alias)
        with self._writing(0), self._stage() as stage, self._locked(name):
            now, versions = self.alias(name, alias), self.versions(name)
            there = [v for v in now.history if v in versions and v != now.version]
            if not there:
                raise NothingToRollBack(f"{name}: expected an earlier version of {alias}, found none")
            self._open(name, there[-1], verify=True)
            self._write_alias(stage, Alias(there[-1], tuple(there[:-1])))
            self._put_alias(name, stage, alias)
        return there[-1]

    def delete(self, name: str, version: int) -> None:
        """Remove a version that no alias names; who has it open keeps it. Its number is not used again.

        Raises NotFound, VersionInUse, Corrupt for a damaged alias (promote it anew), or StoreUnwritable.
        """
        self.resolve(name, check_version(version))
        with self._writing(0), self._stage() as stage, self._locked(name):
            versions = self.versions(name)
            if version not in versions:
                raise _no_version(name, version)
            users = [alias for alias in self._alias_names(name) if self.alias(name, alias).version == version]
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

    def delete_model(self, name: str) -> tuple[int, ...]:
        """Remove a model, its aliases and all its versions, and return their numbers.

        Who has a version open keeps it. The numbers are not used again, should a model of that name be
        published later. A crash leaves the model as it was, or with `latest` alone, or gone. Raises
        ModelNotFound or StoreUnwritable.
        """
        if not self.versions(name):
            raise self._missing(name, ModelNotFound(name))
        with self._writing(0), self._stage() as stage, self._locked(name):
            versions = self.versions(name)
            self._keep_last(name, stage)
            for part in (ALIASES, VERSIONS):
                self._fs.rename(self._home(name) / part, stage / part)
                self._fs.fsync_dir(self._home(name))
        return versions

    def collect(self) -> list[Path]:
        """Remove what dead writers left in the staging directory, and return it; the living keep theirs."""
        with self._writing(0):
            return staging.collect(self._fs, self.root)

    # --- parts of reading

    def _home(self, name: str) -> Path:
        return self.root / MODELS / check_model(name)

    def _version_path(self, name: str, version: int) -> Path:
        return self._home(name) / VERSIONS / str(check_version(version))

    def _entries(self, path: Path) -> list[Entry]:
        """Return the entries of a directory, none when there is no such directory."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return self._fs.entries(path)
        return []

    def _alias_names(self, name: str) -> list[str]:
        found = {e.name for e in self._entries(self._home(name) / ALIASES) if is_alias(e.name)}
        return sorted(found | {LATEST})

    def _info(self, name: str) -> ModelInfo:
        versions = self.versions(name)
        aliases, broken = {}, []
        for alias in self._alias_names(name) if versions else []:
            try:
                aliases[alias] = self.alias(name, alias).version
            except (Corrupt, StoreUnreadable):
                broken.append(alias)
        return ModelInfo(name, versions, aliases, tuple(broken))

    def _open(self, name: str, version: int, *, verify: bool, again: bool = False) -> Model:
        manifest = self.manifest(name, version)
        with self._reading_version(name, version):
            model, maps = map_version(self._fs, self._version_path(name, version), manifest)
            digest = hashlib.sha256(repr(manifest).encode()).digest()
            key = (name, version, digest, *(mapped.identity for mapped in maps.values()))
            if again or (verify and not self._verified.knows(key)):
                verify_version(model, maps)
                self._verified.add(key)
        return model

    def _archive(self, name: str, version: int) -> Iterator[Buffer]:
        manifest = self.manifest(name, version)
        with self._reading_version(name, version):
            yield from archive_pieces(self._fs, self._version_path(name, version), manifest)

    def _missing(self, name: str, error: NotFound) -> NotFound:
        """Return ModelNotFound when the whole model is missing, else `error`."""
        if self.versions(name):
            return error
        missing = ModelNotFound(f"{self.root}: expected a model, found none named {name!r}")
        missing.told = f"expected a model, found none named {name!r}"
        return missing

    @contextlib.contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Give the errors of reading their types, but for missing files."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            if error.errno in _NO_FILE:
                raise Corrupt(
                    self._name_of(error.filename or path), "a regular file", "something else"
                ) from error
            found = error.strerror or type(error).__name__
            raise StoreUnreadable.of(path, f"to read {self._name_of(path)}", found) from error

    def _name_of(self, path: Path | str) -> str:
        """Return a file's path within the store, for messages that clients see."""
        try:
            return str(Path(path).relative_to(self.root))
        except ValueError:
            return Path(path).name

    @contextlib.contextmanager
    def _reading_version(self, name: str, version: int) -> Iterator[None]:
        """Give the errors of reading a version their types and say which one it was."""
        try:
            with self._reading(self._version_path(name, version)):
                yield
        except Corrupt as error:
            raise error.within(f"{name}@{version}") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            if version in self.versions(name):
                found = Path(str(error.filename)).name
                raise Corrupt(f"{name}@{version}: {found}", "a file", "none") from error
            raise self._missing(name, _no_version(name, version)) from None

    # --- parts of writing

    def _commit(
        self,
        name: str,
        stage: Path,
        manifest: Manifest,
        *,
        origin: str | None = None,
        moves_latest: bool = True,
    ) -> Manifest:
        """Give the staged arrays a number and a manifest, and make them the latest version if asked.

        Everything that takes space is written before the first rename. `latest` is written before it too
        where it stays and has no file, which would have it name the highest version.
        """
        with self._locked(name):
            if origin is not None and (there := self.published(name, origin)):
                return there
            version = self._next_version(name)
            manifest = dataclasses.replace(manifest, model=name, version=version)
            write_manifest(self._fs, stage / "version", manifest)
            if moves_latest:
                self._write_alias(stage, self._moved(name, LATEST, version))
            elif self.versions(name):
                self._write_alias(stage, self.alias(name, LATEST))
                self._put_alias(name, stage, LATEST)
            self._fs.rename(stage / "version", self._version_path(name, version))
            self._fs.fsync_dir(self._home(name) / VERSIONS)
            if moves_latest:
                self._put_alias(name, stage, LATEST)
        return manifest

    def _keep_last(self, name: str, stage: Path) -> None:
        """Keep the highest number that a version has or had; under the lock."""
        write_file(self._fs, stage / LAST, [render_alias(Alias(self._last_version(name), ()))])
        self._fs.rename(stage / LAST, self._home(name) / LAST)
        self._fs.fsync_dir(self._home(name))

    def _next_version(self, name: str) -> int:
        """Return a number that no version has or had; under the lock."""
        version = self._last_version(name) + 1
        if version > VERSION_MAX:
            raise StoreUnwritable(f"{name}: expected at most {VERSION_MAX} versions, found all numbers used")
        return version

    def _last_version(self, name: str) -> int:
        """Return the highest number that a version has or had, 0 if none; under the lock."""
        numbers = [0, *self.versions(name)]
        path = self._home(name) / LAST
        with contextlib.suppress(FileNotFoundError):
            numbers.append(parse_alias(self._fs.read(path, ALIAS_BYTES_MAX), f"{name}: {LAST}").version)
        return max(numbers)

    def _moved(self, name: str, alias: str, version: int) -> Alias:
        """Return an alias as it will be once it names `version`; a missing or damaged one begins anew."""
        try:
            return self.alias(name, alias).moved(version)
        except (NotFound, Corrupt):
            return Alias(version, ())

    def _write_alias(self, stage: Path, alias: Alias) -> None:
        write_file(self._fs, stage / "alias", [render_alias(alias)])

    def _put_alias(self, name: str, stage: Path, alias: str) -> None:
        """Replace an alias's file by the staged one, and sync."""
        self._fs.rename(stage / "alias", self._home(name) / ALIASES / alias)
        self._fs.fsync_dir(self._home(name) / ALIASES)

    @contextlib.contextmanager
    def _stage(self) -> Iterator[Path]:
        """Make the store where there is none, and a directory of our own in it; clear dead ones away."""
        if not self.root.is_dir():
            self._make_root()
        with contextlib.suppress(StoreUnwritable):
            self.collect()
        with staging.stage(self._fs, self.root) as path:
            yield path

    def _make_root(self) -> None:
        """Make the store's directory, but none above it."""
        parent = self.root.parent
        if not parent.is_dir():
            fault = f"expected {parent} to be a directory, in which the store is made, found none"
            raise StoreUnwritable(f"{self.root}: {fault}")
        if self.root.exists() and not self.root.is_dir():
            raise StoreUnwritable(f"{self.root}: expected a directory, found a file")
        make_dirs(self._fs, parent, self.root.name)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model, whose directories are made where missing."""
        home = make_dirs(self._fs, self.root, MODELS, name)
        for part in (VERSIONS, ALIASES):
            make_dirs(self._fs, home, part)
        with staging.locked(self._fs, home):
            yield

    def _require_space(self, needed_bytes: int) -> None:
        free = self._fs.free_bytes(self.root)
        if free < needed_bytes:
            raise self._no_space(needed_bytes, free)

    def _no_space(self, needed_bytes: int, free_bytes: int, refusal: str | None = None) -> StoreUnwritable:
        """Return the error; `refusal` is the system's word, which there can be with bytes free (a quota)."""
        wanted = f"about {needed_bytes:,} bytes of space" if needed_bytes else "space for small files"
        found = f"{free_bytes:,} bytes free" + (f" and {refusal!r}" if refusal else "")
        return StoreUnwritable(f"{self.root}: expected {wanted}, found {found}")

    @contextlib.contextmanager
    def _writing(self, needed_bytes: int) -> Iterator[None]:
        """Give the errors of writing their type."""
        try:
            yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                with contextlib.suppress(OSError):
                    free = self._fs.free_bytes(self.root)
                    raise self._no_space(needed_bytes, free, error.strerror) from error
            raise StoreUnwritable(f"{self.root}: expected to write, found {error}") from error


def _no_version(name: str, version: int) -> VersionNotFound:
    return VersionNotFound(f"{name}: expected one of its versions, found {version}")
