"""The half of the store that reads: models, versions and aliases,
which anybody may read at any time.
"""

import contextlib
import errno
import hashlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from numpy.typing import NDArray

from xylem_store.alias import ALIAS_BYTES_MAX, SERIAL_MAX, Alias, parse_alias
from xylem_store.archive import archive_pieces
from xylem_store.arrays import file_name
from xylem_store.documents import integer, parse_sealed
from xylem_store.errors import (
    AliasNotFound,
    Corrupt,
    ModelNotFound,
    NotFound,
    StoreUnreadable,
    VersionNotFound,
)
from xylem_store.fs import Buffer, Entry, FileSystem, reading
from xylem_store.identifiers import (
    ALIASES,
    LAST,
    LATEST,
    MODELS,
    MOVES,
    VERSION_MAX,
    VERSIONS,
    alias_file,
    alias_in,
    check_alias,
    check_model,
    check_version,
    is_model,
    is_version,
    parse_ref,
)
from xylem_store.label_info import (
    HEAD_BYTES,
    LABEL_INFO,
    Head,
    LabelInfo,
    map_label_info,
    parse_head,
)
from xylem_store.manifest import ARRAYS, Manifest
from xylem_store.moves import MOVES_BYTES_MAX, Move, parse_moves
from xylem_store.origin import is_made_for
from xylem_store.version import Model, StoredArray, map_version, read_manifest, verify_version

VERIFIED_MAX = 256
"""How many verified versions are remembered; one that was forgotten is verified anew."""


Check = Callable[[Model], object]
"""Is given a verified version, and raises StoreError where it cannot be served."""

no_check: Check = bool


class ModelInfo(NamedTuple):
    """A model of the store: its versions, ascending, its aliases by
    name, and those that cannot be read.

    fault  why nothing of the model can be read; then it has no versions and no aliases here
    """

    name: str
    versions: tuple[int, ...]
    documents: Mapping[str, Alias]
    broken_aliases: tuple[str, ...] = ()
    fault: StoreUnreadable | None = None

    @property
    def aliases(self) -> dict[str, int]:
        """Return what the aliases name."""
        return {name: alias.version for name, alias in self.documents.items()}


