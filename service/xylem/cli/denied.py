"""`xylem models deny`: labels that the answers of an alias never have."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from xylem.base import BadParameter
from xylem.cli.aliases import Reason, cause_of, registry_of
from xylem.cli.console import print_json, print_line
from xylem.cli.options import DEFAULT_STORE, Json, StoreDir, parse_reference
from xylem.cli.places import store_at

if TYPE_CHECKING:
    from xylem.admin import Denial
    from xylem_store import LabelChange

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
        Option("--label", metavar="LABEL", help="A label, by its name; may repeat."),
    ] = None,
    labels: Annotated[
        Path | None, Option("--labels", metavar="FILE", help="A file with one label a line.")
    ] = None,
    allow_again: Annotated[bool, Option("--allow-again", help="Allow these labels again.")] = False,
    clear: Annotated[bool, Option("--clear", help="Allow all labels again.")] = False,
    reason: Reason = "",
    url: Annotated[
        str | None,
        Option(metavar="URL", help="Change the alias in this object store: s3://BUCKET/PREFIX."),
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
    from xylem.admin import allow_again as allowing_again
    from xylem.admin import denial_of, denying_known
    from xylem.datasets import read_label_names
    from xylem_store import DENIED, is_version

    name, alias = parse_reference(model)
    if is_version(alias):
        raise BadParameter(
            f"expected NAME[@ALIAS], an alias that denies labels, found version {alias}"
        )
    names = [*(label or ()), *(() if labels is None else read_label_names(labels))]
    if clear and (names or allow_again):
        raise BadParameter("--clear cannot be used with --label, --labels or --allow-again")
    if allow_again and not names:
        raise BadParameter("--allow-again: expected --label or --labels, found neither")
    if url is not None and reason:
        raise BadParameter("--reason cannot be used with --url: an object store has no history")
    change: LabelChange | None = None
    if allow_again:
        change = allowing_again(names)
    elif names:
        change = set(names).union
    elif clear:
        change = set[str]().intersection
    if url is not None:
        print_denial(deny_there(url, store, name, alias, change), json)
        return
    model_store = store_at(store)
    if change is not None:
        registry_of(store).change(
            name, alias, DENIED, denying_known(model_store, name, alias, change), cause_of(reason)
        )
    print_denial(denial_of(model_store, name, alias, model_store.alias(name, alias)), json)


def describe_denial(labels: Collection[str]) -> str:
    """Return the text about the denied labels of an alias, to follow its version."""
    return f", {len(labels):,} labels denied" if labels else ""


def deny_there(url: str, store: Path, name: str, alias: str, change: LabelChange | None) -> Denial:
    """Change the denied labels of an alias in an object store, or only return them.

    change  None: change nothing

    The labels must be those of the version that the alias names there. This version is opened in
    the local store, from which it was pushed. Raises BadInput for an unknown alias, and the store's
    errors.
    """
    from xylem.admin import Denial, RemoteStore, check_known, unknown_in
    from xylem.cli.remote import alias_there
    from xylem_store import denying

    remote = RemoteStore(url)
    document = alias_there(remote, name, alias)
    table = store_at(store).open(name, document.version).labels
    if change is not None:
        check_known(
            [table],
            set(change(document.denied)).difference(document.denied),
            f"{name}@{document.version}",
        )
        document = remote.change(name, {alias: denying(change)}).aliases[alias]
    return Denial(
        name, alias, document.version, document.denied, unknown_in(table, document.denied)
    )


def print_denial(denial: Denial, json: bool) -> None:
    """Print the labels that an alias denies."""
    if json:
        print_json(denial._asdict())
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
