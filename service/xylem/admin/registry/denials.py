"""Denied labels of an alias: what a change says of them, and its checks."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from pydantic import BaseModel, Field

from xylem.base import UnknownLabel, did_you_mean
from xylem.engine import Branch, label_ids
from xylem_store import Alias, BadNames, Change, NameTable, Store, denying, find_all, name_of


class Denial(BaseModel):
    """The labels that the answers of an alias never have, by name, ascending."""

    model: str
    alias: str
    version: int = Field(description="the version that the alias names")
    labels: tuple[str, ...]
    unknown: tuple[str, ...] = Field(
        description="labels that the version does not have; they are kept for other versions"
    )


def denial_of(store: Store, model: str, name: str, alias: Alias) -> Denial:
    """Return the labels that an alias denies. Raises NotFound, Corrupt."""
    unknown: tuple[str, ...] = ()
    if alias.denied:
        unknown = unknown_in(store.open(model, alias.version).labels, alias.denied)
    return Denial(
        model=model, alias=name, version=alias.version, labels=alias.denied, unknown=unknown
    )


# A function from the denied labels of an alias to the labels, names and branches to deny.
ItemChange: TypeAlias = Callable[[tuple[str, ...]], Collection[str | Branch]]


def denying_known(
    store: Store, model: str, items: ItemChange, *, with_split: bool = True
) -> Change:
    """Return a change of the labels that an alias denies.

    with_split  whether the alias's canary and shadow are in this store, beside its version

    What is added must be a label of a version that answers for the alias, or a name or a branch of
    the label info, which become labels; else the change raises UnknownLabel. It also raises the
    errors of `items`, BadNames for too many labels, NotFound, Corrupt.
    """

    def change(alias: Alias) -> Alias | None:
        names = _labels_of(store, model, alias, items(alias.denied), with_split=with_split)
        return denying(lambda _: names)(alias)

    return change


def allow_again(
    store: Store, model: str, items: Collection[str | Branch], *, with_split: bool = True
) -> Change:
    """Return the change that allows denied labels again; it raises BadNames for other labels.

    Takes what `denying_known` takes. Of a branch, labels that are not denied are passed over.
    """

    def change(alias: Alias) -> Alias | None:
        names = _labels_of(
            store,
            model,
            alias,
            [item for item in items if isinstance(item, str)],
            with_split=with_split,
        )
        for name in sorted(names.difference(alias.denied)):
            hint = did_you_mean(name, alias.denied, is_quoted=True)
            raise BadNames(f"expected labels that the alias denies, found {name!r:.80}{hint}")
        names |= _labels_of(store, model, alias, items, with_split=with_split)
        return denying(lambda denied: set(denied).difference(names))(alias)

    return change


def _labels_of(
    store: Store,
    model: str,
    alias: Alias,
    items: Collection[str | Branch],
    *,
    with_split: bool,
) -> set[str]:
    """Return the labels that items mean: denied ones, or those of versions of an alias.

    Raises UnknownLabel if no version has an item.
    """
    names = set(alias.denied).intersection(items)
    if len(names) == len(set(items)):
        return names
    tables = [
        store.open(model, version).labels
        for version in (alias.versions if with_split else (alias.version,))
    ]
    texts = [item for item in items if isinstance(item, str)]
    names.update(*(set(texts).difference(unknown_in(table, texts)) for table in tables))
    new_items = sorted(set(items) - names, key=str)
    info = store.label_info(model)
    faults = []
    for table in tables:
        try:
            ids, _ = label_ids(table, new_items, lambda _: "labels", info)
            names |= {name_of(table, label) for label in ids.tolist()}
        except UnknownLabel as fault:
            faults.append(fault)
    if len(faults) == len(tables):
        raise faults[0]
    return names


def unknown_in(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are not in a version's table of label names."""
    return tuple(name for name, i in zip(names, find_all(table, names), strict=True) if i < 0)
