"""One object that many read and few write: read only if it has changed, written only if it has not.

S3 does both by itself (`If-None-Match`, `If-Match`); for a file a lock does. Other kinds of store
are asked for the object's properties before: to read costs as little, but of two who write at the
same moment one may be lost.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from xylem_store import FileSystem, locked, write_file

_CONFLICTS = (404, 409, 412)
"""Answers of S3 to a write on a condition that does not hold: it is
gone, being written, or another one.
"""


class ObjectState(NamedTuple):
    """What an object holds; its tag differs whenever that does. Both
    are None where there is no object.
    """

    data: bytes | None
    tag: str | None


NOTHING = ObjectState(None, None)


def object_at(fs: Any, path: str) -> "ConditionalObject":
    """Return an object of an fsspec file system, by the best way that its kind knows."""
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    kind = (
        _S3Object
        if "s3" in protocols
        else _FileObject
        if "file" in protocols
        else ConditionalObject
    )
    return kind(fs, path)


class ConditionalObject:
    """An object; each call blocks, and raises what the driver does."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path

    def read(self, tag: str | None, bytes_max: int) -> ObjectState | None:
        """Return what it holds, at most `bytes_max` + 1 bytes; None: it has this tag still.

        Cost: its properties are asked for, and it is read where they are others.
        """
        try:
            current_tag = (
                self._tag()
            )  # before what it holds: so that the tag is never too new for that
            return (
                None
                if current_tag == tag
                else ObjectState(self._fs.cat_file(self._path, end=bytes_max + 1), current_tag)
            )
        except FileNotFoundError:
            return NOTHING

    def write(self, data: bytes, tag: str | None) -> bool:
        """Replace it if it has this tag still (None: if it is not
        there); return whether it was written.
        """
        try:
            if tag is not None and self._tag() != tag:
                return False
            self._fs.pipe_file(self._path, data, mode="create" if tag is None else "overwrite")
        except (FileExistsError, FileNotFoundError):
            return False
        return True

    def _tag(self) -> str:
        return str(self._fs.ukey(self._path))


class _S3Object(ConditionalObject):
    """An object of S3, or of what speaks its protocol."""

    def __init__(self, fs: Any, path: str) -> None:
        super().__init__(fs, path)
        bucket, key, _ = fs.split_path(path)
        self._place = {"Bucket": bucket, "Key": key}

    def read(self, tag: str | None, bytes_max: int) -> ObjectState | None:
        """Cost: one GET, answered by 304 where nothing has changed."""
        from fsspec.asyn import sync

        condition = {} if tag is None else {"IfNoneMatch": tag}
        try:
            answer = self._fs.call_s3("get_object", **self._place, **condition)
        except FileNotFoundError:
            return NOTHING
        except OSError as error:
            if _status_of(error) == 304:
                return None
            raise
        return ObjectState(
            sync(self._fs.loop, _content, answer["Body"], bytes_max + 1), answer["ETag"]
        )

    def write(self, data: bytes, tag: str | None) -> bool:
        """Cost: one PUT."""
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            self._fs.call_s3("put_object", **self._place, **condition, Body=data)
        except OSError as error:
            if _status_of(error) in _CONFLICTS and not (
                tag is None and isinstance(error, FileNotFoundError)
            ):
                return False
            raise
        return True


class _FileObject(ConditionalObject):
    """A file of a directory that all writers mount."""

    def _tag(self) -> str:
        """Return the digest of what it holds: its properties may be
        known from before, as NFS has them.
        """
        with Path(self._path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(self, data: bytes, tag: str | None) -> bool:
        """Cost: another file is renamed over it, while the directory's lock is held."""
        fs = FileSystem()
        path = Path(self._path)
        with locked(fs, path.parent):
            if (self._tag() if path.exists() else None) != tag:
                return False
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            write_file(fs, unfinished, [data])
            fs.rename(unfinished, path)
            fs.fsync_dir(path.parent)
        return True


async def _content(body: Any, n_bytes: int) -> bytes:
    """Return up to so many bytes of an answer, and close it."""
    try:
        return bytes(await body.read(n_bytes))
    finally:
        body.close()


def _status_of(error: OSError) -> int:
    """Return the status of S3's answer that a driver's error was made of; 0: it was no answer."""
    if isinstance(error, FileExistsError):
        return 412
    response = getattr(error.__cause__, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
