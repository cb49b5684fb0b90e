"""Sentence encoders of a store, kept by content.

An encoder is three arrays. Every version that was trained with it has them too, so that it needs
nothing beside it, and exports, imports and object stores carry them as all arrays. In a store they
are one file with several names (hard links): in `encoders/SHA256/`, and in each version. So the
file system counts who needs an encoder. The alternative would have been versions that name an
encoder elsewhere, which can be missing.

`encoders/NAME.json` gives an encoder a name, by which a training finds it. Files of an encoder
without a name, which no version has any more, are removed before the next write.
"""

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from xylem_store.arrays import (
    ArrayInfo,
    check_digest,
    file_name,
    group_of,
    info_of,
    map_array,
    take,
    write_array,
)
from xylem_store.compiled.handles import U8
from xylem_store.documents import object_of, parse_sealed, record, render_sealed
from xylem_store.errors import Conflict, Corrupt, EncoderNotFound
from xylem_store.files import StoreFiles
from xylem_store.fs import FileSystem, remove_tree, write_file
from xylem_store.identifiers import check_model, is_model
from xylem_store.manifest import (
    ARRAY_ENTRY,
    ARRAY_NAME,
    ARRAYS,
    Manifest,
    member_arrays,
    member_prefix,
)
from xylem_store.version import HEADROOM_BYTES, NO_LINK

if TYPE_CHECKING:  # it removes what nobody needs, by `remove_unused`
    from xylem_store.staging import Staging

ENCODERS = "encoders"
_SUFFIX = ".json"
_DOCUMENT_BYTES_MAX = 4096  # three entries of arrays take 600
_is_digest = re.compile("[0-9a-f]{64}").fullmatch


