"""The store: models, their versions and aliases as directories and files. FORMAT.md is the spec.

A version is staged beside the others, synced, and renamed into place; an alias is a document that
is replaced by renaming. So a reader sees the old or the new state, even after a crash or a loss of
power, and needs no lock. Writers of one model take turns through a lock file; a lock ends with its
process.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

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

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def _forward(
    part: str, method: Callable[Concatenate[Any, Arguments], Result]
) -> "Callable[Concatenate[Store, Arguments], Result]":
    """Return a method of the store that calls the method of one of its parts.

    part  the name of the attribute that has the part

    Signature and docstring are those of the part. The alternative would have been 15 methods that
    repeat both.
    """

    @functools.wraps(method)
    def call(store: "Store", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return method(getattr(store, part), *args, **kwargs)

    return call


class Store(StoreReader):
    """A directory of models; any number of processes may read and write it at once.

    A store is a reader of its models, which takes no lock. What it writes is in four parts, whose
    methods are those of the store, too.

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
        super().__init__(files, check)
        self.root = files.root
        self._staging = Staging(files)
        self._label_info_writer = LabelInfoWriter(files, self, self._staging)
        self._alias_writer = AliasWriter(files, self, self._staging, cause)
        self.encoders = Encoders(files, self._staging)
        self._version_writer = VersionWriter(
            files,
            self,
            self._staging,
            aliases=self._alias_writer,
            label_info=self._label_info_writer,
            encoders=self.encoders,
        )

    def watch(self) -> StoreWatch:
        """Return the models of the store, which its looks bring up to date."""
        return StoreWatch(self._files, self)

    publish = _forward("_version_writer", VersionWriter.publish)
    import_ = _forward("_version_writer", VersionWriter.import_)
    mirror = _forward("_version_writer", VersionWriter.mirror)
    delete = _forward("_version_writer", VersionWriter.delete)
    delete_model = _forward("_version_writer", VersionWriter.delete_model)

    change_alias = _forward("_alias_writer", AliasWriter.change_alias)
    promote = _forward("_alias_writer", AliasWriter.promote)
    rollback = _forward("_alias_writer", AliasWriter.rollback)
    delete_alias = _forward("_alias_writer", AliasWriter.delete_alias)
    note_refusal = _forward("_alias_writer", AliasWriter.note_refusal)

    put_label_info = _forward("_label_info_writer", LabelInfoWriter.put_label_info)
    import_label_info = _forward("_label_info_writer", LabelInfoWriter.import_label_info)
    delete_label_info = _forward("_label_info_writer", LabelInfoWriter.delete_label_info)

    prepare = _forward("_staging", Staging.prepare)
    collect = _forward("_staging", Staging.collect)
