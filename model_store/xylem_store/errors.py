"""Errors of the store. `code` is stable: clients and scripts may rely on it.

StoreError ├── InvalidName              invalid-name: a model, alias or version that breaks the
grammar ├── BadNames                 bad-names: a table of label or feature names ├── BadSplit
bad-split: a canary or a shadow whose weight does not fit ├── NotFound │   ├── ModelNotFound
model-not-found │   ├── VersionNotFound      version-not-found │   └── AliasNotFound
alias-not-found ├── Conflict │   ├── VersionInUse         version-in-use: an alias names the version
that was to be deleted │   └── NothingToRollBack    nothing-to-roll-back: the alias has no earlier
version that still exists ├── Corrupt                  model-corrupt: bytes that are not a version;
says where, expected, found │   └── UnsupportedSchema    model-schema-unsupported: a schema version
this code does not know ├── StoreUnreadable          store-unreadable (no permission, I/O error) └──
StoreUnwritable          store-unwritable (no space, no permission, read-only, locked, I/O error)
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Anything the store refuses or fails at; the message says
    what was expected and what was found.
    """

    code = "store-error"

    public_message: str | None = None
    """What clients are told instead of the message, where that names paths of the machine."""

    def __init_subclass__(cls, code: str | None = None) -> None:
        """Take the code of a class; one that says none has that of the class above it."""
        if code is not None:
            cls.code = code


class InvalidName(StoreError, code="invalid-name"):
    """A name of a model or alias, or a version number, that breaks the grammar."""


class BadNames(StoreError, ValueError, code="bad-names"):
    """Names that cannot make a table: empty, repeated, too long,
    with control characters, or not text.

    `index` is the place of the first such name among those given, None for a fault of the table as
    a whole; `fault` is the message without it.
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


class Conflict(StoreError, code="conflict"):
    """A request that the present state of the store forbids."""


class VersionInUse(Conflict, code="version-in-use"):
    """A version cannot be deleted while an alias names it."""


class NothingToRollBack(Conflict, code="nothing-to-roll-back"):
    """The alias has no earlier version that still exists."""


class BadSplit(StoreError, code="bad-split"):
    """The weight of a canary or the share of a shadow is out of
    range, or does not fit the versions.
    """


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

    def within(self, place: str) -> Corrupt:
        """Return the same error with the place (a model and version, a file) in front
        of `where`.
        """
        return type(self)(f"{place}: {self.where}", self.expected, self.actual)


class UnsupportedSchema(Corrupt, code="model-schema-unsupported"):
    """A version of a schema that this code does not know: most often, a newer one."""


class StoreUnreadable(StoreError, code="store-unreadable"):
    """The file system refused or failed to read."""

    @classmethod
    def of(cls, path: Path, expected: str, actual: str) -> StoreUnreadable:
        """Return an error that names the path to those who read the
        log, and to clients what was found.
        """
        error = cls(f"{path}: expected {expected}, found {actual}")
        error.public_message = f"expected {expected}, found {actual}"
        return error


class StoreUnwritable(StoreError, code="store-unwritable"):
    """The file system refused or failed to write; nothing that was published before is touched."""
