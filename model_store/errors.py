"""Errors of the store. `code` is stable: clients and scripts may rely on it.

StoreError
├── InvalidName              invalid-name: a model, alias or version that breaks the grammar
├── BadNames                 bad-names: a table of label or feature names
├── BadSplit                 bad-split: a canary or a shadow whose weight does not fit
├── NotFound
│   ├── ModelNotFound        model-not-found
│   ├── VersionNotFound      version-not-found
│   └── AliasNotFound        alias-not-found
├── Conflict
│   ├── VersionInUse         version-in-use: an alias names the version that was to be deleted
│   └── NothingToRollBack    nothing-to-roll-back: the alias has no earlier version that still exists
├── Corrupt                  model-corrupt: bytes that are not a version; says where, expected, found
│   └── UnsupportedSchema    model-schema-unsupported: a schema version this code does not know
├── StoreUnreadable          store-unreadable (no permission, I/O error)
└── StoreUnwritable          store-unwritable (no space, no permission, read-only, locked, I/O error)
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Anything the store refuses or fails at; the message says what was expected and what was found."""

    code = "store-error"

    told: str | None = None
    """What clients are told instead of the message, where that names paths of the machine."""


class InvalidName(StoreError):
    """A name of a model or alias, or a version number, that breaks the grammar."""

    code = "invalid-name"


class BadNames(StoreError, ValueError):
    """Names that cannot make a table: empty, repeated, too long, with control characters, or not text.

    `index` is the place of the first such name among those given, None for a fault of the table as a whole;
    `fault` is the message without it.
    """

    code = "bad-names"

    def __init__(self, fault: str, index: int | None = None) -> None:
        super().__init__(fault if index is None else f"name {index}: {fault}")
        self.fault = fault
        self.index = index


class NotFound(StoreError):
    """Something that the store does not have."""

    code = "not-found"


class ModelNotFound(NotFound):
    """A model without any published version."""

    code = "model-not-found"


class VersionNotFound(NotFound):
    """A version that was never published or has been deleted."""

    code = "version-not-found"


class AliasNotFound(NotFound):
    """An alias that the model does not have."""

    code = "alias-not-found"


class Conflict(StoreError):
    """A request that the present state of the store forbids."""

    code = "conflict"


class VersionInUse(Conflict):
    """A version cannot be deleted while an alias names it."""

    code = "version-in-use"


class NothingToRollBack(Conflict):
    """The alias has no earlier version that still exists."""

    code = "nothing-to-roll-back"


class BadSplit(StoreError):
    """The weight of a canary or the share of a shadow is out of range, or does not fit the versions."""

    code = "bad-split"


class Corrupt(StoreError):
    """Bytes that are not a version: damaged, incomplete or not written by a correct writer.

    where     the file, and the field or the index within it
    expected  what a correct file holds there
    found     what it holds
    """

    code = "model-corrupt"

    def __init__(self, where: str, expected: str, found: object) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}")
        self.where = where
        self.expected = expected
        self.found = found

    def within(self, place: str) -> Corrupt:
        """Return the same error with the place (a model and version, a file) in front of `where`."""
        return type(self)(f"{place}: {self.where}", self.expected, self.found)


class UnsupportedSchema(Corrupt):
    """A version of a schema that this code does not know: most often, a newer one."""

    code = "model-schema-unsupported"


class StoreUnreadable(StoreError):
    """The file system refused or failed to read."""

    code = "store-unreadable"

    @classmethod
    def of(cls, path: Path, expected: str, found: str) -> StoreUnreadable:
        """Return an error that names the path to those who read the log, and to clients what was found."""
        error = cls(f"{path}: expected {expected}, found {found}")
        error.told = f"expected {expected}, found {found}"
        return error


class StoreUnwritable(StoreError):
    """The file system refused or failed to write; nothing that was published before is touched."""

    code = "store-unwritable"
