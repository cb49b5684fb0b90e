"""RemoteFollower: keeps a store equal to an object store, in its own thread."""

import contextlib
import logging

from xylem.admin.registry.remote import INDEX, RemoteStore, RemoteVersion
from xylem.base import Repeating, XylemError, log
from xylem_store import (
    ADOPTED,
    LATEST,
    Alias,
    Cause,
    Conflict,
    NotFound,
    RemoteIndex,
    RemoteModel,
    Store,
    StoreError,
)


class RemoteFollower:
    """Fetches the versions that remote aliases and their splits name, then changes local aliases.

    Versions that no alias names are deleted, except the newest `keep` ones. For the models of the
    object store, its aliases are the truth; local models with other names stay.

    `start` begins to follow. `stop(seconds)` waits for a version that is being fetched, at most
    that long.

    keep  how many of the newest versions of a model stay in the store, besides those that aliases
          name
    """

    def __init__(
        self, remote: RemoteStore, store: Store, *, poll_seconds: float, keep: int
    ) -> None:
        self._remote = remote
        self._store = store
        self._keep = keep
        self._cause = Cause(why=f"as {remote.url} has it")
        self._followed: dict[str, RemoteModel] = {}
        self._seen: RemoteIndex | None = None
        self._failed: dict[str, str] = {}
        self._following = Repeating("object-store", self.look, poll_seconds, at_once=False)
        self.start = self._following.start
        self.stop = self._following.stop

    def look(self) -> bool:
        """Bring the store up to date now; return whether nothing failed. A fault is logged once.

        If nothing has changed, it costs as much as `RemoteStore.index`.
        """
        try:
            index = self._remote.index()
        except (XylemError, StoreError) as error:
            self._note("", str(error))
            return False
        has_index = index.generation > 0
        self._note(
            "",
            None
            if has_index
            else f"{self._remote.url}: expected {INDEX}, which xylem models push --alias writes, "
            "found none",
        )
        if index is not self._seen and has_index:
            successes = [
                self._try(*model)
                for model in index.models.items()
                if not self._following.stopping.is_set()
            ]
            self._seen = index if all(successes) and len(successes) == len(index.models) else None
        return index is self._seen

    def _try(self, model: str, remote_model: RemoteModel) -> bool:
        try:
            if self._followed.get(model) != remote_model and remote_model.aliases:
                self._bring(model, remote_model)
                self._followed[model] = remote_model
        except (XylemError, StoreError) as error:
            self._note(model, str(error))
            return False
        self._note(model, None)
        return True

    def _bring(self, model: str, remote_model: RemoteModel) -> None:
        """Bring one model up to date.

        `latest` comes first: if the store had another version, but no `latest`, it would take that
        version for `latest`.
        """
        for name, alias in sorted(remote_model.aliases.items(), key=lambda item: item[0] != LATEST):
            for version in alias.versions:
                self._fetch(
                    model,
                    RemoteVersion(version, remote_model.digests[version]),
                    alias.denied if name == LATEST else (),
                )
            self._bring_alias(model, name, alias)
        for name in self._store.info(model).aliases.keys() - remote_model.aliases.keys() - {LATEST}:
            self._store.delete_alias(model, name, self._cause)
        if remote_model.label_info is not None:
            self._remote.pull_label_info(self._store, model, remote_model.label_info)
        self._forget_old(model, set(remote_model.digests))

    def _bring_alias(self, model: str, name: str, remote_alias: Alias) -> None:
        """Make a local alias equal to a remote one, whose versions are in the store already."""
        changed = self._store.change_alias(
            model,
            name,
            ADOPTED,
            lambda alias: remote_alias._replace(serial=alias.serial),
            self._cause,
            create=True,
        )
        if changed.old_alias != changed.new_alias:
            facts = {
                "version": remote_alias.version,
                **remote_alias.split(),
                "denied": len(remote_alias.denied),
            }
            log(logging.INFO, "remote_alias", model=model, alias=name, **facts)

    def _fetch(self, model: str, remote_version: RemoteVersion, denied: tuple[str, ...]) -> None:
        with contextlib.suppress(NotFound):
            if self._store.manifest(model, remote_version.version).digest == remote_version.digest:
                return
            raise Conflict(
                f"{model}@{remote_version.version}: expected the version of {self._remote.url}, "
                "found another one in the store"
            )
        self._remote.pull(self._store, model, remote_version, denied)
        log(logging.INFO, "remote_version_fetched", model=model, version=remote_version.version)

    def _forget_old(self, model: str, named_versions: set[int]) -> None:
        """Delete the versions that no alias names, except the newest ones."""
        named_versions |= {self._store.alias(model).version}
        unnamed_versions = [
            version for version in self._store.versions(model) if version not in named_versions
        ]
        for version in sorted(unnamed_versions)[: max(0, len(unnamed_versions) - self._keep)]:
            self._store.delete(model, version)

    def _note(self, model: str, fault: str | None) -> None:
        previous_fault = self._failed.pop(model, None)
        if fault is not None:
            self._failed[model] = fault
            if fault != previous_fault:
                log(logging.ERROR, "remote_failed", model=model or None, detail=fault)
        elif previous_fault is not None:
            log(logging.INFO, "remote_works_again", model=model or None)
