"""The part of the store that writes what is known of labels: label info."""

from __future__ import annotations

from pathlib import Path

from model_store.archive import Readable, Writable, content_of
from model_store.errors import Corrupt, ModelNotFound
from model_store.fs import write_file
from model_store.label_info import (
    LABEL_INFO,
    Head,
    LabelInfo,
    head_digest,
    label_info_pieces,
    map_label_info,
    write_label_info,
)
from model_store.version import HEADROOM_BYTES
from model_store.writing import StoreWriter


class LabelWriter(StoreWriter):
    """A directory of models whose labels may be written of; see `store.Store`."""

    def put_label_info(self, name: str, info: LabelInfo) -> None:
        """Make this the label info of a model, instead of what it had; who has that open keeps it.

        In one step, which survives a loss of power. Raises ModelNotFound or StoreUnwritable.
        """
        needed = info.head.file_bytes + HEADROOM_BYTES
        self._require_model(name)
        with self._writing(needed), self._stage() as stage:
            self._require_space(needed)
            write_label_info(self._fs, stage / LABEL_INFO, info)
            self._replace_label_info(name, stage / LABEL_INFO)

    def export_label_info(self, name: str, file: Writable) -> Head | None:
        """Write the file of a model's label info, verified first; return its head, None: there is none.

        Raises Corrupt and StoreUnreadable, and what `file` raises.
        """
        info = self.label_info(name)
        if info is None:
            return None
        for piece in label_info_pieces(info):
            file.write(piece)
        return info.head

    def import_label_info(self, name: str, file: Readable, n_bytes: int, digest: str) -> None:
        """Make what `export_label_info` wrote, so many bytes, the label info of a model; as `put_label_info`.

        `file` is read once. All digests and invariants are checked before. Raises Corrupt, also for another
        `head_digest` than was asked for.
        """
        self._require_model(name)
        with self._writing(n_bytes), self._stage() as stage:
            self._require_space(n_bytes + HEADROOM_BYTES)
            write_file(self._fs, stage / LABEL_INFO, content_of(file, LABEL_INFO, n_bytes))
            if file.read(1):
                raise Corrupt(LABEL_INFO, f"{n_bytes} bytes", "more")
            found = head_digest(map_label_info(self._fs, stage / LABEL_INFO, LABEL_INFO).head)
            if found != digest:
                raise Corrupt(LABEL_INFO, f"that of {digest}", f"that of {found}")
            self._replace_label_info(name, stage / LABEL_INFO)

    def delete_label_info(self, name: str) -> bool:
        """Remove the label info of a model; return whether there was any. Raises as `put_label_info`."""
        self._require_model(name)
        with self._writing(0), self._stage() as stage, self._locked(name):
            return self._remove_label_info(name, stage)

    # --- parts

    def _require_model(self, name: str) -> None:
        """Raise ModelNotFound for a model without a version."""
        if not self.versions(name):
            raise self._missing(name, ModelNotFound(name))

    def _replace_label_info(self, name: str, staged: Path) -> None:
        """Make a staged file the label info of a model."""
        with self._locked(name):
            self._require_model(name)
            self._fs.rename(staged, self._home(name) / LABEL_INFO)
            self._fs.fsync_dir(self._home(name))

    def _adopt_label_info(self, name: str, staged: Path) -> None:
        """Make a staged file the label info of a model that has none; under the lock."""
        if LABEL_INFO not in [entry.name for entry in self._entries(self._home(name))]:
            self._fs.rename(staged, self._home(name) / LABEL_INFO)
            self._fs.fsync_dir(self._home(name))

    def _remove_label_info(self, name: str, stage: Path) -> bool:
        """Move label info away, if there is any, and sync; under the lock."""
        if LABEL_INFO not in [entry.name for entry in self._entries(self._home(name))]:
            return False
        self._fs.rename(self._home(name) / LABEL_INFO, stage / LABEL_INFO)
        self._fs.fsync_dir(self._home(name))
        return True
