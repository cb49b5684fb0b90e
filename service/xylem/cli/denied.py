"""`xylem models deny`: labels that the answers of an alias never have."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

import xylem_store
from xylem import admin, datasets, engine, serving
from xylem.base import BadParameter
from xylem.cli.aliases import Reason, cause_of, registry_of
from xylem.cli.console import print_json, print_line
from xylem.cli.options import DEFAULT_STORE, Json, StoreDir, parse_reference

app = Typer(help="Denied labels: a part of `xylem models`.")

LISTED_LABELS_MAX = 20  # most labels in the list for people; --json has all


@app.command()
def deny(
    model: Annotated[
        str, Argument(metavar="NAME[@ALIAS]", help="An alias of a model; default `latest`.")
    ],
    *,
    label: Annotated[
        list[str] | None,
        Option("--label", metavar="LABEL", help="A label, or its name; may repeat."),
    ] = None,
    labels: Annotated[
        Path | None, Option("--labels", metavar="FILE", help="A file with one label a line.")
    ] = None,
    under: Annotated[
        list[str] | None,
        Option(metavar="CONCEPT", help="A concept and all below it, by label info; may repeat."),
    ] = None,
    allow_again: Annotated[bool, Option("--allow-again", help="Allow these labels again.")] = False,
    clear: Annotated[bool, Option("--clear", help="Allow all labels again.")] = False,
    reason: Reason = "",
    url: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Change the alias in this object store: s3://BUCKET/PREFIX.",
        ),
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Deny labels: answers of an alias never have them, until they are allowed again.

    This holds for every version that the alias names. The labels are added to those that are denied
    already. Without labels, the denied ones are listed. Running servers follow without a restart.
    Requests that name a version by its number are not affected. --url is for servers that follow an
    object store.
    """

    name, alias = parse_reference(model)
    if xylem_store.is_version(alias):
        raise BadParameter(
            f"expected NAME[@ALIAS], an alias that denies labels, found version {alias}"
        )
    items = [
        *(label or ()),
        *(() if labels is None else datasets.read_label_names(labels)),
        *map(engine.Branch, under or ()),
    ]
    if clear and (items or allow_again):
        raise BadParameter("--clear cannot be used with --label, --labels, --under, --allow-again")
    if allow_again and not items:
        raise BadParameter("--allow-again: expected --label, --labels or --under, found none")
    if url is not None and reason:
        raise BadParameter("--reason cannot be used with --url: an object store has no history")
    model_store = serving.store_of(store)
    # the version that an alias names in an object store was pushed from here; others may not be
    with_split = url is None
    change: xylem_store.Change | None = None
    if allow_again:
        change = admin.allow_again(model_store, name, items, with_split=with_split)
    elif items:
        change = admin.denying_known(model_store, name, set(items).union, with_split=with_split)
    elif clear:
        change = admin.denying_known(model_store, name, set[str]().intersection)
    if url is None:
        if change is not None:
            registry_of(store).change(name, alias, xylem_store.DENIED, change, cause_of(reason))
        document = model_store.alias(name, alias)
    else:
        from xylem.cli.remote import alias_there

        remote = admin.RemoteStore(url)
        document = alias_there(remote, name, alias)
        if change is not None:
            document = remote.change(name, {alias: change}).aliases[alias]
    print_denial(admin.denial_of(model_store, name, alias, document), json)


def describe_denial(labels: Collection[str]) -> str:
    """Return the text about the denied labels of an alias, to follow its version."""
    return f", {len(labels):,} labels denied" if labels else ""


def print_denial(denial: "admin.Denial", json: bool) -> None:
    """Print the labels that an alias denies."""
    if json:
        print_json(denial.model_dump())
        return
    n_labels = len(denial.labels)
    n_unknown = len(denial.unknown)
    unknown = f", {n_unknown:,} of them not in version {denial.version}" if n_unknown else ""
    print_line(
        f"{denial.model}: {denial.alias} denies {n_labels:,} "
        f"label{'' if n_labels == 1 else 's'}{unknown}"
    )
    for name in denial.labels[:LISTED_LABELS_MAX]:
        print_line(f"  {name}")
    if n_labels > LISTED_LABELS_MAX:
        print_line(f"  and {n_labels - LISTED_LABELS_MAX:,} more: --json has all")
