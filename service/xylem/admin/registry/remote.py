"""RemoteStore: versions and aliases as objects of fsspec (S3, Google, Azure, a mounted directory).

A version is one object, the archive that `xylem models export` writes. Its name contains its
digest: the object exists whole or not at all, and never changes. All aliases of all models are one
object, the index: a change replaces it on the condition that nobody has changed it since it was
read. So no change is lost, a follower of the models reads only one object, and no two objects can
contradict each other.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from xylem.admin.registry.conditional import object_at
from xylem.base import Unavailable, XylemError, file_system, redacted_url
from xylem_store import (
    INDEX_BYTES_MAX,
    Change,
    Conflict,
    Corrupt,
    Manifest,
    Readable,
    RemoteIndex,
    RemoteInfo,
    RemoteModel,
    Store,
    StoreError,
    VersionNotFound,
    check_model,
)

# How often a change of the index is tried, as others may change it, too.
ATTEMPTS = 16

INDEX = "index.json"
_BLOCK_BYTES = 8 << 20
_VERSION = re.compile(r"([1-9][0-9]{0,9})\.([0-9a-f]{64})\.tar")


class RemoteVersion(NamedTuple):
    """A version's number, and the SHA-256 of its manifest, which has those of all its arrays."""

    version: int
    digest: str


