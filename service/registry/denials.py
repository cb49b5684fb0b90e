"""Labels that aliases deny: taken in and off by their names, and told beside the version they meet."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from model_store.alias import Alias, Change, LabelChange, denying
from model_store.errors import BadNames
from model_store.names import NameTable, find_all
from model_store.store import Store
from service.base.errors import UnknownLabel
from service.base.faults import did_you_mean


class Denial(NamedTuple):
    """What an alias denies.

    version   what the alias names
    labels    by name, ascending
    unknown   those of them that the version does not have: they are kept for one that has them
    """

    model: str
    alias: str
    version: int
    labels: tuple[str, ...]
    unknown: tuple[str, ...]


def denial_of(store: Store, model: str, name: str, alias: Alias) -> Denial:
    """Return what an alias denies. Raises NotFound, Corrupt."""
    unknown: tuple[str, ...] = ()
    if alias.denied:
        unknown = unknown_in(store.open(model, alias.version).labels, alias.denied)
    return Denial(model, name, alias.version, alias.denied, unknown)


def denying_known(store: Store, model: str, name: str, labels: LabelChange) -> Change:
    """Return the change of what an alias denies; labels that come must be of a version that answers for it.

    The change raises what `labels` does, UnknownLabel, BadNames for too many, NotFound, Corrupt.
    """

    def change(alias: Alias) -> Alias | None:
        after = denying(labels)(alias)
        if after is not None and (new := set(after.denied).difference(alias.denied)):
            tables = [store.open(model, version).labels for version in alias.versions]
            check_known(tables, new, f"{model}@{name}")
        return after

    return change


def unknown_in(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a version does not have."""
    return tuple(name for name, i in zip(names, find_all(table, names), strict=True) if i < 0)


def check_known(tables: Sequence[NameTable], names: Collection[str], what: str) -> None:
    """Raise UnknownLabel for a name that none of some versions has, of which `what` tells."""
    unknown = set(names).intersection(*(unknown_in(table, tuple(names)) for table in tables))
    if unknown:
        name = min(unknown)
        raise UnknownLabel(f"expected labels of {what}, found {name!r:.80}").at("labels")


def allow_again(names: Collection[str]) -> LabelChange:
    """Return the change that takes labels off; it raises BadNames for one that is not denied."""

    def change(before: tuple[str, ...]) -> Collection[str]:
        for name in sorted(set(names).difference(before)):
            hint = did_you_mean(name, before, is_quoted=True)
            raise BadNames(f"expected labels that the alias denies, found {name!r:.80}{hint}")
        return set(before).difference(names)

    return change
