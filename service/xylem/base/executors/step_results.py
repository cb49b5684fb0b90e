"""Results of steps, stored in files until the work is finished, so that it can be resumed."""

import fcntl
import inspect
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, get_type_hints

from xylem.base.errors import Unavailable
from xylem.base.executors.local import Crew
from xylem.base.executors.steps import (
    NamedHandle,
    R,
    Step,
    T,
    ValueHandle,
    digest_of,
    function_of,
    packed,
    unpacked,
)
from xylem_store import source_digest

_NAME_BYTES = 32
_HEAD_BYTES = _NAME_BYTES + 8
_LOCK = "lock"


@contextmanager
def stored_steps(crew: Crew, directory: Path, resume: bool) -> Iterator[Crew]:
    """Yield a crew that stores the results of `crew` in a directory.

    The directory is removed when the block ends without an error.

    resume  whether results in the directory are used; else they are removed first

    Raises Unavailable while another process works with the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(
                f"{directory}: "
                "expected no other training that keeps its steps there, found one: wait "
                "for it, or end it"
            ) from None
        if not resume:
            for file in directory.iterdir():
                if file.name != _LOCK:
                    file.unlink()
        has_ended = False
        try:
            yield _StoringCrew(crew, directory)
            has_ended = True
        finally:  # after an error results stay, for another run
            if has_ended or all(file.name == _LOCK for file in directory.iterdir()):
                shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


class _StoringCrew(Crew):
    """A crew that stores the results of another crew, and skips those that are stored."""

    def __init__(self, crew: Crew, directory: Path) -> None:
        super().__init__(crew.threads)
        self.stop = crew.stop
        self._crew = crew
        self._directory = directory
        self._last: tuple[Any, str] = None, ""

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Run `step` on the items whose results are not stored yet; call `done` for all items.

        The results of a step are in one file, named by a digest of the step, its fields and the
        sources of Xylem that it uses. Raises Unavailable if the results cannot be written.
        """
        if step is not self._last[0]:
            self._last = step, _name_of(step)
        kind = get_type_hints(function_of(step))["return"]
        with (self._directory / self._last[1]).open("a+b") as file:
            extents = _read(file)
            names = dict[int, bytes]()

            def missing() -> Iterator[T]:
                for item in items:
                    name = digest_of(item)
                    if name in extents:
                        done(item, unpacked(kind, os.pread(file.fileno(), *extents[name])))
                    else:
                        # by id(item): items live until they are done, and a step may write to
                        # them, which changes their digests
                        names[id(item)] = name
                        yield item

            def keep(item: T, result: R) -> None:
                content = packed(result)
                head = names.pop(id(item)) + len(content).to_bytes(8, "little")
                try:
                    file.write(b"".join([head, content, sha256(content).digest()]))
                    file.flush()
                except OSError as error:
                    raise Unavailable(
                        f"{file.name}: expected space to keep the results of steps, "
                        f"found: {error.strerror}"
                    ) from None
                done(item, result)

            self._crew.steps(step, missing(), keep)

    def mapped(self, step: Step[T, R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results of `step`, as `Crew.mapped`; nothing is stored."""
        return self._crew.mapped(step, items)

    def hold(self, value: R) -> ValueHandle[R]:
        """Put a value where steps can get it, named by the digest of its content."""
        return NamedHandle(self._crew.hold(value), digest_of(value).hex())

    def split(
        self, step: Step[ValueHandle[T], list[R]], items: Sequence[ValueHandle[T]], n: int
    ) -> list[list[ValueHandle[R]]]:
        """Run a step on every item, as `Crew.split`.

        Results are not stored; each is named by its step, its item and its number.
        """
        name = _name_of(step)
        return [
            [
                NamedHandle(part, digest_of(name, item, number).hex())
                for number, part in enumerate(parts)
            ]
            for item, parts in zip(items, self._crew.split(step, items, n), strict=True)
        ]


def _name_of(step: Any) -> str:
    """Return the name of a step: a digest of it, its fields, and the sources that it uses."""
    function = function_of(step)
    return digest_of(
        (
            f"{function.__module__}.{function.__qualname__}",
            source_digest(Path(inspect.getfile(function))),
        ),
        step,
    ).hex()[:_NAME_BYTES]


def _read(file: BinaryIO) -> dict[bytes, tuple[int, int]]:
    """Return the length and the position of each item's result.

    Truncates the file where a killed process left a result incomplete.
    """
    extents: dict[bytes, tuple[int, int]] = {}
    end = 0
    file.seek(0)
    while len(head := file.read(_HEAD_BYTES)) == _HEAD_BYTES:
        length = int.from_bytes(head[_NAME_BYTES:], "little")
        content = file.read(length)
        if file.read(sha256().digest_size) != sha256(content).digest():
            break
        extents[head[:_NAME_BYTES]] = length, end + _HEAD_BYTES
        end = file.tell()
    file.truncate(end)
    return extents
