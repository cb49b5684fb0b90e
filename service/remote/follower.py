"""RemoteFollower: keeps a store as an object store says, in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

from model_store.errors import Conflict, Corrupt, NotFound, StoreError
from model_store.manifest import manifest_digest
from model_store.store import LATEST, Store
from service.errors import XylemError
from service.logs import log
from service.remote.documents import RemoteSplit, RemoteVersion
from service.remote.objects import RemoteStore


class RemoteFollower:
    """Fetches the versions that remote aliases and their splits name, and moves and splits the local aliases.

    Versions that nobody names are deleted.

    The remote aliases are the truth for the models that are there; local models of other names stay.

    keep  versions of a model, besides those that aliases name, that stay in the store: the newest ones
    """

    def __init__(self, remote: RemoteStore, store: Store, *, poll_seconds: float, keep: int) -> None:
        self._remote = remote
        self._store = store
        self._poll_seconds = poll_seconds
        self._keep = keep
        self._serials: dict[str, tuple[int, ...]] = {}
        self._failed: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="xylem-remote", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Stop following; a version that is being fetched is waited for so long, and then given up."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def look(self) -> bool:
        """Bring the store up to date now; return whether nothing failed. A fault is logged once."""
        try:
            models = self._remote.models()
        except XylemError as error:
            self._note("", str(error))
            return False
        self._note("", None)
        tried = [self._try(model) for model in models if not self._stopping.is_set()]
        return all(tried)

    def _follow(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            self.look()

    def _try(self, model: str) -> bool:
        try:
            self._bring(model)
        except (XylemError, StoreError) as error:
            self._note(model, str(error))
            return False
        self._note(model, None)
        return True

    def _bring(self, model: str) -> None:
        """Bring one model up to date: `latest` first, so that no other version is taken for it."""
        info_serial, info = self._remote.label_info(model)
        denied_serial, denied = self._remote.denied(model)
        splits_serial, splits = self._remote.splits(model)
        serial, aliases = self._remote.aliases(model)
        serials = serial, splits_serial, denied_serial, info_serial
        if self._serials.get(model) == serials:
            return
        for alias, labels in denied.items():  # before an alias names what may answer them
            self._deny(model, alias, labels)
        named = {alias: wanted.version for alias, wanted in aliases.items()}
        splits = {alias: split for alias, split in splits.items() if named.get(alias) == split.stable}
        for alias, wanted in sorted(aliases.items(), key=lambda item: item[0] != LATEST):
            self._fetch(model, wanted)
            if self._names(model, alias) != wanted.version:
                self._store.promote(model, wanted.version, alias)
                log(logging.INFO, "remote_alias_moved", model=model, alias=alias, version=wanted.version)
        for alias in self._store.info(model).aliases.keys() - aliases.keys() - {LATEST}:
            self._store.delete_alias(model, alias)
        for alias in (*self._store.info(model).denied, *self._store.info(model).broken_denied):
            if alias not in denied:
                self._deny(model, alias, ())
        self._bring_splits(model, splits)
        if info is not None:
            self._remote.pull_label_info(self._store, model, info)
        beside = (version for split in splits.values() for version in split.others)
        self._forget_old(model, {wanted.version for wanted in (*aliases.values(), *beside)})
        self._serials[model] = serials

    def _deny(self, model: str, alias: str, labels: Sequence[str]) -> None:
        """Have an alias deny labels as it does there, also one that is still to be made."""
        info = self._store.info(model)
        if alias in info.broken_denied or info.denied.get(alias, ()) != tuple(labels):
            self._store.put_denied(model, alias, labels, ahead=True)
            log(logging.INFO, "remote_denied", model=model, alias=alias, labels=len(labels))

    def _bring_splits(self, model: str, splits: dict[str, RemoteSplit]) -> None:
        """Have the aliases of a model split as they are there, and no other."""
        info = self._store.info(model)
        for alias in (info.splits.keys() | set(info.broken_splits)) - splits.keys():
            self._store.end_split(model, alias)
            log(logging.INFO, "remote_split_ended", model=model, alias=alias)
        for alias, wanted in sorted(splits.items()):
            for version in wanted.others:
                self._fetch(model, version)
            split = wanted.local()
            if info.splits.get(alias) != split:
                self._store.put_split(model, alias, split)
                log(logging.INFO, "remote_split", model=model, alias=alias, **split.facts())

    def _fetch(self, model: str, wanted: RemoteVersion) -> None:
        with contextlib.suppress(NotFound):
            digest = manifest_digest(self._store.manifest(model, wanted.version))
            if digest == wanted.digest:
                return
            raise Conflict(
                f"{model}@{wanted.version}: expected that of {self._remote.url}, found another one here"
            )
        self._remote.pull(self._store, model, wanted)
        log(logging.INFO, "remote_version_fetched", model=model, version=wanted.version)

    def _names(self, model: str, alias: str) -> int | None:
        try:
            return self._store.alias(model, alias).version
        except (NotFound, Corrupt):
            return None

    def _forget_old(self, model: str, named: set[int]) -> None:
        """Delete the versions that no alias names, but for the newest ones."""
        named |= {self._store.alias(model).version}
        others = [version for version in self._store.versions(model) if version not in named]
        for version in sorted(others)[: max(0, len(others) - self._keep)]:
            self._store.delete(model, version)

    def _note(self, model: str, fault: str | None) -> None:
        """Log a fault when it is new, and its end."""
        if fault is not None and self._failed.get(model) != fault:
            log(logging.ERROR, "remote_failed", model=model or None, detail=fault)
        if fault is None and model in self._failed:
            log(logging.INFO, "remote_works_again", model=model or None)
        if fault is None:
            self._failed.pop(model, None)
        else:
            self._failed[model] = fault
