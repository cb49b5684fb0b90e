"""Models as archives: out to a stream, and in from one, with a limit of bytes."""

from collections.abc import Callable

from model_store.archive import Readable
from model_store.fs import Buffer
from model_store.manifest import Manifest
from model_store.moves import Cause
from model_store.store import Store
from service.base.errors import LimitExceeded
from service.registry.registry import Registry


class _Writer:
    """What the store writes to."""

    def __init__(self, write: Callable[[Buffer], object]) -> None:
        self.write = write


class _BoundedReader:
    """A file of which no more than a limit of bytes is read."""

    def __init__(self, file: Readable, bytes_max: int) -> None:
        self._file = file
        self._bytes_max = self._left = bytes_max

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes. Raises LimitExceeded for the first byte beyond the limit."""
        if self._left > 0:
            piece = self._file.read(min(size, self._left))
        elif piece := self._file.read(1):
            raise LimitExceeded(f"archive: expected at most {self._bytes_max:,} bytes, found more")
        self._left -= len(piece)
        return piece


def export_to(store: Store, model: str, ref: str | int, write: Callable[[Buffer], object]) -> Manifest:
    """Hand a version, by number or alias, to `write` as a tar, in pieces of up to 1 MiB; return its manifest.

    It is verified wholly before the first piece, so what is damaged is refused, and not cut off. `write` is
    called from this thread, and may block; what it raises ends the export. The same version gives the same
    bytes while the model's label info, which goes with it, is the same. Raises NotFound, Corrupt and
    StoreUnreadable.
    """
    number = store.resolve(model, ref)
    store.export(model, number, _Writer(write), label_info=True)
    return store.manifest(model, number)


def import_from(
    registry: Registry,
    store: Store,
    model: str,
    file: Readable,
    cause: Cause,
    *,
    bytes_max: int,
    latest: bool = True,
) -> Manifest:
    """Publish the version in the archive `file` as the next version of a model; return its manifest.

    `file` is read from its present place on, once, in this thread: a request's body will do. No name in the
    archive becomes a path, what the manifest does not announce is refused before it is written, and all of it
    is verified before it is published. Without `latest` no alias moves, but for a model's first version.
    Raises LimitExceeded beyond `bytes_max`, Corrupt for what is no archive of a version, also one that is cut
    off, InvalidName, StoreUnwritable; nothing is published then.
    """
    registry.check_own()
    return store.import_(_BoundedReader(file, bytes_max), model, latest=latest, cause=cause)
