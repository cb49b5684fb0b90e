"""The part of a store that writes label info."""

from pathlib import Path

from xylem_store.archive import Readable, content_of
from xylem_store.errors import Corrupt
from xylem_store.files import StoreFiles
from xylem_store.fs import write_file
from xylem_store.label_info import (
    LABEL_INFO,
    LabelInfo,
    head_digest,
    label_info_pieces,
    map_label_info,
)
from xylem_store.reading import StoreReader
from xylem_store.staging import Staging
from xylem_store.version import HEADROOM_BYTES


class LabelInfoWriter:
    """The part of a store that writes label info; see `store.Store`."""

    def __init__(self, files: StoreFiles, reader: StoreReader, staging: Staging) -> None:
        self._files = files
        self._reader = reader
        self._staging = staging

    def put_label_info(self, name: str, info: LabelInfo) -> None:
        """Replace the label info of a model; processes that have the old one open keep it.

        It takes effect in one step, and survives a loss of power. Raises ModelNotFound or
        StoreUnwritable.
        """
        needed = info.head.file_bytes + HEADROOM_BYTES
        self._reader.require_model(name)
        with self._staging.writing(needed), self._staging.stage() as stage:
            self._staging.require_space(needed)
            write_file(self._files.fs, stage / LABEL_INFO, label_info_pieces(info))
            self._replace_label_info(name, stage / LABEL_INFO)

    def import_label_info(self, name: str, file: Readable, n_bytes: int, digest: str) -> None:
        """Replace the label info of a model by a file that `export_label_info` wrote.

        file     read once
        n_bytes  the length of the file
        digest   its `head_digest`

        All digests and invariants are checked before it is replaced. Raises Corrupt, also for
        another digest, and what `put_label_info` raises.
        """
        self._reader.require_model(name)
        with self._staging.writing(n_bytes), self._staging.stage() as stage:
            self._staging.require_space(n_bytes + HEADROOM_BYTES)
            write_file(self._files.fs, stage / LABEL_INFO, content_of(file, LABEL_INFO, n_bytes))
            if file.read(1):
                raise Corrupt(LABEL_INFO, f"{n_bytes} bytes", "more")
            actual_digest = head_digest(
                map_label_info(self._files.fs, stage / LABEL_INFO, LABEL_INFO).head
            )
            if actual_digest != digest:
                raise Corrupt(LABEL_INFO, f"a head of digest {digest}", actual_digest)
            self._replace_label_info(name, stage / LABEL_INFO)

    def delete_label_info(self, name: str) -> bool:
        """Remove the label info of a model; return whether there was any.

        Raises what `put_label_info` raises.
        """
        self._reader.require_model(name)
        with self._staging.writing(0), self._staging.stage() as stage, self._staging.locked(name):
            return self.remove_label_info(name, stage)

    # --- for the writer of versions

    def remove_label_info(self, name: str, stage: Path) -> bool:
        """Move label info away, if there is any, and sync; called under the lock.

        Return whether there was.
        """
        if not self._files.has(self._files.home(name) / LABEL_INFO):
            return False
        self._files.fs.rename(self._files.home(name) / LABEL_INFO, stage / LABEL_INFO)
        self._files.fs.fsync_dir(self._files.home(name))
        return True

    # --- parts

    def _replace_label_info(self, name: str, staged: Path) -> None:
        with self._staging.locked(name):
            self._reader.require_model(name)
            self._files.fs.move(staged, self._files.home(name) / LABEL_INFO)
