"""The store: models, their versions and aliases as directories and files. FORMAT.md is the spec.

A version is staged beside the others, synced, and renamed into place; an alias is a document that
is replaced by renaming. So a reader sees the old or the new state, even after a crash or a loss of
power, and needs no lock. Writers of one model take turns through a lock file; a lock ends with its
process.
"""

import functools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from xylem_store.alias_writing import AliasWriter
from xylem_store.encoders import Encoders
from xylem_store.files import StoreFiles
from xylem_store.fs import FileSystem
from xylem_store.label_info_writing import LabelInfoWriter
from xylem_store.moves import NOBODY, Cause
from xylem_store.reading import Check, StoreReader, no_check
from xylem_store.staging import Staging
from xylem_store.version_writing import VersionWriter
from xylem_store.watching import StoreWatch

Part = TypeVar("Part")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def _forward(
    part_of: "Callable[[Store], Part]",
    method: Callable[Concatenate[Part, Arguments], Result],
) -> "Callable[Concatenate[Store, Arguments], Result]":
    """Return a method of the store that calls the method of one of its parts.

    Signature and docstring are those of the part. The alternative would have been 34 methods that
    repeat both.
    """

    @functools.wraps(method)
    def call(store: "Store", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return method(part_of(store), *args, **kwargs)

    return call


_reader_of = operator.attrgetter("reader")
_versions_of = operator.attrgetter("writer.versions")
_aliases_of = operator.attrgetter("writer.aliases")
_label_info_of = operator.attrgetter("writer.label_info")
_staging_of = operator.attrgetter("writer.staging")


class StoreWriter:
    """The parts of a store that write: label info, aliases and versions, and where they stage."""

    def __init__(self, files: StoreFiles, reader: StoreReader, cause: Cause) -> None:
        self.staging = Staging(files)
        self.label_info = LabelInfoWriter(files, reader, self.staging)
        self.aliases = AliasWriter(files, reader, self.staging, cause)
        self.encoders = Encoders(files, self.staging)
        self.versions = VersionWriter(
            files,
            reader,
            self.staging,
            aliases=self.aliases,
            label_info=self.label_info,
            encoders=self.encoders,
        )


class Store:
    """A directory of models; any number of processes may read and write it at once.

    It has a reader, which takes no lock, and a writer; their methods are those of the store.

    encoders  its sentence encoders
    """

    def __init__(
        self,
        root: Path,
        *,
        fs: FileSystem | None = None,
        cause: Cause = NOBODY,
        check: Check = no_check,
    ) -> None:
        """Take the store's directory.

        fs     the file system, which tests replace
        cause  the cause of moves of aliases in calls without one
        check  the check of versions that an alias is to name
        """
        files = StoreFiles(root, fs)
        self.root = files.root
        self._files = files
        self.reader = StoreReader(files, check)
        self.writer = StoreWriter(files, self.reader, cause)
        self.encoders = self.writer.encoders

    def watch(self) -> StoreWatch:
        """Return the models of the store, which its looks bring up to date."""
        return StoreWatch(self._files, self.reader)

    models = _forward(_reader_of, StoreReader.models)
    info = _forward(_reader_of, StoreReader.info)
    last_version = _forward(_reader_of, StoreReader.last_version)
    versions = _forward(_reader_of, StoreReader.versions)
    alias = _forward(_reader_of, StoreReader.alias)
    moves = _forward(_reader_of, StoreReader.moves)
    users_of = _forward(_reader_of, StoreReader.users_of)
    resolve = _forward(_reader_of, StoreReader.resolve)
    manifest = _forward(_reader_of, StoreReader.manifest)
    open = _forward(_reader_of, StoreReader.open)
    verify = _forward(_reader_of, StoreReader.verify)
    label_info_head = _forward(_reader_of, StoreReader.label_info_head)
    label_info = _forward(_reader_of, StoreReader.label_info)
    export_label_info = _forward(_reader_of, StoreReader.export_label_info)
    files_of = _forward(_reader_of, StoreReader.files_of)
    published = _forward(_reader_of, StoreReader.published)
    archive = _forward(_reader_of, StoreReader.archive)
    export = _forward(_reader_of, StoreReader.export)

    publish = _forward(_versions_of, VersionWriter.publish)
    import_ = _forward(_versions_of, VersionWriter.import_)
    mirror = _forward(_versions_of, VersionWriter.mirror)
    delete = _forward(_versions_of, VersionWriter.delete)
    delete_model = _forward(_versions_of, VersionWriter.delete_model)

    change_alias = _forward(_aliases_of, AliasWriter.change_alias)
    promote = _forward(_aliases_of, AliasWriter.promote)
    rollback = _forward(_aliases_of, AliasWriter.rollback)
    delete_alias = _forward(_aliases_of, AliasWriter.delete_alias)
    note_refusal = _forward(_aliases_of, AliasWriter.note_refusal)

    put_label_info = _forward(_label_info_of, LabelInfoWriter.put_label_info)
    import_label_info = _forward(_label_info_of, LabelInfoWriter.import_label_info)
    delete_label_info = _forward(_label_info_of, LabelInfoWriter.delete_label_info)

    prepare = _forward(_staging_of, Staging.prepare)
    collect = _forward(_staging_of, Staging.collect)
