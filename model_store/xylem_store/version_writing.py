"""The part of a store that publishes versions and deletes them."""

import dataclasses
from pathlib import Path

from xylem_store.alias import Alias, promoted
from xylem_store.alias_writing import AliasWriter
from xylem_store.archive import Readable, read_archive
from xylem_store.documents import render_sealed
from xylem_store.encoders import Encoders
from xylem_store.errors import Conflict, Corrupt, StoreUnwritable, VersionInUse
from xylem_store.files import StoreFiles
from xylem_store.fs import write_file
from xylem_store.identifiers import (
    ALIASES,
    LAST,
    LATEST,
    VERSION_MAX,
    VERSIONS,
    check_model,
    check_version,
)
from xylem_store.label_info import LABEL_INFO, map_label_info
from xylem_store.label_info_writing import LabelInfoWriter
from xylem_store.manifest import Manifest
from xylem_store.moves import ADOPTED, PUBLISHED, REMOVED, Cause, move_of
from xylem_store.origin import made_for_of
from xylem_store.reading import StoreReader, no_version
from xylem_store.staging import Staging
from xylem_store.version import (
    Draft,
    manifest_of,
    map_version,
    verify_version,
    write_arrays,
    write_manifest,
)


class VersionWriter:
    """The part of a store that publishes versions and deletes them; see `store.Store`."""

    def __init__(
        self,
        files: StoreFiles,
        reader: StoreReader,
        staging: Staging,
        *,
        aliases: AliasWriter,
        label_info: LabelInfoWriter,
        encoders: Encoders,
    ) -> None:
        self._files = files
        self._reader = reader
        self._staging = staging
        self._aliases = aliases
        self._label_info = label_info
        self._encoders = encoders

    def publish(self, name: str, draft: Draft, *, latest: bool = True) -> Manifest:
        """Write a draft as the model's next version, move `latest` to it, and return its manifest.

        latest  whether `latest` moves; it always names a model's first version

        A draft that was made for a job (`xylem_store.origin`) is published once: if there is a
        version made for that job already, it stays the only one, and its manifest is returned.

        When this returns, the version survives a loss of power. When it raises, `latest` is where
        it was. Raises Corrupt for a draft that breaks the format, what the store's check raises for
        one that cannot be served, and StoreUnwritable if the disk refuses. If the disk fails at the
        very last step, the complete version exists without its alias: promote it. The same is true
        if the document of `latest` is damaged, since nobody knows which labels it denies.
        """
        check_model(name)
        manifest = manifest_of(draft)
        needed = draft.needed_bytes()
        with self._staging.writing(needed), self._staging.stage() as stage:
            self._staging.require_space(needed)
            self._files.fs.mkdir(stage / "version")
            manifest = dataclasses.replace(
                manifest,
                arrays=write_arrays(self._files.fs, stage / "version", draft.arrays(), draft.files),
            )
            self._reader.check(map_version(self._files.fs, stage / "version", manifest)[0])
            return self._commit(
                name, stage, manifest, made_for=made_for_of(draft.extra), latest=latest
            )

    def import_(
        self, file: Readable, name: str, *, latest: bool = True, cause: Cause | None = None
    ) -> Manifest:
        """Publish a version that `export` wrote, as the next version of a model; see `publish`.

        `file` is read once from its present position on, and need not be able to seek. The version
        is verified completely, and given to the store's check, before it is published. Label info
        in the archive becomes the model's unless the model has some. Raises Corrupt for an archive
        that is not a version, and what the check raises.
        """
        check_model(name)
        with self._staging.writing(0), self._staging.stage() as stage:
            self._files.fs.mkdir(stage / "version")
            info = stage / LABEL_INFO
            manifest = read_archive(
                self._files.fs, file, stage / "version", self._staging.require_space, info
            )
            model, maps = map_version(self._files.fs, stage / "version", manifest)
            verify_version(model, maps)
            self._reader.check(model)
            has_info = self._files.has(info)
            if has_info:
                map_label_info(self._files.fs, info, f"archive: {LABEL_INFO}")
            manifest = self._commit(name, stage, manifest, latest=latest, cause=cause)
            if has_info:
                with self._staging.locked(name):
                    if not self._files.has(self._files.home(name) / LABEL_INFO):
                        self._files.fs.move(info, self._files.home(name) / LABEL_INFO)
            return manifest

    def mirror(
        self, file: Readable, name: str, version: int, digest: str, denied: tuple[str, ...] = ()
    ) -> Manifest:
        """Publish a version that `export` wrote under the number that it had in another store.

        digest  its `Manifest.digest`
        denied  labels that `latest` denies from its first moment, if this is the model's first
                version

        No alias moves, except `latest` to a model's first version. So the store's check is not
        called: versions that cannot be served here are named by /readyz. A version that exists
        already stays. Raises Corrupt for an archive of another version, or of none, and Conflict if
        another version has the number here.
        """
        check_model(name)
        with self._staging.writing(0), self._staging.stage() as stage:
            self._files.fs.mkdir(stage / "version")
            manifest = read_archive(
                self._files.fs, file, stage / "version", self._staging.require_space
            )
            archive_identity = f"{manifest.model}@{manifest.version} of {manifest.digest}"
            if archive_identity != f"{name}@{version} of {digest}":
                raise Corrupt("archive", f"{name}@{version} of {digest}", archive_identity)
            verify_version(*map_version(self._files.fs, stage / "version", manifest))
            with self._staging.locked(name):
                if version in self._reader.versions(name):
                    if self._reader.manifest(name, version).digest != digest:
                        raise Conflict(
                            f"{name}@{version}: expected the version of {digest}, found another"
                        )
                    return manifest
                self._write_version(
                    manifest,
                    stage,
                    self._aliases.cause,
                    moves_latest=not self._reader.versions(name),
                    denied=denied,
                )
        return manifest

    def delete(self, name: str, version: int) -> None:
        """Remove a version that no alias names. Its number is not used again.

        Processes that have it open keep it. Raises NotFound, VersionInUse, Corrupt for a damaged
        alias (promote it to repair it), or StoreUnwritable.
        """
        self._reader.resolve(name, check_version(version))
        with self._staging.writing(0), self._staging.stage() as stage, self._staging.locked(name):
            if version not in self._reader.versions(name):
                raise no_version(name, version)
            users = self._reader.users_of(name, version)
            if users:
                raise VersionInUse(
                    f"{name}@{version}: expected no alias to name it, found {', '.join(users)}"
                )
            self._keep_last(name, stage)
            self._files.fs.rename(self._files.version_path(name, version), stage / "deleted")
            self._files.fs.fsync_dir(self._files.home(name) / VERSIONS)

    def delete_model(self, name: str, cause: Cause | None = None) -> tuple[int, ...]:
        """Remove a model with its aliases, label info and versions; return the versions' numbers.

        Processes that have a version open keep it. The numbers are not used again, should a model
        of that name be published later; its moves stay. A crash leaves the model as it was, or
        without label info, or with `latest` alone, or deleted. Raises ModelNotFound or
        StoreUnwritable.
        """
        self._reader.require_model(name)
        with self._staging.writing(0), self._staging.stage() as stage, self._staging.locked(name):
            versions = self._reader.versions(name)
            self._keep_last(name, stage)
            self._label_info.remove_label_info(name, stage)
            self._aliases.append_moves(
                name,
                stage,
                [
                    move_of(alias, REMOVED, old_alias, None, cause or self._aliases.cause)
                    for alias, old_alias in self._reader.info(name).documents.items()
                ],
            )
            for part in (ALIASES, VERSIONS):
                self._files.fs.rename(self._files.home(name) / part, stage / part)
                self._files.fs.fsync_dir(self._files.home(name))
        return versions

    # --- parts

    def _commit(
        self,
        name: str,
        stage: Path,
        manifest: Manifest,
        *,
        made_for: str | None = None,
        latest: bool,
        cause: Cause | None = None,
    ) -> Manifest:
        """Give the staged arrays a number and a manifest, and publish them, as `latest` or not.

        Everything that takes space is written before the first rename. If `latest` stays and has no
        document, which would make it name the highest version, its document is written before that
        too.
        """
        with self._staging.locked(name):
            if made_for is not None and (
                earlier_manifest := self._reader.published(name, made_for)
            ):
                return earlier_manifest
            version = self._reader.last_version(name) + 1
            if version > VERSION_MAX:
                raise StoreUnwritable(
                    f"{name}: expected at most {VERSION_MAX} versions, found all numbers used"
                )
            manifest = dataclasses.replace(manifest, model=name, version=version)
            self._write_version(
                manifest,
                stage,
                cause or self._aliases.cause,
                moves_latest=latest or not self._reader.versions(name),
            )
        return manifest

    def _write_version(
        self,
        manifest: Manifest,
        stage: Path,
        cause: Cause,
        *,
        moves_latest: bool,
        denied: tuple[str, ...] = (),
    ) -> None:
        """Put staged arrays and a manifest in place, and move `latest` to the version or not.

        It is called under the lock of the model. For the first version `latest` is written first,
        so that no reader sees the version without the `denied` labels.
        """
        name = manifest.model
        self._encoders.share(manifest, stage)
        write_manifest(self._files.fs, stage / "version", manifest)
        is_first = not self._reader.versions(name)
        try:
            old_alias = (
                Alias(0, denied=denied)
                if is_first
                else self._aliases.alias_or_new(name, LATEST, create=False)
            )
        except Corrupt:  # a damaged `latest` stays as it is
            old_alias = Alias(0, serial=1)
            moves_latest = False
        new_alias = promoted(manifest.version)(old_alias) if moves_latest else old_alias
        move = move_of(LATEST, PUBLISHED if moves_latest else ADOPTED, old_alias, new_alias, cause)
        moves_later = moves_latest and not is_first
        if moves_later:
            self._aliases.stage_alias(name, stage, move, new_alias)
        elif old_alias.serial == 0:
            self._aliases.replace(name, LATEST, stage, move, new_alias)
        self._files.fs.move(stage / "version", self._files.version_path(name, manifest.version))
        if moves_later:
            self._aliases.put_alias(name, LATEST, stage, new_alias)

    def _keep_last(self, name: str, stage: Path) -> None:
        """Write down the highest number that a version has or had; called under the lock."""
        write_file(
            self._files.fs,
            stage / LAST,
            [render_sealed({"version": self._reader.last_version(name)})],
        )
        self._files.fs.move(stage / LAST, self._files.home(name) / LAST)