class EncoderArrays(NamedTuple):
    """The arrays of an encoder, uint8[n] each: in a version they are the group `encoder`.

    config     a JSON object: "dims", the length of a vector, and "pooling"
    model      the graph with its weights, a file in the format ONNX
    tokenizer  a file in the format of the library tokenizers
    """

    config: U8
    model: U8
    tokenizer: U8

    @staticmethod
    def among(arrays: Mapping[str, NDArray[Any]]) -> "EncoderArrays":
        """Return the arrays of the encoder among those of a version. Raises Corrupt."""
        return EncoderArrays(*(take(arrays, name, "uint8", (None,)) for name in _NAMES))

    @property
    def by_name(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names in a version."""
        return group_of("encoder", self)

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the encoder. Cost: a pass over its bytes."""
        return _digest_of({name: info_of(name, array) for name, array in self.by_name.items()})


_NAMES = tuple(f"encoder/{field}" for field in EncoderArrays._fields)
_DOCUMENT = record(dict, arrays=object_of(ARRAY_ENTRY, len(_NAMES), ARRAY_NAME))


class EncoderInfo(NamedTuple):
    """An encoder of a store: its name, the entries of its arrays, and how many versions have it."""

    name: str
    arrays: Mapping[str, ArrayInfo]
    n_versions: int = 0

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the encoder, whatever its name."""
        return _digest_of(self.arrays)

    @property
    def n_bytes(self) -> int:
        """Return the size of its files."""
        return sum(info.bytes for info in self.arrays.values())

    def render(self) -> bytes:
        """Return the bytes of its document."""
        return render_sealed(
            {"arrays": {name: info._asdict() for name, info in self.arrays.items()}}
        )


def remove_unused(fs: FileSystem, root: Path) -> None:
    """Remove the files of encoders that have no name, and that no version has.

    Nothing is removed while a writer of encoders holds their lock, or if a document is damaged.
    """
    home = root / ENCODERS
    with contextlib.suppress(Corrupt, FileNotFoundError, NotADirectoryError):
        folders = [entry.name for entry in fs.entries(home) if _is_digest(entry.name)]
        lock = fs.lock(home / "lock") if folders else None
        if lock is None:
            return
        with fs.closing(lock):
            named_digests = {
                _parse(name, fs.read(home / entry.name, _DOCUMENT_BYTES_MAX)).digest
                for entry in fs.entries(home)
                if (name := _name_in(entry.name))
            }
            for folder in set(folders) - named_digests:
                if _n_versions(fs, home / folder) == 0:
                    remove_tree(fs, home / folder)


class Encoders:
    """The sentence encoders of a store; see `store.Store`."""

    def __init__(self, files: StoreFiles, staging: "Staging") -> None:
        self._files = files
        self._fs = files.fs
        self._staging = staging
        self._home = files.root / ENCODERS

    def list(self) -> list[EncoderInfo]:
        """Return the encoders that have a name, sorted by it. Raises Corrupt."""
        return [
            self.info(name)
            for entry in self._files.entries(self._home)
            if (name := _name_in(entry.name))
        ]

    def info(self, name: str) -> EncoderInfo:
        """Return the encoder of a name. Raises EncoderNotFound, Corrupt or StoreUnreadable."""
        info = self._info(check_model(name))
        if info is None:
            raise EncoderNotFound(
                f"expected an encoder of the store, found {name!r}: xylem encoders list shows them"
            )
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return info._replace(n_versions=_n_versions(self._fs, self._home / info.digest))
        return info

    def open(self, name: str) -> EncoderArrays:
        """Return the arrays of an encoder, mapped; their digests are checked first.

        Raises EncoderNotFound, Corrupt or StoreUnreadable.
        """
        info = self.info(name)
        home = self._home / info.digest
        arrays: dict[str, NDArray[Any]] = {}
        for array_name, array_info in info.arrays.items():
            try:
                with self._files.reading(home):
                    arrays[array_name], mapped = map_array(self._fs, home, array_name, array_info)
                check_digest(array_name, mapped, array_info)
            except Corrupt as error:
                raise error.within(f"encoder {name}") from error
            except (FileNotFoundError, NotADirectoryError):
                raise Corrupt(
                    f"encoder {name}: {file_name(array_name)}",
                    "a file",
                    "none: add the encoder again",
                ) from None
        return EncoderArrays.among(arrays)

    def add(self, name: str, encoder: EncoderArrays) -> EncoderInfo:
        """Store an encoder under a name; one that the store has already is not written again.

        Raises InvalidName, StoreUnwritable, and Conflict if the name leads to another encoder.
        """
        info = EncoderInfo(
            check_model(name),
            {
                array_name: info_of(array_name, array)
                for array_name, array in encoder.by_name.items()
            },
        )
        document = self._home / f"{name}{_SUFFIX}"
        with self._staging.writing(info.n_bytes), self._staging.stage() as stage:
            self._staging.require_space(info.n_bytes + HEADROOM_BYTES)
            self._fs.mkdir(stage / info.digest)
            for array_name, array in encoder.by_name.items():
                write_array(self._fs, stage / info.digest, array_name, array)
            self._fs.fsync_dir(stage / info.digest)
            write_file(self._fs, stage / document.name, [info.render()])
            with self._staging.locked_part(ENCODERS):
                old = self._info(name)
                if old is not None and old.digest != info.digest:
                    raise Conflict(
                        f"encoder {name}: expected the content {old.digest[:12]} of this name, "
                        f"found {info.digest[:12]}: choose another name, or remove it first"
                    )
                if not self._files.has(self._home / info.digest):
                    self._fs.move(stage / info.digest, self._home / info.digest)
                self._fs.move(stage / document.name, document)
        return info

    def remove(self, name: str) -> EncoderInfo:
        """Remove the name of an encoder, and its files unless a version has them.

        Raises EncoderNotFound, Corrupt or StoreUnwritable.
        """
        info = self.info(name)
        with self._staging.writing(0), self._staging.stage():
            with self._staging.locked_part(ENCODERS), contextlib.suppress(FileNotFoundError):
                self._fs.unlink(self._home / f"{name}{_SUFFIX}")
                self._fs.fsync_dir(self._home)
            remove_unused(self._fs, self._files.root)
        return info

    # --- for the writer of versions

    def share(self, manifest: Manifest, stage: Path) -> None:
        """Let the version in `stage` and the store have the files of its encoders once.

        What the store lacks it gets. A version keeps its own files where the store's are damaged,
        or the file system has no hard links.
        """
        members = range(len(manifest.members))
        parts = {
            member_prefix(number): member_arrays(number, manifest.arrays) for number in members
        }
        for prefix, infos in [("", manifest.arrays), *parts.items()]:
            if not infos.keys() >= set(_NAMES):
                continue
            with self._staging.locked_part(ENCODERS):
                try:
                    self._link(infos, stage, prefix)
                except OSError as error:
                    if error.errno not in NO_LINK:
                        raise

    def _link(self, infos: Mapping[str, ArrayInfo], stage: Path, prefix: str) -> None:
        folder = self._home / _digest_of(infos)
        staged = {
            name: stage / "version" / ARRAYS / file_name(f"{prefix}{name}") for name in _NAMES
        }
        if not self._files.has(folder):
            self._fs.mkdir(stage / folder.name)
            for name, file in staged.items():
                self._fs.link(file, stage / folder.name / file_name(name))
            self._fs.fsync_dir(stage / folder.name)
            self._fs.move(stage / folder.name, folder)
        for name, file in staged.items():
            stored = folder / file_name(name)
            if hashlib.sha256(self._fs.map(stored).data).hexdigest() == infos[name].sha256:
                self._fs.link(stored, stage / file.name)
                self._fs.rename(stage / file.name, file)
        self._fs.fsync_dir(stage / "version" / ARRAYS)

    def _info(self, name: str) -> EncoderInfo | None:
        data = self._files.read(self._home / f"{name}{_SUFFIX}", _DOCUMENT_BYTES_MAX)
        return None if data is None else _parse(name, data)


def _digest_of(infos: Mapping[str, ArrayInfo]) -> str:
    """Return the SHA-256 of the lines "sha256  name" of an encoder's arrays, sorted by name."""
    return hashlib.sha256(
        "".join([f"{infos[name].sha256}  {name}\n" for name in _NAMES]).encode()
    ).hexdigest()


def _parse(name: str, data: bytes) -> EncoderInfo:
    where = f"encoder {name}"
    infos = _DOCUMENT(parse_sealed(data, where), where)["arrays"]
    if tuple(sorted(infos)) != _NAMES:
        raise Corrupt(where, f"the arrays {', '.join(_NAMES)}", ", ".join(sorted(infos)))
    return EncoderInfo(name, infos)


def _name_in(file: str) -> str | None:
    """Return the encoder whose document is in a file of this name, None for other files."""
    name = file.removesuffix(_SUFFIX)
    return name if name != file and is_model(name) else None


def _n_versions(fs: FileSystem, folder: Path) -> int:
    """Return how many versions have the files of a folder, besides the store itself."""
    return max((fs.n_names(folder / file.name) - 1 for file in fs.entries(folder)), default=0)
