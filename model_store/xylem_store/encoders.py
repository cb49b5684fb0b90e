"""Sentence encoders of a store: add, open and remove them, and share their files with versions."""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from xylem_store.arrays import (
    ArrayInfo,
    check_digest,
    file_name,
    info_of,
    map_array,
    write_array,
)
from xylem_store.encoder_files import (
    DOCUMENT_BYTES_MAX,
    ENCODER_NAMES,
    ENCODERS,
    SUFFIX,
    EncoderArrays,
    EncoderInfo,
    digest_of,
    encoder_in,
    n_versions,
    parse_document,
    remove_unused,
)
from xylem_store.errors import Conflict, Corrupt, EncoderNotFound
from xylem_store.files import StoreFiles
from xylem_store.fs import write_file
from xylem_store.identifiers import check_model
from xylem_store.manifest import ARRAYS, Manifest, member_arrays, member_prefix
from xylem_store.staging import Staging
from xylem_store.version import HEADROOM_BYTES, NO_LINK


class Encoders:
    """The sentence encoders of a store; see `store.Store`."""

    def __init__(self, files: StoreFiles, staging: Staging) -> None:
        self._files = files
        self._staging = staging
        self._home = files.root / ENCODERS

    def list(self) -> list[EncoderInfo]:
        """Return the encoders that have a name, sorted by it. Raises Corrupt."""
        return [
            self.info(name)
            for entry in self._files.entries(self._home)
            if (name := encoder_in(entry.name))
        ]

    def info(self, name: str) -> EncoderInfo:
        """Return the encoder of a name. Raises EncoderNotFound, Corrupt or StoreUnreadable."""
        info = self._info(check_model(name))
        if info is None:
            raise EncoderNotFound(
                f"expected an encoder of the store, found {name!r}: xylem encoders list shows them"
            )
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return info._replace(n_versions=n_versions(self._files.fs, self._home / info.digest))
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
                    arrays[array_name], mapped = map_array(
                        self._files.fs, home, array_name, array_info
                    )
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
        document = self._home / f"{name}{SUFFIX}"
        with self._staging.writing(info.n_bytes), self._staging.stage() as stage:
            self._staging.require_space(info.n_bytes + HEADROOM_BYTES)
            self._files.fs.mkdir(stage / info.digest)
            for array_name, array in encoder.by_name.items():
                write_array(self._files.fs, stage / info.digest, array_name, array)
            self._files.fs.fsync_dir(stage / info.digest)
            write_file(self._files.fs, stage / document.name, [info.render()])
            with self._staging.locked_part(ENCODERS):
                old = self._info(name)
                if old is not None and old.digest != info.digest:
                    raise Conflict(
                        f"encoder {name}: expected the content {old.digest[:12]} of this name, "
                        f"found {info.digest[:12]}: choose another name, or remove it first"
                    )
                if not self._files.has(self._home / info.digest):
                    self._files.fs.move(stage / info.digest, self._home / info.digest)
                self._files.fs.move(stage / document.name, document)
        return info

    def remove(self, name: str) -> EncoderInfo:
        """Remove the name of an encoder, and its files unless a version has them.

        Raises EncoderNotFound, Corrupt or StoreUnwritable.
        """
        info = self.info(name)
        with self._staging.writing(0), self._staging.stage():
            with self._staging.locked_part(ENCODERS), contextlib.suppress(FileNotFoundError):
                self._files.fs.unlink(self._home / f"{name}{SUFFIX}")
                self._files.fs.fsync_dir(self._home)
            remove_unused(self._files.fs, self._files.root)
        return info

    # --- for the writer of versions

    def share(self, manifest: Manifest, stage: Path) -> None:
        """Let the version in `stage` and the store have the files of its encoders once.

        What the store lacks it gets. A version keeps its own files where the store's are damaged,
        or the file system has no hard links.
        """
        parts = {"": dict(manifest.arrays)}
        for number in range(len(manifest.members)):
            parts[member_prefix(number)] = member_arrays(number, manifest.arrays)
        for prefix, infos in parts.items():
            if not infos.keys() >= set(ENCODER_NAMES):
                continue
            with self._staging.locked_part(ENCODERS):
                try:
                    self._link(infos, stage, prefix)
                except OSError as error:
                    if error.errno not in NO_LINK:
                        raise

    def _link(self, infos: Mapping[str, ArrayInfo], stage: Path, prefix: str) -> None:
        folder = self._home / digest_of(infos)
        staged = {
            name: stage / "version" / ARRAYS / file_name(f"{prefix}{name}")
            for name in ENCODER_NAMES
        }
        if not self._files.has(folder):
            self._files.fs.mkdir(stage / folder.name)
            for name, file in staged.items():
                self._files.fs.link(file, stage / folder.name / file_name(name))
            self._files.fs.fsync_dir(stage / folder.name)
            self._files.fs.move(stage / folder.name, folder)
        for name, file in staged.items():
            stored = folder / file_name(name)
            if hashlib.sha256(self._files.fs.map(stored).data).hexdigest() == infos[name].sha256:
                self._files.fs.link(stored, stage / file.name)
                self._files.fs.rename(stage / file.name, file)
        self._files.fs.fsync_dir(stage / "version" / ARRAYS)

    def _info(self, name: str) -> EncoderInfo | None:
        data = self._files.read(self._home / f"{name}{SUFFIX}", DOCUMENT_BYTES_MAX)
        return None if data is None else parse_document(name, data)
