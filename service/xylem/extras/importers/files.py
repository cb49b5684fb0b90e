"""Read the files of a foreign model, with one digest for all, and errors that name the file."""

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from xylem.base import BadModel, what_is


class ModelFile(NamedTuple):
    """A file of a foreign model in memory, with methods that check and refuse what it contains."""

    path: Path
    data: bytes

    def fault(self, expected: str, actual: object) -> BadModel:
        """Return an error that names the file, what was expected in it and what is in it."""
        return BadModel(f"{self.path}: expected {expected}, found {actual!s:.200}")

    def expect(self, holds: bool, expected: str, actual: object) -> None:
        """Raise the error of `fault` unless `holds` is true."""
        if not holds:
            raise self.fault(expected, actual)

    def json_object(self, text: bytes, place: str = "") -> dict[str, Any]:
        """Parse a JSON object; `place` tells, in errors, where its text is. Raises BadModel."""
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise self.fault(f"JSON{place}", f"other text: {error}") from error
        self.expect(type(value) is dict, f"a JSON object{place}", what_is(value))
        return dict(value)


class ModelFiles:
    """The path that a user names as a model: a directory or a file.

    sha256   the digest of all files that were read
    n_bytes  their size together
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_bytes = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the digest, in hexadecimal, of the files in the order in which they were read."""
        return self._digest.hexdigest()

    def read(self, name: str, bytes_max: int | None = None) -> ModelFile:
        """Read the file `name` of the directory, or the path itself if the name is "".

        Raises BadModel for a file that is missing, no regular file, unreadable, or of more than
        `bytes_max` bytes. Takes memory of the file's size.
        """
        path = self.path / name if name else self.path
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
                raise BadModel(f"{path}: expected a regular file, found another kind")
            if bytes_max is not None and status.st_size > bytes_max:
                raise BadModel(
                    f"{path}: expected at most {bytes_max} bytes, found {status.st_size}"
                )
            with path.open("rb") as file:
                data = file.read(status.st_size)
        except OSError as error:
            raise BadModel(f"{path}: expected a file to read, found: {error.strerror}") from error
        self.n_bytes += len(data)
        self._digest.update(data)
        return ModelFile(path, data)

    def read_settings(self, name: str) -> "SavedSettings":
        """Return the JSON object in a file. Raises BadModel."""
        file = self.read(name, bytes_max=1 << 20)
        return SavedSettings(file, file.json_object(file.data))


class SavedSettings(NamedTuple):
    """The JSON object in a file; each method returns a field after a check."""

    file: ModelFile
    fields: dict[str, Any]

    def _field(self, name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.fields.get(name)
        self.file.expect(fits(value), f"{name} to be {expected}", value)
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """Return a field that is an integer from `low` to `high`; raise BadModel otherwise."""
        expected = f"an integer from {low} to {high}"
        return int(self._field(name, expected, lambda x: type(x) is int and low <= x <= high))

    def number(self, name: str) -> float:
        """Return a field that is a number; raise BadModel otherwise."""
        return float(self._field(name, "a finite number", lambda x: type(x) in (int, float)))

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a field that is one of the texts `choices`; raise BadModel otherwise."""
        return str(self._field(name, f"one of {', '.join(choices)}", lambda x: x in choices))

    def inner(self, name: str) -> "SavedSettings":
        """Return a field that is a JSON object; raise BadModel otherwise."""
        return SavedSettings(self.file, self._field(name, "an object", lambda x: type(x) is dict))
