"""Denied labels of an alias: what a change says of them, and its checks."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from xylem.base import (
    UnknownLabel,
    did_you_mean,
)
from xylem_store import (
    Alias,
    BadNames,
    Change,
    LabelChange,
    NameTable,
    Store,
    denying,
    find_all,
)


class Denial(NamedTuple):
    """The labels that an alias denies.

    version  the version that the alias names
    labels   the labels by name, ascending
    unknown  the labels among these that the version does not have; they are kept for other versions
    """

    model: str
    alias: str
    version: int
    labels: tuple[str, ...]
    unknown: tuple[str, ...]


def denial_of(store: Store, model: str, name: str, alias: Alias) -> Denial:
    """Return the labels that an alias denies. Raises NotFound, Corrupt."""
    unknown: tuple[str, ...] = ()
    if alias.denied:
        unknown = unknown_in(store.open(model, alias.version).labels, alias.denied)
    return Denial(model, name, alias.version, alias.denied, unknown)


def denying_known(store: Store, model: str, name: str, labels: LabelChange) -> Change:
    """Return a change of the labels that an alias denies.

    A label that is added must be one of a version that answers for the alias, else the change
    raises UnknownLabel. It also raises the errors of `labels`, BadNames for too many labels,
    NotFound, Corrupt.
    """

    def change(alias: Alias) -> Alias | None:
        changed_alias = denying(labels)(alias)
        if changed_alias is not None and (
            new := set(changed_alias.denied).difference(alias.denied)
        ):
            tables = [store.open(model, version).labels for version in alias.versions]
            check_known(tables, new, f"{model}@{name}")
        return changed_alias

    return change


def unknown_in(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are not in a version's table of label names."""
    return tuple(name for name, i in zip(names, find_all(table, names), strict=True) if i < 0)


def check_known(tables: Sequence[NameTable], names: Collection[str], owner: str) -> None:
    """Raise UnknownLabel for a name that none of several versions has.

    owner  what the versions belong to, for the message
    """
    unknown = set(names).intersection(*(unknown_in(table, tuple(names)) for table in tables))
    if unknown:
        name = min(unknown)
        raise UnknownLabel(f"expected labels of {owner}, found {name!r:.80}").with_path("labels")


def allow_again(names: Collection[str]) -> LabelChange:
    """Return the change that allows denied labels; it raises BadNames for others."""

    def change(denied: tuple[str, ...]) -> Collection[str]:
        for name in sorted(set(names).difference(denied)):
            hint = did_you_mean(name, denied, is_quoted=True)
            raise BadNames(f"expected labels that the alias denies, found {name!r:.80}{hint}")
        return set(denied).difference(names)

    return change
