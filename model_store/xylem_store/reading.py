"""The half of the store that reads models, versions and aliases, which is possible at any time."""

import contextlib
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
from xylem_store.files import StoreFiles
from xylem_store.fs import Buffer
from xylem_store.identifiers import (
    ALIASES,
    LAST,
    LATEST,
    VERSION_MAX,
    VERSIONS,
    alias_file,
    check_alias,
    is_version,
    parse_ref,
)
from xylem_store.label_info import (
    HEAD_BYTES,
    LABEL_INFO,
    Head,
    LabelInfo,
    label_info_pieces,
    map_label_info,
    parse_head,
)
from xylem_store.manifest import ARRAYS, Manifest
from xylem_store.moves import Move, parse_moves
from xylem_store.origin import is_made_for
from xylem_store.version import Model, StoredArray, map_version, read_manifest, verify_version

# The most verified versions that are remembered; a forgotten one is verified again.
VERIFIED_MAX = 256

_OPEN_ATTEMPTS = 3  # an alias may move, and its old version be deleted, while it is opened
_LAST_BYTES_MAX = 4096  # of the file with the last number, whose document has 100 bytes

# A function of a verified version, which raises StoreError if the version cannot be served.
Check = Callable[[Model], object]

no_check: Check = bool


class ModelInfo(NamedTuple):
    """A model of the store.

    versions        ascending
    documents       its aliases by name
    broken_aliases  the names of aliases that cannot be read
    fault           why nothing of the model can be read; then it has no versions and no aliases
                    here
    """

    name: str
    versions: tuple[int, ...]
    documents: Mapping[str, Alias]
    broken_aliases: tuple[str, ...] = ()
    fault: StoreUnreadable | None = None

    @property
    def aliases(self) -> dict[str, int]:
        """Return the version that each alias names."""
        return {name: alias.version for name, alias in self.documents.items()}


