"""An object that many processes read and few write, both conditionally.

It is read only if it has changed, and written only if it has not changed since it was read. S3
checks both conditions itself (`If-None-Match`, `If-Match`). A file is locked while it is written.
With other kinds of store, the object's properties are read first: that makes an unchanged object as
cheap to read, but if two processes write at the same moment, one change may be lost.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from xylem_store import FileSystem, locked, write_file

# Statuses with which S3 refuses a conditional write.
#
# The object is gone, is being written, or has changed.
_CONFLICTS = (404, 409, 412)


class ObjectState(NamedTuple):
    """The content of an object, and its tag, which differs whenever the content differs.

    Both are None if there is no object.
    """

    data: bytes | None
    tag: str | None


NOTHING = ObjectState(None, None)


def object_at(fs: Any, path: str) -> "ConditionalObject":
    """Return an object of an fsspec file system, of the class that suits its kind of store best."""
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
    """An object. Each call blocks, and raises the driver's errors."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path

    def read(self, tag: str | None, bytes_max: int) -> ObjectState | None:
        """Return the state of the object; None if it still has this tag.

        bytes_max  at most this many bytes of the content, and one more, are returned

        Cost: its properties are read, and its content if they have changed.
        """
        try:
            current_tag = (
                self._tag()
            )  # read before the content, so the tag is never newer than the content
            return (
                None
                if current_tag == tag
                else ObjectState(self._fs.cat_file(self._path, end=bytes_max + 1), current_tag)
            )
        except FileNotFoundError:
            return NOTHING

    def write(self, data: bytes, tag: str | None) -> bool:
        """Replace the object if it still has this tag; return whether it was replaced.

        tag  None: the object must not exist
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
    """An object of S3, or of a store with the same protocol."""

    def __init__(self, fs: Any, path: str) -> None:
        super().__init__(fs, path)
        bucket, key, _ = fs.split_path(path)
        self._place = {"Bucket": bucket, "Key": key}

    def read(self, tag: str | None, bytes_max: int) -> ObjectState | None:
        """Return the state as ConditionalObject does.

        Cost: one GET, answered 304 if nothing has changed.
        """
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
        """Replace the object as ConditionalObject does. Cost: one PUT."""
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
    """A file in a directory that all writers mount."""

    def _tag(self) -> str:
        """Return the digest of the content: NFS may return old properties from its cache."""
        with Path(self._path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(self, data: bytes, tag: str | None) -> bool:
        """Replace the file as ConditionalObject does, while the directory is locked.

        Cost: a new file is written, and renamed to its name.
        """
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
    """Return at most `n_bytes` of the body of an answer, and close it."""
    try:
        return bytes(await body.read(n_bytes))
    finally:
        body.close()


def _status_of(error: OSError) -> int:
    """Return the status of S3's answer that caused a driver's error; 0: no answer did."""
    if isinstance(error, FileExistsError):
        return 412
    response = getattr(error.__cause__, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