class StoreReader:
    """A directory of models, to be read; see `store.Store`."""

    def __init__(
        self, root: Path, *, fs: FileSystem | None = None, check: Check = no_check
    ) -> None:
        """Take the store's directory, and the check of versions that an alias is to name."""
        self.root = Path(root)
        self._fs = fs or FileSystem()
        self._check = check
        self._verified = deque[Hashable](maxlen=VERIFIED_MAX)

    def models(self) -> list[ModelInfo]:
        """Return the models that have a version, or cannot be read, by name.

        What has no model's name is passed over, and so is a file. Raises StoreUnreadable for the
        directory of the models alone.
        """
        infos = []
        for name in self._model_names():
            try:
                infos.append(self.info(name))
            except StoreUnreadable as error:
                infos.append(ModelInfo(name, (), {}, fault=error))
        return [info for info in infos if info.versions or info.fault]

    def info(self, name: str) -> ModelInfo:
        """Return what there is of a model; one that is not there has no versions and no aliases."""
        versions = self.versions(name)
        documents = {}
        broken = []
        for alias in self._alias_names(name) if versions else []:
            try:
                documents[alias] = self.alias(name, alias)
            except (Corrupt, StoreUnreadable):
                broken.append(alias)
        return ModelInfo(name, versions, documents, tuple(broken))

    def last_version(self, name: str) -> int:
        """Return the highest number that a version of a model has or had, 0 if none;
        raise Corrupt.
        """
        numbers = [0, *self.versions(name)]
        if (data := self._read(self._home(name) / LAST, 4096)) is not None:
            document = parse_sealed(data, f"{name}: {LAST}")
            numbers.append(
                integer(1, VERSION_MAX)(document.get("version"), f"{name}: {LAST}: version")
            )
        return max(numbers)

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's versions, ascending; none when there is no such model."""
        entries = self._entries(self._home(name) / VERSIONS)
        return tuple(sorted(int(e.name) for e in entries if e.is_dir and is_version(e.name)))

    def alias(self, name: str, alias: str = LATEST) -> Alias:
        """Return an alias: what it names, what stands beside that, what
        it denies. Raises NotFound, Corrupt.

        `latest` without a document names the highest version: its first publisher died at the last
        step.
        """
        document = self._document(name, check_alias(alias))
        if document is not None:
            return document
        versions = self.versions(name)
        if alias == LATEST and versions:
            return Alias(versions[-1])
        raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))

    def moves(self, name: str) -> list[Move]:
        """Return the moves of a model's aliases, the oldest first; also of a model that is gone.

        Cost: a read of up to MOVES_BYTES_MAX. Raises StoreUnreadable.
        """

        def find_alias(alias: str) -> Alias | None:
            try:
                return self._document(name, check_alias(alias))
            except Corrupt:  # it is taken to be the newest
                return Alias(0, serial=SERIAL_MAX)

        return parse_moves(self._moves_bytes(name), find_alias)

    def users_of(self, name: str, version: int) -> list[str]:
        """Return what names a version: aliases, `canary of ALIAS`,
        `shadow of ALIAS`. Raises Corrupt.
        """
        users = []
        for alias_name, alias in (
            (alias_name, self.alias(name, alias_name)) for alias_name in self._alias_names(name)
        ):
            users += [alias_name] if alias.version == version else []
            users += [f"{role} of {alias_name}" for role in alias.roles_of(version)]
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
                full_name = manifest.shown
                raise Corrupt("manifest.json: model and version", f"{name}@{version}", full_name)
            return manifest

    def open(self, name: str, ref: str | int = LATEST, *, verify: bool = True) -> Model:
        """Return a version with its arrays mapped; raise NotFound, Corrupt or StoreUnreadable.

        With `verify`, every digest and invariant is checked first, unless this object has checked
        these very files before. Without, it takes milliseconds whatever the size, and no kernel may
        be given the model that was not verified before.
        """
        for _ in range(3):
            version = self.resolve(name, ref)
            try:
                return self._open(name, version, verify=verify)
            except VersionNotFound:  # deleted since; its alias must have moved on before that
                if self.resolve(name, ref) == version:
                    raise
        raise no_version(name, version)

    def verify(self, name: str, version: int) -> None:
        """Raise Corrupt unless every digest of a version is right and every invariant holds.

        Raises also what the check of this store raises: see `Check`.
        """
        self._open(name, version, verify=True, again=True, check=True)

    def label_info_head(self, name: str) -> Head | None:
        """Return what a model's label info says of itself, None where there is none; raise Corrupt.

        Cost: a read of 8 kB. Its `sha256` differs whenever the info does. Raises StoreUnreadable.
        """
        data = self._read(self._home(name) / LABEL_INFO, HEAD_BYTES - 1)
        return None if data is None else parse_head(data, f"{name}: {LABEL_INFO}")

    def label_info(self, name: str) -> LabelInfo | None:
        """Return a model's label info, mapped, every digest and invariant
        checked; None where there is none.

        It stays valid when it is replaced. Raises Corrupt or StoreUnreadable.
        """
        path = self._home(name) / LABEL_INFO
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return map_label_info(self._fs, path, f"{name}: {LABEL_INFO}")
        return None

    def files_of(
        self, model: Model, arrays: Mapping[str, NDArray[Any]], prefix: str = ""
    ) -> dict[str, StoredArray]:
        """Return where those of `arrays` stand that are a version's
        own, there named behind the prefix.
        """
        manifest = model.manifest
        home = self._version_path(manifest.model, manifest.version) / ARRAYS
        return {
            f"{prefix}{name}": StoredArray(home / file_name(name), info)
            for name, info in manifest.arrays.items()
            if arrays.get(f"{prefix}{name}") is model.arrays[name]
        }

    def generation(self) -> tuple[object, ...]:
        """Return a value that differs when a version came or went, an
        alias changed, or label info came.

        Empty when there is no model; compare for equality only. What cannot be read is a part of
        the value. Cost: of each model two directories, the document of each alias, which is as long
        as the names of labels that it denies, and 8 kB where there is label info. Raises
        StoreUnreadable unless the store is a directory that can be read.
        """
        self._check_root()
        return tuple((name, *self._traces(name)) for name in self._model_names())

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

    def archive(self, name: str, version: int, *, label_info: bool = False) -> Iterator[Buffer]:
        """Yield the bytes of a version as a tar; it is verified before the first of them.

        label_info  whether that of the model goes with it, where there is any

        Raises NotFound, Corrupt and StoreUnreadable.
        """
        self._open(name, version, verify=True, again=True)
        info = self.label_info(name) if label_info else None
        manifest = self.manifest(name, version)
        directory = self._version_path(name, version)
        with self._reading_version(name, version):
            yield from archive_pieces(self._fs, directory, manifest, info)

    def export(self, name: str, version: int, file: BinaryIO, *, label_info: bool = False) -> None:
        """Write what `archive` yields to `file`. Raises what that does, and what `file` raises."""
        for piece in self.archive(name, version, label_info=label_info):
            file.write(piece)

    # --- parts

    def _model_names(self) -> list[str]:
        entries = self._entries(self.root / MODELS)
        return [entry.name for entry in entries if entry.is_dir and is_model(entry.name)]

    def _traces(self, name: str) -> list[object]:
        """Return what differs whenever what `generation` tells of
        a model does, its faults among it.
        """
        home = self._home(name)
        try:
            traces: list[object] = [*self._entries(home / VERSIONS)]
            files = {
                home / ALIASES / alias_file(alias): ALIAS_BYTES_MAX
                for alias in self._alias_files(name)
            }
        except StoreUnreadable as error:
            return [str(error)]
        files[home / LABEL_INFO] = HEAD_BYTES - 1
        for path, bytes_max in sorted(files.items()):
            try:
                traces.append((path.name, self._read(path, bytes_max)))
            except (Corrupt, StoreUnreadable) as error:
                traces.append((path.name, str(error)))
        return traces

    def _home(self, name: str) -> Path:
        return self.root / MODELS / check_model(name)

    def _version_path(self, name: str, version: int) -> Path:
        return self._home(name) / VERSIONS / str(check_version(version))

    def _entries(self, path: Path) -> list[Entry]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return self._fs.entries(path)
        return []

    def _check_root(self) -> None:
        """Raise StoreUnreadable unless the store is a directory that can be read; it
        may be empty.
        """
        try:
            self._fs.entries(self.root)
        except OSError as error:
            kinds = {errno.ENOENT: "none", errno.ENOTDIR: "a file"}
            reason = kinds.get(error.errno or 0) or error.strerror or type(error).__name__
            raise StoreUnreadable.of(self.root, "the directory of the models", reason) from error

    def _read(self, path: Path, bytes_max: int) -> bytes | None:
        """Return what a small file holds, None where there is none.

        Raises Corrupt for what is no file.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._reading(path):
            return self._fs.read(path, bytes_max)
        return None

    def _alias_names(self, name: str) -> list[str]:
        return sorted({LATEST, *self._alias_files(name)})

    def _alias_files(self, name: str) -> set[str]:
        """Return the aliases that have a document.

        Raises StoreUnreadable for those of an earlier release.
        """
        directory = self._home(name) / ALIASES
        files = [entry.name for entry in self._entries(directory)]
        if LATEST in files:
            expected = (
                "aliases as documents, which xylem models migrate makes of those of "
                "an earlier release"
            )
            raise StoreUnreadable.of(directory, expected, f"{name}: {ALIASES}/{LATEST}")
        return {alias for file in files if (alias := alias_in(file)) is not None}

    def _document(self, name: str, alias: str) -> Alias | None:
        data = self._read(self._home(name) / ALIASES / alias_file(alias), ALIAS_BYTES_MAX)
        if data is not None:
            return parse_alias(data, f"{name}: alias {alias}")
        self._alias_files(name)
        return None

    def _moves_bytes(self, name: str) -> bytes:
        return self._read(self._home(name) / MOVES, 2 * MOVES_BYTES_MAX) or b""

    def _open(
        self, name: str, version: int, *, verify: bool, again: bool = False, check: bool = False
    ) -> Model:
        manifest = self.manifest(name, version)
        with self._reading_version(name, version):
            model, maps = map_version(self._fs, self._version_path(name, version), manifest)
            digest = hashlib.sha256(repr(manifest).encode()).digest()
            key = (name, version, digest, *(mapped.identity for mapped in maps.values()))
            if again or (verify and key not in self._verified):
                verify_version(model, maps, resting=again)
                self._verified.append(key)
            if check:
                self._check(model)
        return model

    def _missing(self, name: str, error: NotFound) -> NotFound:
        """Return ModelNotFound when the whole model is missing, else `error`."""
        if self.versions(name):
            return error
        missing = ModelNotFound(f"{self.root}: expected a model, found none named {name!r}")
        missing.public_message = f"expected a model, found none named {name!r}"
        return missing

    def _reading(self, path: Path) -> contextlib.AbstractContextManager[None]:
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
                missing_file = Path(str(error.filename)).name
                raise Corrupt(f"{name}@{version}: {missing_file}", "a file", "none") from error
            raise self._missing(name, no_version(name, version)) from None


def no_version(name: str, version: int) -> VersionNotFound:
    """Return the refusal of a version that is not there."""
    return VersionNotFound(f"{name}: expected one of its versions, found {version}")