class StoreReader:
    """The models of a store as their readers see them; `store.Store` can write, too.

    check  the check of versions that an alias is to name
    """

    def __init__(self, files: StoreFiles, check: Check) -> None:
        self.check = check
        self._files = files
        self._fs = files.fs
        self._verified = deque[Hashable](maxlen=VERIFIED_MAX)

    def models(self) -> list[ModelInfo]:
        """Return the models that have a version, or cannot be read, sorted by name.

        Files, and directories whose names no model can have, are ignored. Raises StoreUnreadable
        only for the directory of the models.
        """
        infos = []
        for name in self._files.model_names():
            try:
                infos.append(self.info(name))
            except StoreUnreadable as error:
                infos.append(ModelInfo(name, (), {}, fault=error))
        return [info for info in infos if info.versions or info.fault]

    def info(self, name: str) -> ModelInfo:
        """Return the versions and aliases of a model; there are none if it does not exist."""
        versions = self.versions(name)
        documents = {}
        broken = []
        for alias in self.alias_names(name) if versions else []:
            try:
                documents[alias] = self.alias(name, alias)
            except (Corrupt, StoreUnreadable):
                broken.append(alias)
        return ModelInfo(name, versions, documents, tuple(broken))

    def last_version(self, name: str) -> int:
        """Return the highest number that a version of a model has or had, 0 without any.

        Raises Corrupt.
        """
        numbers = [0, *self.versions(name)]
        if (data := self._files.read(self._files.home(name) / LAST, _LAST_BYTES_MAX)) is not None:
            numbers.append(
                integer(1, VERSION_MAX)(
                    parse_sealed(data, f"{name}: {LAST}").get("version"), f"{name}: {LAST}: version"
                )
            )
        return max(numbers)

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's versions, ascending; none if the model does not exist."""
        return tuple(
            sorted(
                int(e.name)
                for e in self._files.entries(self._files.text_path(name, VERSIONS))
                if e.is_dir and is_version(e.name)
            )
        )

    def alias(self, name: str, alias: str = LATEST) -> Alias:
        """Return an alias: its version, canary, shadow and denied labels. Raises NotFound, Corrupt.

        `latest` without a document names the highest version: its first publisher died at the last
        step.
        """
        document = self._document(name, check_alias(alias))
        if document is not None:
            return document
        versions = self.versions(name)
        if alias == LATEST and versions:
            return Alias(versions[-1])
        raise self.missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))

    def moves(self, name: str) -> list[Move]:
        """Return the moves of a model's aliases, the oldest first, even of a deleted model.

        Cost: a read of up to MOVES_BYTES_MAX. Raises StoreUnreadable.
        """

        def find_alias(alias: str) -> Alias | None:
            try:
                return self._document(name, check_alias(alias))
            except Corrupt:  # treated as newer than every move, so that none is dropped
                return Alias(0, serial=SERIAL_MAX)

        return parse_moves(self._files.moves(name), find_alias)

    def users_of(self, name: str, version: int) -> list[str]:
        """Return what names a version: `ALIAS`, `canary of ALIAS`, `shadow of ALIAS`.

        Raises Corrupt.
        """
        users = []
        for alias_name, alias in (
            (alias_name, self.alias(name, alias_name)) for alias_name in self.alias_names(name)
        ):
            users += [alias_name] if alias.version == version else []
            users += [f"{role} of {alias_name}" for role in alias.roles_of(version)]
        return users

    def resolve(self, name: str, ref: str | int = LATEST) -> int:
        """Return the version that `ref`, a number or an alias, stands for. Raises NotFound."""
        parsed = parse_ref(ref)
        if isinstance(parsed, str):
            return self.alias(name, parsed).version
        if parsed not in self.versions(name):
            raise self.missing(name, no_version(name, parsed))
        return parsed

    def manifest(self, name: str, version: int) -> Manifest:
        """Return the manifest of a version. Raises NotFound, Corrupt or StoreUnreadable."""
        with self._reading_version(name, version):
            manifest = read_manifest(self._fs, self._files.version_path(name, version))
            if (manifest.model, manifest.version) != (name, version):
                raise Corrupt(
                    "manifest.json: model and version", f"{name}@{version}", manifest.full_name
                )
            return manifest

    def open(self, name: str, ref: str | int = LATEST, *, verify: bool = True) -> Model:
        """Return a version with its arrays mapped. Raises NotFound, Corrupt or StoreUnreadable.

        With `verify`, every digest and invariant is checked first, unless this object has checked
        exactly these files before. Without, it takes milliseconds whatever the size, and the model
        must not be given to a kernel unless it was verified before.
        """
        for _ in range(_OPEN_ATTEMPTS):
            version = self.resolve(name, ref)
            try:
                return self.open_version(name, version, verify=verify)
            except VersionNotFound:  # deleted meanwhile, so its alias must have moved before
                if self.resolve(name, ref) == version:
                    raise
        raise no_version(name, version)

    def verify(self, name: str, version: int) -> None:
        """Raise Corrupt unless every digest of a version is right and every invariant holds.

        Also raises what the check of this store raises: see `Check`.
        """
        self.open_version(name, version, verify=True, again=True, check=True)

    def label_info_head(self, name: str) -> Head | None:
        """Return the head of a model's label info, None without one.

        Cost: a read of 8 kB. Its `sha256` differs whenever the label info does. Raises Corrupt and
        StoreUnreadable.
        """
        data = self._files.read(self._files.home(name) / LABEL_INFO, HEAD_BYTES - 1)
        return None if data is None else parse_head(data, f"{name}: {LABEL_INFO}")

    def label_info(self, name: str) -> LabelInfo | None:
        """Return a model's label info, mapped, None without one.

        Every digest and invariant is checked first. The returned label info stays valid when the
        file is replaced. Raises Corrupt or StoreUnreadable.
        """
        path = self._files.home(name) / LABEL_INFO
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._files.reading(path):
            return map_label_info(self._fs, path, f"{name}: {LABEL_INFO}")
        return None

    def export_label_info(self, name: str, file: BinaryIO) -> Head | None:
        """Write the file of a model's label info, verified first; return its head, or None.

        None means that there is no label info. Raises Corrupt and StoreUnreadable, and what `file`
        raises.
        """
        info = self.label_info(name)
        if info is None:
            return None
        file.writelines(label_info_pieces(info))
        return info.head

    def files_of(
        self, model: Model, arrays: Mapping[str, NDArray[Any]], prefix: str = ""
    ) -> dict[str, StoredArray]:
        """Return the files of those of `arrays` that are arrays of this version, by their names.

        prefix  of the names in `arrays` and in the result
        """
        manifest = model.manifest
        home = self._files.version_path(manifest.model, manifest.version) / ARRAYS
        return {
            f"{prefix}{name}": StoredArray(home / file_name(name), info)
            for name, info in manifest.arrays.items()
            if arrays.get(f"{prefix}{name}") is model.arrays[name]
        }

    def published(self, name: str, made_for: str) -> Manifest | None:
        """Return the manifest of the version that was made for a job, None without one.

        made_for  the id of the job

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

        label_info  whether to include the label info of the model, if there is any

        Raises NotFound, Corrupt and StoreUnreadable.
        """
        self.open_version(name, version, verify=True, again=True)
        info = self.label_info(name) if label_info else None
        manifest = self.manifest(name, version)
        directory = self._files.version_path(name, version)
        with self._reading_version(name, version):
            yield from archive_pieces(self._fs, directory, manifest, info)

    def export(self, name: str, version: int, file: BinaryIO, *, label_info: bool = False) -> None:
        """Write what `archive` yields to `file`. Raises what `archive` and `file` raise."""
        file.writelines(self.archive(name, version, label_info=label_info))

    # --- for writers

    def alias_names(self, name: str) -> list[str]:
        """Return the names of a model's aliases, sorted; `latest` is always among them."""
        return sorted({LATEST, *self._files.alias_names(name)})

    def _document(self, name: str, alias: str) -> Alias | None:
        data = self._files.read(
            self._files.text_path(name, ALIASES, alias_file(alias)), ALIAS_BYTES_MAX
        )
        return None if data is None else parse_alias(data, f"{name}: alias {alias}")

    def open_version(
        self, name: str, version: int, *, verify: bool, again: bool = False, check: bool = False
    ) -> Model:
        """Return a version with its arrays mapped: see `open`.

        again  whether to verify all arrays even if exactly these files were verified before
        check  whether to give the version to the check of this store
        """
        manifest = self.manifest(name, version)
        with self._reading_version(name, version):
            model, maps = map_version(self._fs, self._files.version_path(name, version), manifest)
            key = (
                name,
                version,
                hashlib.sha256(repr(manifest).encode()).digest(),
                *(mapped.identity for mapped in maps.values()),
            )
            if again or (verify and key not in self._verified):
                verify_version(model, maps, resting=again)
                self._verified.append(key)
            if check:
                self.check(model)
        return model

    def require_model(self, name: str) -> None:
        """Raise ModelNotFound unless the model has a version."""
        if not self.versions(name):
            raise self.missing(name, ModelNotFound(name))

    def missing(self, name: str, error: NotFound) -> NotFound:
        """Return ModelNotFound if the whole model is missing, else `error`."""
        if self.versions(name):
            return error
        missing = ModelNotFound(f"{self._files.root}: expected a model, found none named {name!r}")
        missing.public_message = f"expected a model, found none named {name!r}"
        return missing

    @contextlib.contextmanager
    def _reading_version(self, name: str, version: int) -> Iterator[None]:
        """Turn the errors of reading a version into errors of the store that name the version."""
        try:
            with self._files.reading(self._files.version_path(name, version)):
                yield
        except Corrupt as error:
            raise error.within(f"{name}@{version}") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            if version in self.versions(name):
                raise Corrupt(
                    f"{name}@{version}: {Path(str(error.filename)).name}", "a file", "none"
                ) from error
            raise self.missing(name, no_version(name, version)) from None


def no_version(name: str, version: int) -> VersionNotFound:
    """Return the error for a version that does not exist."""
    return VersionNotFound(f"{name}: expected one of its versions, found {version}")
