"""The part of the store that writes what is known of labels: label info, and what aliases deny."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_store.archive import Readable, Writable, content_of
from model_store.denied import denied_labels, render_denied
from model_store.errors import AliasNotFound, Conflict, Corrupt, ModelNotFound
from model_store.fs import make_dirs, write_file
from model_store.identifiers import check_alias
from model_store.label_info import (
    LABEL_INFO,
    Head,
    LabelInfo,
    head_digest,
    label_info_pieces,
    map_label_info,
    write_label_info,
)
from model_store.layout import DENIED
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
            with self._locked(name):
                self._require_model(name)
                self._fs.rename(stage / LABEL_INFO, self._home(name) / LABEL_INFO)
                self._fs.fsync_dir(self._home(name))

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
            with self._locked(name):
                self._require_model(name)
                self._fs.rename(stage / LABEL_INFO, self._home(name) / LABEL_INFO)
                self._fs.fsync_dir(self._home(name))

    def delete_label_info(self, name: str) -> bool:
        """Remove the label info of a model; return whether there was any. Raises as `put_label_info`."""
        self._require_model(name)
        with self._writing(0), self._stage() as stage, self._locked(name):
            return self._remove_label_info(name, stage)

    def put_denied(
        self,
        name: str,
        alias: str,
        labels: Sequence[str],
        *,
        expected: Sequence[str] | None = None,
        ahead: bool = False,
    ) -> tuple[str, ...]:
        """Have answers of an alias never have these labels, instead of those before; return what is kept.

        expected  what was read before: a set that was changed since is a Conflict, and stays; None: any
        ahead     whether alias and model may still be made: it holds from their first moment then

        Labels need not be of the version that the alias names. A file that is damaged is replaced where
        nothing is expected. Raises BadNames, NotFound, Corrupt and StoreUnwritable.
        """
        kept = denied_labels(labels)
        with self._writing(0), self._stage() as stage, self._locked(name):
            if not ahead:
                self._require_model(name)
            if check_alias(alias) not in self._alias_names(name) and not ahead:
                raise self._missing(name, AliasNotFound(f"{name}: expected an alias, found {alias!r}"))
            if expected is not None and self._read_denied(name, alias) != tuple(expected):
                expected_ones = f"the denied labels of {alias} as they were read"
                raise Conflict(f"{name}: expected {expected_ones}, found that somebody has changed them")
            if not kept:
                self._drop_denied(name, stage, alias)
            else:
                home = make_dirs(self._fs, self._home(name), DENIED).parent
                write_file(self._fs, stage / "denied", [render_denied(kept)])
                self._fs.rename(stage / "denied", home / DENIED / alias)
                self._fs.fsync_dir(home / DENIED)
        return kept

    # --- parts

    def _require_model(self, name: str) -> None:
        """Raise ModelNotFound for a model without a version."""
        if not self.versions(name):
            raise self._missing(name, ModelNotFound(name))

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

    def _drop_denied(self, name: str, stage: Path, alias: str) -> None:
        """Remove the file of an alias's denied labels, if there is one, and sync; under the lock."""
        directory = self._home(name) / DENIED
        if alias in [entry.name for entry in self._entries(directory)]:
            self._fs.rename(directory / alias, stage / "allowed")
            self._fs.fsync_dir(directory)
