"""StoreWatch: the models of a store, read again as they change, without a look at each of them.

Writers append the name of a model to the journal of the store after each change. A look reads what
was appended, and the models that it names. Now and then it sweeps: it compares the stamps (inodes,
times) of the files of all models, for what was copied in by hand, or changed by a writer that died
before it could say so. A sweep takes about 15 microseconds a model.
"""

import time

from xylem_store.errors import StoreUnreadable
from xylem_store.files import JOURNAL_BYTES_MAX, StoreFiles
from xylem_store.identifiers import ALIASES, JOURNAL, MODELS, VERSIONS, is_model
from xylem_store.label_info import LABEL_INFO
from xylem_store.reading import ModelInfo, StoreReader

SWEEP_SECONDS_MAX = 30.0  # the longest time between two sweeps, whatever one takes

# The part of a processor that sweeps take: the more models, the longer the pause after each.
#
# A sweep of a few hundred models is so short that each look can have one.
SWEEP_PART = 0.01

LOOK_SECONDS = 0.5  # the usual time from one look to the next, which no pause is added to

# A file whose times are this old is not changed again within the same tick of its clock.
SETTLED_SECONDS = 2.0


class StoreWatch:
    """Follows the models of a store. Not from two threads at once.

    models  by name, as `StoreReader.models` returns them
    """

    def __init__(self, files: StoreFiles, reader: StoreReader) -> None:
        self._files = files
        self._fs = files.fs
        self._reader = reader
        self.models: dict[str, ModelInfo] = {}
        self._fingerprints: dict[str, int] = {}
        self._unsettled: set[str] = set()
        # the inode of the journal: 0 if there is none, None before the first look
        self._journal: int | None = None
        self._offset = 0
        self._sweep_at = 0.0  # at the first look

    def look(self) -> bool:
        """Bring `models` up to date; return whether a version, alias or label info may be another.

        A change by a writer of this release is seen at once, any other one within
        SWEEP_SECONDS_MAX. Raises StoreUnreadable unless the store is a directory that can be read,
        and for one that lost all its models, which a writer never does.
        """
        self._files.check_root()
        named_models = self._read_journal()
        began = time.thread_time()
        now = time.monotonic()
        if named_models is None or now >= self._sweep_at:
            self._sweep_at = 0.0  # again at the next look if this one fails
            has_changed = self._sweep(named_models or set())
            self._sweep_at = now + max(
                0.0,
                min((time.thread_time() - began) / SWEEP_PART - LOOK_SECONDS, SWEEP_SECONDS_MAX),
            )
            return has_changed
        for name in named_models:
            self._read(name, self._fingerprint(name), is_named=True)
        return bool(named_models)

    def _sweep(self, named_models: set[str]) -> bool:
        """Read the models whose files have other stamps than before; return as `look` does."""
        names = self._files.model_names()
        if self.models and not names:
            raise StoreUnreadable("expected models as before, found none: is the disk still there?")
        has_changed = False
        for name in self._fingerprints.keys() - set(names):
            del self._fingerprints[name]
            has_changed |= self.models.pop(name, None) is not None
        for name in names:
            fingerprint = self._fingerprint(name)
            is_named = name in named_models
            if is_named or name in self._unsettled or fingerprint != self._fingerprints.get(name):
                has_changed |= self._read(name, fingerprint, is_named=is_named)
        return has_changed

    def _read(self, name: str, fingerprint: int, *, is_named: bool) -> bool:
        """Read a model again; return whether it may be another than before.

        fingerprint  its `_fingerprint`, which was taken before
        """
        try:
            info = self._reader.info(name)
        except StoreUnreadable as error:
            info = ModelInfo(name, (), {}, fault=error)
            self._unsettled.add(name)
        previous = self.models.pop(name, None)
        if info.versions or info.fault:
            self.models[name] = info
        has_changed = is_named or fingerprint != self._fingerprints.get(name)
        self._fingerprints[name] = fingerprint
        return has_changed or _comparable(info) != _comparable(previous)

    def _read_journal(self) -> set[str] | None:
        """Return the models that the journal names since the last look.

        None before the first look, and for another journal than before: it may lack names.
        """
        path = self._files.root / JOURNAL
        try:
            inode, data = self._fs.tail(path, self._offset, JOURNAL_BYTES_MAX)
            size = self._fs.stamp(str(path))[1]
        except OSError:  # sweeps see the changes, too, only later
            return set()
        if inode != self._journal or size < self._offset:
            self._journal = inode
            self._offset = size
            return None
        lines, _, _ = data.rpartition(b"\n")
        self._offset += len(lines) + bool(lines)
        return {name for name in lines.decode("ascii", "replace").split("\n") if is_model(name)}

    def _fingerprint(self, name: str) -> int:
        """Return a value that changes with any file of a model that a look covers.

        A model whose files changed just now, or cannot be seen, is noted as unsettled: it is read
        again at the next sweep.
        """
        home = f"{self._files.root}/{MODELS}/{name}"
        stamps: list[object] = []
        newest = 0
        self._unsettled.discard(name)
        try:
            files = [f"{ALIASES}/{file}" for file in self._fs.names(f"{home}/{ALIASES}")]
            for part in ("", VERSIONS, ALIASES, LABEL_INFO, *files):
                stamp = self._fs.stamp(f"{home}/{part}")
                stamps.append((part, *stamp))
                newest = max(newest, *stamp[2:])
        except OSError as error:
            stamps.append(str(error))
            newest = time.time_ns()
        if newest > time.time_ns() - SETTLED_SECONDS * 1e9:
            self._unsettled.add(name)
        return hash(tuple(stamps))


def _comparable(info: ModelInfo | None) -> object:
    """Return what two reads of an unchanged model have in common, also if it cannot be read."""
    return info and (*info[:-1], str(info.fault))
