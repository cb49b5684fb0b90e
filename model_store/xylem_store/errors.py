"""Errors of the store. `code` is stable: clients and scripts may rely on it.

StoreError
├── InvalidName             invalid-name: a model, alias or version that breaks the grammar
├── BadNames                bad-names: a table of label or feature names
├── BadSplit                bad-split: a canary or a shadow whose weight does not fit
├── NotFound                not-found
│   ├── ModelNotFound       model-not-found
│   ├── VersionNotFound     version-not-found
│   ├── AliasNotFound       alias-not-found
│   └── EncoderNotFound     encoder-not-found
├── Conflict                conflict
│   ├── VersionInUse        version-in-use: an alias names the version that was to be deleted
│   └── NothingToRollBack   nothing-to-roll-back: the alias has no earlier existing version
├── Corrupt                 model-corrupt: bytes that are not a version
│   └── UnsupportedSchema   model-schema-unsupported: another schema than this release has
├── StoreUnreadable         store-unreadable: no permission, I/O error
└── StoreUnwritable         store-unwritable: no space, no permission, read-only, locked, I/O error
"""

from pathlib import Path


class StoreError(Exception):
    """Anything the store refuses or fails at; the message says what was expected and found."""

    code = "store-error"

    # the message for clients, if the full message names paths of the machine; else None
    public_message: str | None = None

    def __init_subclass__(cls, code: str | None = None) -> None:
        """Set the code of a class; a class without one has the code of its base class."""
        if code is not None:
            cls.code = code


class InvalidName(StoreError, code="invalid-name"):
    """A name of a model or alias, or a version number, that breaks the grammar."""


class BadNames(StoreError, ValueError, code="bad-names"):
    """Names that cannot make a table.

    A name is empty, repeated, too long, has control characters, or is not text. `index` is the
    position of the first such name in the input, None for a fault of the table as a whole; `fault`
    is the message without the index.
    """

    def __init__(self, fault: str, index: int | None = None) -> None:
        super().__init__(fault if index is None else f"name {index}: {fault}")
        self.fault = fault
        self.index = index


class NotFound(StoreError, code="not-found"):
    """Something that the store does not have."""


class ModelNotFound(NotFound, code="model-not-found"):
    """A model without any published version."""


class VersionNotFound(NotFound, code="version-not-found"):
    """A version that was never published or has been deleted."""


class AliasNotFound(NotFound, code="alias-not-found"):
    """An alias that the model does not have."""


class EncoderNotFound(NotFound, code="encoder-not-found"):
    """A sentence encoder that the store does not have."""


class Conflict(StoreError, code="conflict"):
    """A request that the present state of the store forbids."""


class VersionInUse(Conflict, code="version-in-use"):
    """A version that cannot be deleted because an alias names it."""


class NothingToRollBack(Conflict, code="nothing-to-roll-back"):
    """An alias that has no earlier version that still exists."""


class BadSplit(StoreError, code="bad-split"):
    """A canary's weight or a shadow's share that is out of range or does not fit the versions."""


class Corrupt(StoreError, code="model-corrupt"):
    """Bytes that are not a version: damaged, incomplete or not written by a correct writer.

    where     the file, and the field or the index within it
    expected  what a correct file holds there
    actual    what it holds
    """

    def __init__(self, where: str, expected: str, actual: object) -> None:
        super().__init__(f"{where}: expected {expected}, found {actual}")
        self.where = where
        self.expected = expected
        self.actual = actual

    def within(self, place: str) -> "Corrupt":
        """Return the same error with the place (a model and version, a file) before `where`."""
        return type(self)(f"{place}: {self.where}", self.expected, self.actual)


class UnsupportedSchema(Corrupt, code="model-schema-unsupported"):
    """A version of another schema than that of this release."""


class StoreUnreadable(StoreError, code="store-unreadable"):
    """The file system refused or failed to read."""

    @classmethod
    def for_path(cls, path: Path, expected: str, actual: str) -> "StoreUnreadable":
        """Return an error whose message names the path, and whose `public_message` does not."""
        error = cls(f"{path}: expected {expected}, found {actual}")
        error.public_message = f"expected {expected}, found {actual}"
        return error


class StoreUnwritable(StoreError, code="store-unwritable"):
    """The file system refused or failed to write; nothing that was published before is touched."""
