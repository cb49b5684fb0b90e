"""The half of the store that reads: models, versions and aliases, which anybody may read at any time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from model_store.aliases import ALIAS_BYTES_MAX, Alias, parse_alias
from model_store.archive import Writable, archive_pieces
from model_store.denied import DENIED_BYTES_MAX, parse_denied
from model_store.errors import (
    AliasNotFound,
    Corrupt,
    ModelNotFound,
    NotFound,
    StoreUnreadable,
    VersionNotFound,
)
from model_store.fs import Buffer, Entry, FileSystem
from model_store.identifiers import (
    check_alias,
    check_model,
    check_version,
    is_alias,
    is_model,
    is_version,
    parse_ref,
)
from model_store.label_info import HEAD_BYTES, LABEL_INFO, Head, LabelInfo, map_label_info, parse_head
from model_store.layout import ALIASES, DENIED, LAST, LATEST, MODELS, SPLITS, VERSIONS
from model_store.made_for import is_made_for
from model_store.manifest import Manifest
from model_store.read_faults import reading
from model_store.splits import SPLIT_BYTES_MAX, Split, parse_split
from model_store.verified import Verified
from model_store.version import (
    Model,
    map_version,
    read_manifest,
    verify_version,
)
from model_store.watch import StoreWatch

_OPEN_ATTEMPTS = 3


class ModelInfo(NamedTuple):
    """A model of the store: its versions, ascending, what its aliases name, and aliases it cannot read.

    splits, denied                of the aliases that have a split, and of those that deny labels
    broken_splits, broken_denied  the aliases of which it cannot be read; they name what they name
    """

    name: str
    versions: tuple[int, ...]
    aliases: Mapping[str, int]
    broken_aliases: tuple[str, ...] = ()
    splits: Mapping[str, Split] = MappingProxyType({})
    broken_splits: tuple[str, ...] = ()
    denied: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    broken_denied: tuple[str, ...] = ()


class StoreReader:
    """A directory of models, to be read; see `store.Store`."""

    def __init__(self, root: Path, *, fs: FileSystem | None = None) -> None:
        self.root = Path(root)
        self._fs = fs or FileSystem()
        self._verified = Verified()

    def models(self) -> list[ModelInfo]:
        """Return the models that have a version, by name. Aliases that cannot be read do not raise."""
        found = [e.name for e in self._entries(self.root / MODELS) if e.is_dir and is_model(e.name)]
        return [info for info in map(self.info, found) if info.versions]

    def info(self, name: str) -> ModelInfo:
        """Return what there is of a model; one that is not there has no versions and no aliases."""
        versions = self.versions(name)
        aliases, broken = {}, []
        for alias in self._alias_names(name) if versions else []:
            try:
                aliases[alias] = self.alias(name, alias).version
            except (Corrupt, StoreUnreadable):
                broken.append(alias)
        splits, broken_splits = {}, []
        for entry in self._entries(self._home(name) / SPLITS):
            if entry.name not in aliases:
                continue
            try:
                split = self._read_split(name, entry.name)
            except (Corrupt, StoreUnreadable):
                broken_splits.append(entry.name)
                continue
            if split is not None and split.stable == aliases[entry.name]:
                splits[entry.name] = split
        denied, broken_denied = self._denied_of(name, {*aliases, *broken})
        return ModelInfo(
            name, versions, aliases, tuple(broken), splits, tuple(broken_splits), denied, broken_denied
        )

    def last_version(self, name: str) -> int:
        """Return the highest number that a version of a model has or had, 0 if none; raise Corrupt."""
        numbers = [0, *self.versions(name)]
        path = self._home(name) / LAST
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            numbers.append(parse_alias(self._fs.read(path, ALIAS_BYTES_MAX), f"{name}: {LAST}").version)
        return max(numbers)

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

    def split(self, name: str, alias: str = LATEST) -> Split | None:
        """Return what stands beside the version that an alias names, None where nothing does.

        A split of another version than the alias names now does not count: whoever moved the alias died
        before it was removed, or knew of no splits. Raises NotFound or Corrupt.
        """
        version = self.alias(name, alias).version
        split = self._read_split(name, alias)
        return split if split is not None and split.stable == version else None

    def denied(self, name: str, alias: str = LATEST) -> tuple[str, ...]:
        """Return the labels that answers of an alias never have, ascending; () where it denies none.

        They stay with the alias when it is moved, and may be others than its version has. Raises NotFound,
        Corrupt or StoreUnreadable.
        """
        if check_alias(alias) not in self._alias_names(name) or not self.versions(name):
            raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))
        return self._read_denied(name, alias)

    def users_of(self, name: str, version: int) -> list[str]:
        """Return what names a version: aliases, `canary of ALIAS`, `shadow of ALIAS`. Raises Corrupt."""
        users = []
        for alias in self._alias_names(name):
            if self.alias(name, alias).version == version:
                users.append(alias)
            split = self.split(name, alias)
            if split is not None:
                users += [f"{role} of {alias}" for role in split.roles_of(version)]
        return users

    def resolve(self, name: str, ref: str | int = LATEST) -> int:
        """Return the version that `ref`, a number or an alias, stands for; raise NotFound."""
        parsed = parse_ref(ref)
        if isinstance(parsed, str):
            return self.alias(name, parsed).version
        if parsed not in self.versions(name):
            raise self._missing(name, no_version(name, parsed))
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
        raise no_version(name, version)

    def verify(self, name: str, version: int) -> None:
        """Raise Corrupt unless every digest of a version is right and every invariant holds."""
        self._open(name, version, verify=True, again=True)

    def label_info_head(self, name: str) -> Head | None:
        """Return what a model's label info says of itself, None where there is none; raise Corrupt.

        Cost: a read of 8 kB. Its `sha256` differs whenever the info does. Raises StoreUnreadable.
        """
        path = self._home(name) / LABEL_INFO
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return parse_head(self._fs.read(path, HEAD_BYTES - 1), f"{name}: {LABEL_INFO}")
        return None

    def label_info(self, name: str) -> LabelInfo | None:
        """Return a model's label info, mapped, every digest and invariant checked; None where there is none.

        It stays valid when it is replaced. Raises Corrupt or StoreUnreadable.
        """
        path = self._home(name) / LABEL_INFO
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return map_label_info(self._fs, path, f"{name}: {LABEL_INFO}")
        return None

    def watch(self) -> StoreWatch:
        """Return what tells, again and again, whether there is a change. One thread at a time."""
        return StoreWatch(self.root, self._fs)

    def published(self, name: str, made_for: str) -> Manifest | None:
        """Return the manifest of the version that was made for `made_for`, None when there is none.

        Cost: the manifests of all versions, the newest first. Raises StoreUnreadable.
        """
        for version in reversed(self.versions(name)):
            with contextlib.suppress(NotFound, Corrupt):
                manifest = self.manifest(name, version)
                if is_made_for(manifest, made_for):
                    return manifest
        return None

    def export(self, name: str, version: int, file: Writable, *, label_info: bool = False) -> None:
        """Write a version, verified first, to `file` as a tar, which is only written to.

        label_info  whether that of the model goes with it, where there is any

        Raises NotFound, Corrupt and StoreUnreadable, and what `file` raises.
        """
        self.verify(name, version)
        for piece in self._archive(name, version, self.label_info(name) if label_info else None):
            file.write(piece)

    # --- parts

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

    def _read_split(self, name: str, alias: str) -> Split | None:
        """Return the split in an alias's file, whether it counts or not; None without one. Raises Corrupt."""
        path = self._home(name) / SPLITS / check_alias(alias)
        try:
            with self._reading(path):
                return parse_split(self._fs.read(path, SPLIT_BYTES_MAX), f"{name}: split of {alias}")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _read_denied(self, name: str, alias: str) -> tuple[str, ...]:
        """Return the denied labels in an alias's file, () without one. Raises Corrupt."""
        path = self._home(name) / DENIED / check_alias(alias)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return parse_denied(self._fs.read(path, DENIED_BYTES_MAX), f"{name}: labels denied by {alias}")
        return ()

    def _denied_of(
        self, name: str, aliases: Container[str]
    ) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """Return the denied labels of the aliases of a model that deny any, and of which they are damaged."""
        denied, broken = {}, []
        for entry in self._entries(self._home(name) / DENIED):
            try:
                if entry.name in aliases and (labels := self._read_denied(name, entry.name)):
                    denied[entry.name] = labels
            except (Corrupt, StoreUnreadable):
                broken.append(entry.name)
        return denied, tuple(broken)

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

    def _archive(self, name: str, version: int, info: LabelInfo | None) -> Iterator[Buffer]:
        manifest, directory = self.manifest(name, version), self._version_path(name, version)
        with self._reading_version(name, version):
            yield from archive_pieces(self._fs, directory, manifest, info)

    def _missing(self, name: str, error: NotFound) -> NotFound:
        """Return ModelNotFound when the whole model is missing, else `error`."""
        if self.versions(name):
            return error
        missing = ModelNotFound(f"{self.root}: expected a model, found none named {name!r}")
        missing.told = f"expected a model, found none named {name!r}"
        return missing

    def _reading(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """Give the errors of reading their types, but for missing files."""
        return reading(self.root, path)

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
            raise self._missing(name, no_version(name, version)) from None


def no_version(name: str, version: int) -> VersionNotFound:
    """Return the refusal of a version that is not there."""
    return VersionNotFound(f"{name}: expected one of its versions, found {version}")