class RemoteStore:
    """The objects below a URL (`s3://bucket/prefix`).

    The driver takes the credentials from its environment. Every call reads or writes the object
    store, and blocks. It raises Unavailable if the object store does not answer, or refuses.
    """

    def __init__(self, url: str) -> None:
        """Use a URL. Raises BadParameter for a kind of URL that is not known or not installed."""
        self.url = redacted_url(url)
        self._fs, self._root = file_system(url, skip_instance_cache=True)
        self._index_object = object_at(self._fs, f"{self._root}/{INDEX}")
        self._index = RemoteIndex()
        self._tag: str | None = None

    def index(self) -> RemoteIndex:
        """Return the aliases of all models; the same Python object while nothing has changed.

        Cost: one conditional read, whatever the number of models. The index is empty if nothing was
        pushed yet; once there was an index, a missing one raises Corrupt, as does an index that
        cannot be read.
        """
        place = f"{self.url}/{INDEX}"
        with self._driver_errors("read the index"):
            answer = self._index_object.read(self._tag, INDEX_BYTES_MAX)
        if answer is None:
            return self._index
        if answer.data is None and self._index.generation:
            raise Corrupt(place, "the index, which was there before", "none")
        if answer.data is not None:
            self._index = RemoteIndex.parse(answer.data, place)
            self._tag = answer.tag
        return self._index

    def model(self, name: str) -> RemoteModel:
        """Return the entry of a model in the index, empty if there is none. Raises as `index`."""
        return self.index().models.get(check_model(name), RemoteModel())

    def push(self, store: Store, model: str, version: int) -> RemoteVersion:
        """Write a version of a store, verified first, unless it exists; return number and digest.

        Raises Conflict if the number belongs to another version, NotFound and Corrupt.
        """
        pushed = RemoteVersion(version=version, digest=store.manifest(model, version).digest)
        with self._driver_errors(f"look for {model}@{version}"):
            digests = self._versions(model).get(version, set())
        if digests - {pushed.digest}:
            raise Conflict(
                f"{self.url}: expected no other {model}@{version}, found digest {min(digests)[:12]}"
            )
        if not digests:
            with self._driver_errors(f"write {model}@{version}"), self._fs.transaction:
                self._fs.makedirs(f"{self._root}/{model}/versions", exist_ok=True)
                with self._fs.open(
                    self._version_path(model, pushed), "wb", block_size=_BLOCK_BYTES
                ) as file:
                    store.export(model, version, file)
        return pushed

    def find(self, model: str, version: int) -> RemoteVersion:
        """Return a version by its number.

        Raises VersionNotFound, and Conflict if there are two.
        """
        check_model(model)
        with self._driver_errors(f"look for {model}@{version}"):
            digests = self._versions(model).get(version, set())
        if not digests:
            raise VersionNotFound(f"{self.url}: expected {model}@{version}, found no such object")
        if len(digests) > 1:
            raise Conflict(f"{self.url}: expected one {model}@{version}, found {len(digests)}")
        return RemoteVersion(version=version, digest=digests.pop())

    def pull(
        self, store: Store, model: str, version: RemoteVersion, denied: tuple[str, ...] = ()
    ) -> Manifest:
        """Publish a version in a store under its number; no alias moves.

        denied  see `Store.mirror`

        Raises Corrupt, StoreUnwritable and VersionNotFound.
        """
        with self._driver_errors(f"read {model}@{version.version}"):
            path = self._version_path(model, version)
            try:
                file = self._fs.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
            except FileNotFoundError:
                raise VersionNotFound(
                    f"{self.url}: expected {model}@{version.version}, found no such object"
                ) from None
            with file:
                return store.mirror(_RemoteFile(self, model, file), model, *version, denied)

    def change(
        self,
        model: str,
        changes: Mapping[str, Change],
        pushed: RemoteVersion | None = None,
        info: RemoteInfo | None = None,
    ) -> RemoteModel:
        """Change aliases of a model, all in one step; return the model's new entry in the index.

        pushed  a version that the aliases may name now, and that was pushed before
        info    the new label info of the model, which was pushed before; None: it stays

        Raises the errors of the changes, BadSplit, BadNames for more than an index may contain, and
        Conflict for a version that is not as it was pushed, or if others change the index all the
        time.
        """
        check_model(model)
        if pushed is not None and pushed != self.find(model, pushed.version):
            raise Conflict(
                f"{self.url}: expected {model}@{pushed.version} as it was pushed, found another"
            )
        digests = {} if pushed is None else {pushed.version: pushed.digest}
        for _ in range(ATTEMPTS):
            index = self.index()
            serial = index.generation + 1
            old_model = index.models.get(model, RemoteModel())
            new_model = old_model.changed(changes, digests, serial, f"{self.url}: {model}")
            new_model = new_model if info is None else new_model._replace(label_info=info)
            if new_model == old_model or self._write(
                RemoteIndex(serial, {**index.models, model: new_model})
            ):
                return new_model
        raise Conflict(
            f"{self.url}: expected to change the index, found it changed {ATTEMPTS} times"
        )

    def push_label_info(self, store: Store, model: str) -> RemoteInfo | None:
        """Write the label info of a store's model, verified, unless it exists; None if it has none.

        It becomes the label info of the remote model with `change`. Raises Corrupt, and Conflict if
        it is replaced meanwhile.
        """
        head = store.label_info_head(model)
        if head is None:
            return None
        info = RemoteInfo.from_head(head)
        path = self._info_path(model, info)
        with self._driver_errors(f"write the label info of {model}"), self._fs.transaction:
            if not self._fs.exists(path):
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                with self._fs.open(path, "wb", block_size=_BLOCK_BYTES) as file:
                    written = store.export_label_info(model, file)
                if written != head:  # the error ends the transaction, so the object is not stored
                    raise Conflict(f"{model}: expected its label info as it was, found it replaced")
        return info

    def pull_label_info(self, store: Store, model: str, info: RemoteInfo) -> None:
        """Give a store's model this label info, with all digests checked, unless the model has it.

        Raises Corrupt if the label info does not have the digest in `info`, NotFound,
        StoreUnwritable.
        """
        head = store.label_info_head(model)
        if head is not None and RemoteInfo.from_head(head).digest == info.digest:
            return
        with (
            self._driver_errors(f"read the label info of {model}"),
            self._fs.open(self._info_path(model, info), "rb", block_size=_BLOCK_BYTES) as file,
        ):
            store.import_label_info(model, _RemoteFile(self, model, file), info.bytes, info.digest)

    def _write(self, index: RemoteIndex) -> bool:
        """Replace the index unless it has changed since it was read.

        Returns whether it was replaced.
        """
        data = index.render()
        with self._driver_errors("write the index"):
            return self._index_object.write(data, self._tag)

    def _versions(self, model: str) -> dict[int, set[str]]:
        digests: dict[int, set[str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._fs.ls(f"{self._root}/{model}/versions", detail=False, refresh=True):
                if match := _VERSION.fullmatch(str(path).rstrip("/").rpartition("/")[2]):
                    digests.setdefault(int(match[1]), set()).add(match[2])
        return digests

    def _version_path(self, model: str, version: RemoteVersion) -> str:
        return f"{self._root}/{model}/versions/{version.version}.{version.digest}.tar"

    def _info_path(self, model: str, info: RemoteInfo) -> str:
        return f"{self._root}/{model}/label_info/{info.digest}.bin"

    @contextlib.contextmanager
    def _driver_errors(self, action: str) -> Iterator[None]:
        """Turn whatever the driver raises into Unavailable: each kind of store has its own errors.

        action  what the driver does, as a verb and its object, for the message
        """
        try:
            yield
        except (XylemError, StoreError):
            raise
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"[:200]
            raise Unavailable(f"{self.url}: expected to {action}, found {fault}") from None


class _RemoteFile:
    """An object that is being read; errors of its driver are raised as Unavailable.

    Otherwise the store that reads it would take them for errors of the disk.
    """

    def __init__(self, remote: RemoteStore, model: str, file: Readable) -> None:
        self._remote = remote
        self._model = model
        self._file = file

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        with self._remote._driver_errors(f"read a version of {self._model}"):
            return self._file.read(size)
