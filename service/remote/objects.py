"""RemoteStore: versions and aliases as objects, by fsspec (S3, Google, Azure, a directory that is mounted).

A version is one object, the archive that `xylem models export` writes, under a name with its digest: it is
there whole or not at all, and never changes. A model's aliases are one small object, their splits another; a
change writes the next one, under the next number, on the condition that nobody has written it. So no change
is lost, and whoever sees an old list of objects sees older aliases, never half of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from model_store.archive import Readable
from model_store.denied import denied_labels
from model_store.errors import BadNames, Conflict, Corrupt, StoreError, VersionNotFound
from model_store.identifiers import check_alias, check_model, is_model
from model_store.label_info import head_digest
from model_store.manifest import Manifest, manifest_digest
from model_store.store import Store
from service.errors import BadParameter, Unavailable, XylemError
from service.remote.documents import (
    ALIASES_BYTES_MAX,
    DENIED,
    DENIED_OBJECT_BYTES_MAX,
    DOCUMENT,
    INFO,
    SPLITS,
    RemoteAliases,
    RemoteInfo,
    RemoteSplit,
    RemoteSplits,
    RemoteVersion,
)

T = TypeVar("T")

ATTEMPTS = 16
"""Tries to change aliases that others change too."""

SERIALS_KEPT = 16
"""Objects of aliases, and of splits, that are kept, the newest ones."""

MODELS_MAX = 10_000
"""Models that a remote store may have."""

_ALIASES, _SPLITS, _DENIED, _INFO = "aliases", "splits", "denied", "label_info"
_BYTES_MAX = {_DENIED: DENIED_OBJECT_BYTES_MAX}
"""Of the objects of a part, where that is not ALIASES_BYTES_MAX."""

_BLOCK_BYTES = 8 << 20
_ERROR_CHARACTERS_MAX = 200
_VERSION = re.compile(r"([1-9][0-9]{0,9})\.([0-9a-f]{64})\.tar")
_SERIAL = re.compile(r"([0-9]{12})\.json")
_SECONDS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}}
}
"""How long each kind of store may take to answer, as its driver takes it."""


class RemoteStore:
    """The objects below a URL (`s3://bucket/prefix`). Credentials are those of the driver's environment.

    Every call asks the object store, and blocks. It raises Unavailable when that does not answer, or refuses.
    """

    def __init__(self, url: str) -> None:
        """Take a URL. Raises BadParameter for one of a kind that is not known or not installed."""
        self.url = shown_url(url)
        protocol = url.partition("://")[0]
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise BadParameter(
                "expected fsspec for a store at a URL, found none: pip install 'xylem-serve[remote]'"
            ) from None
        try:
            options = {"use_listings_cache": False, "skip_instance_cache": True, **_SECONDS.get(protocol, {})}
            self._fs, self._root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise BadParameter(f"{self.url}: expected the URL of an object store, found: {error}") from None

    def models(self) -> list[str]:
        """Return the names of the models that have aliases, ascending."""
        with self._asking("list the models"):
            found = sorted(self._names(self._root))
        return [name for name in found if is_model(name)][:MODELS_MAX]

    def aliases(self, model: str) -> RemoteAliases:
        """Return a model's aliases. Raises Corrupt when their object is not one."""
        return RemoteAliases(*self._newest(model, _ALIASES, DOCUMENT))

    def splits(self, model: str) -> RemoteSplits:
        """Return the splits of a model's aliases. Raises Corrupt when their object is not one.

        One counts while its alias names `stable`. Read them before the aliases: one that ends by a move is
        then seen in force, or with the alias moved.
        """
        return RemoteSplits(*self._newest(model, _SPLITS, SPLITS))

    def push(self, store: Store, model: str, version: int) -> RemoteVersion:
        """Write a version of a store, verified first, unless it is there. Returns what it is named.

        Raises Conflict when the number is another version's, NotFound and Corrupt.
        """
        pushed = RemoteVersion(version=version, digest=manifest_digest(store.manifest(model, version)))
        with self._asking(f"look for {model}@{version}"):
            there = self._versions(model).get(version, set())
        if there - {pushed.digest}:
            raise Conflict(f"{self.url}: expected no other {model}@{version}, found one of {min(there)[:12]}")
        if not there:
            with self._asking(f"write {model}@{version}"), self._fs.transaction:
                self._fs.makedirs(f"{self._root}/{model}/versions", exist_ok=True)
                with self._fs.open(self._version_path(model, pushed), "wb", block_size=_BLOCK_BYTES) as file:
                    store.export(model, version, file)
        return pushed

    def find(self, model: str, version: int) -> RemoteVersion:
        """Return a version by its number. Raises VersionNotFound, and Conflict where there are two."""
        check_model(model)
        with self._asking(f"look for {model}@{version}"):
            digests = self._versions(model).get(version, set())
        if not digests:
            raise VersionNotFound(f"{self.url}: expected {model}@{version}, found no such object")
        if len(digests) > 1:
            raise Conflict(f"{self.url}: expected one {model}@{version}, found {len(digests)}")
        return RemoteVersion(version=version, digest=digests.pop())

    def pull(self, store: Store, model: str, wanted: RemoteVersion) -> Manifest:
        """Publish a version in a store under its number; no alias moves. Raises Corrupt, StoreUnwritable."""
        with self._asking(f"read {model}@{wanted.version}"):
            path = self._version_path(model, wanted)
            try:
                file = self._fs.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
            except FileNotFoundError:
                found = f"{self.url}: expected {model}@{wanted.version}, found no such object"
                raise VersionNotFound(found) from None
            with file:
                return store.mirror(_Answering(self, model, file), model, wanted.version, wanted.digest)

    def move(self, model: str, alias: str, to: RemoteVersion) -> RemoteAliases:
        """Make an alias name a version that is there; its split ends.

        Raises Conflict when others change it all the time.
        """
        check_alias(alias)
        if to != self.find(model, to.version):
            raise Conflict(f"{self.url}: expected {model}@{to.version} as it was pushed, found another")
        for _ in range(ATTEMPTS):
            now = self.aliases(model)
            moved = now
            if now.aliases.get(alias) != to:
                moved = RemoteAliases(now.serial + 1, {**now.aliases, alias: to})
            if moved is now or self._create(model, _ALIASES, moved.serial, DOCUMENT.dump_json(moved.aliases)):
                self._change(model, alias, _SPLITS, SPLITS, lambda _: None)
                return moved
        raise self._crowded(model, alias)

    def put_beside(self, model: str, alias: str, role: str, version: RemoteVersion, part: int) -> RemoteSplit:
        """Have a version that is there be the `canary` or the `shadow` of an alias, for a part of PARTS.

        Raises BadSplit, and Conflict for an alias that is not there, or when others change it all the time.
        """
        check_alias(alias)
        if version != self.find(model, version.version):
            raise Conflict(f"{self.url}: expected {model}@{version.version} as it was pushed, found another")
        named = self.aliases(model).aliases.get(alias)
        if named is None:
            raise Conflict(f"{self.url}: expected {alias} of {model} to name a version, found no such alias")

        def put(old: RemoteSplit | None) -> RemoteSplit:
            if old is None or old.stable != named.version:
                old = RemoteSplit(stable=named.version)
            changed = {role: version, {"canary": "weight", "shadow": "share"}[role]: part}
            made = old.model_copy(update=changed)
            made.local()
            return made

        found = self._change(model, alias, _SPLITS, SPLITS, put)
        assert found is not None
        return found

    def change_denied(
        self, model: str, alias: str, change: Callable[[tuple[str, ...]], Collection[str]]
    ) -> tuple[str, ...]:
        """Have an alias deny other labels: `change` takes those of now. Returns what it denies then.

        Raises what `change` does, BadNames for too many, also of all aliases together, and Conflict when
        others change them all the time.
        """

        def put(old: list[str] | None) -> list[str] | None:
            return list(denied_labels(change(tuple(old or ())))) or None

        after = self._change(model, check_alias(alias), _DENIED, DENIED, put)
        return tuple(after or ())

    def denied(self, model: str) -> tuple[int, dict[str, list[str]]]:
        """Return the labels that a model's aliases deny, and the serial number of the object. Raises Corrupt.

        Read them before the aliases, as the splits.
        """
        return self._newest(model, _DENIED, DENIED)

    def label_info(self, model: str) -> tuple[int, RemoteInfo | None]:
        """Return which label info a model has, and the serial number of the object. Raises Corrupt."""
        serial, found = self._newest(model, _INFO, INFO)
        return serial, found.get(_INFO)

    def push_label_info(self, store: Store, model: str) -> RemoteInfo | None:
        """Make the label info of a store's model that of the model here, verified; None: it has none.

        What is here stays then. Raises Corrupt, and Conflict when others change it all the time.
        """
        head = store.label_info_head(model)
        if head is None:
            return None
        info = RemoteInfo(digest=head_digest(head), bytes=head.file_bytes)
        path = self._info_path(model, info)
        with self._asking(f"write the label info of {model}"), self._fs.transaction:
            if not self._fs.exists(path):
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                with self._fs.open(path, "wb", block_size=_BLOCK_BYTES) as file:
                    written = store.export_label_info(model, file)
                if written != head:  # what was begun is not kept
                    raise Conflict(f"{model}: expected its label info as it was, found it replaced")
        self._change(model, _INFO, _INFO, INFO, lambda _: info)
        return info

    def pull_label_info(self, store: Store, model: str, wanted: RemoteInfo) -> None:
        """Make label info that is here that of a store's model, all digests checked, unless it is.

        Raises Corrupt for another than its digest says, NotFound, StoreUnwritable.
        """
        head = store.label_info_head(model)
        if head is not None and head_digest(head) == wanted.digest:
            return
        with (
            self._asking(f"read the label info of {model}"),
            self._fs.open(self._info_path(model, wanted), "rb", block_size=_BLOCK_BYTES) as file,
        ):
            store.import_label_info(model, _Answering(self, model, file), wanted.bytes, wanted.digest)

    def _change(
        self,
        model: str,
        key: str,
        part: str,
        document: TypeAdapter[dict[str, T]],
        change: Callable[[T | None], T | None],
    ) -> T | None:
        """Change what the object of a part says of a key, None: nothing; return what it says then."""
        for _ in range(ATTEMPTS):
            serial, now = self._newest(model, part, document)
            after = change(now.get(key))
            if after == now.get(key):
                return after
            kept = {name: value for name, value in now.items() if name != key}
            changed = document.dump_json(kept if after is None else {**kept, key: after})
            most = _BYTES_MAX.get(part, ALIASES_BYTES_MAX)
            if len(changed) > most:
                fault = f"expected {part} of at most {most} bytes, found {len(changed)}"
                raise BadNames(f"{self.url}: {model}: {fault}")
            if self._create(model, part, serial + 1, changed):
                return after
        raise self._crowded(model, key)

    def _crowded(self, model: str, alias: str) -> Conflict:
        return Conflict(
            f"{self.url}: expected to change {alias} of {model}, found it changed {ATTEMPTS} times"
        )

    def _newest(self, model: str, part: str, document: TypeAdapter[dict[str, T]]) -> tuple[int, dict[str, T]]:
        """Return the newest object of a part and its serial number; 0 where there is none. Raises Corrupt."""
        check_model(model)
        with self._asking(f"read the {part} of {model}"):
            serials = self._serials(model, part)
            if not serials:
                return 0, {}
            serial = max(serials)
            with self._fs.open(self._serial_path(model, part, serial), "rb") as file:
                most = _BYTES_MAX.get(part, ALIASES_BYTES_MAX)
                data = file.read(most + 1)
        try:
            return serial, document.validate_json(data[:most], strict=True)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = f"{self.url}: {part} of {model}, number {serial}"
            raise Corrupt(where, f"an object of {part}", str(fault["msg"])) from None

    def _create(self, model: str, part: str, serial: int, data: bytes) -> bool:
        """Write the object of a serial number, and forget old ones; return whether nobody had written it."""
        path = self._serial_path(model, part, serial)
        with self._asking(f"write the {part} of {model}"):
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            try:
                if "file" in self._protocols():
                    self._link(path, data)
                else:
                    self._fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
        self._forget_old(model, part, serial)
        return True

    def _link(self, path: str, data: bytes) -> None:
        """Make a local file, whole at once. Raises FileExistsError: drivers would write over it."""
        unfinished = f"{path}.{uuid.uuid4().hex}"
        try:
            self._fs.pipe_file(unfinished, data)
            os.link(unfinished, path)
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def _forget_old(self, model: str, part: str, serial: int) -> None:
        """Remove the objects of a part that nobody reads any more, as far as that is allowed."""
        with contextlib.suppress(Exception):  # what stays does no harm, and the next change removes it
            for old in self._serials(model, part):
                if old <= serial - SERIALS_KEPT:
                    self._fs.rm_file(self._serial_path(model, part, old))

    def _versions(self, model: str) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for name in self._names(f"{self._root}/{model}/versions"):
            if match := _VERSION.fullmatch(name):
                found.setdefault(int(match[1]), set()).add(match[2])
        return found

    def _serials(self, model: str, part: str) -> list[int]:
        names = self._names(f"{self._root}/{model}/{part}")
        return [int(match[1]) for name in names if (match := _SERIAL.fullmatch(name))]

    def _names(self, path: str) -> list[str]:
        """Return the last parts of the names below a path, none if there is nothing."""
        try:
            found = self._fs.ls(path, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def _version_path(self, model: str, version: RemoteVersion) -> str:
        return f"{self._root}/{model}/versions/{version.version}.{version.digest}.tar"

    def _info_path(self, model: str, info: RemoteInfo) -> str:
        return f"{self._root}/{model}/{_INFO}/{info.digest}.bin"

    def _serial_path(self, model: str, part: str, serial: int) -> str:
        return f"{self._root}/{model}/{part}/{serial:012d}.json"

    def _protocols(self) -> tuple[str, ...]:
        protocol = self._fs.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turn whatever the driver raises into Unavailable: each kind of store has errors of its own."""
        try:
            yield
        except (XylemError, StoreError):
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]
            raise Unavailable(f"{self.url}: expected to {what}, found {found}") from None


class _Answering:
    """An object that is read: what its driver raises is told as the object store's, not as the disk's."""

    def __init__(self, remote: RemoteStore, model: str, file: Readable) -> None:
        self._remote = remote
        self._model = model
        self._file = file

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        with self._remote._asking(f"read a version of {self._model}"):
            return self._file.read(size)


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it: a user, a password, a query."""
    scheme, mark, rest = url.partition("://")
    place = rest.partition("?")[0]
    return f"{scheme}{mark}{place.rpartition('@')[2]}"
