"""`xylem models promote`, `rollback`, `unalias`, `delete`, `history`: what the registry does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from service.cli.console import print_json, print_line, print_result, print_table
from service.cli.database import user_name
from service.cli.groups import grouped
from service.cli.options import DEFAULT_STORE, LATEST, Json, StoreDir, parse_version
from service.db.of_store import opened_database
from service.errors import BadParameter, DatabaseUnavailable

if TYPE_CHECKING:
    from service.registry.causes import Cause
    from service.registry.registry import Registry

app = typer.Typer(help="Aliases and deletions: a part of `xylem models`.")

Promoted = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="A version of a model; without it, the canary.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A model.")]
Alias = Annotated[str, typer.Option(metavar="NAME", help="The alias.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why: the history keeps it.")]
NoHistory = Annotated[
    bool,
    typer.Option("--no-history", help="Ask no database: when it is gone. The history finds the move later."),
]


class Why(NamedTuple):
    """What the history keeps of a move, and whether there is one."""

    reason: Reason = ""
    no_history: NoHistory = False


KeepThresholds = Annotated[
    bool,
    typer.Option("--keep-thresholds", help="Leave thresholds in the database: other stores share it."),
]


@contextlib.contextmanager
def opened_registry(store: Path, *, create: bool, asks_none: bool = False) -> Iterator[Registry]:
    """Yield the registry of a store, over its database where that is there or may be made."""
    from model_store.store import Store
    from service.registry.registry import Registry

    if asks_none:
        yield Registry(Store(store), None)
        return
    # where there is no store, no database is made
    with opened_database(store, create=create and store.is_dir()) as database:
        yield Registry(Store(store), database)


def note_publication(store: Path, model: str, version: int, why: str) -> None:
    """Write down who published a version, where a database answers; else the history finds it later."""
    unknown = contextlib.suppress(DatabaseUnavailable, BadParameter)  # the version is published in any case
    with unknown, opened_registry(store, create=False) as registry:
        if registry.named(model, LATEST) == version:
            registry.published(model, version, cause_of(why))


def cause_of(reason: str) -> Cause:
    """Return who runs the command, and why."""
    from service.registry.causes import Cause

    return Cause(user_name(), reason)


@app.command()
@grouped
def promote(
    model: Promoted,
    *,
    alias: Alias = LATEST,
    why: Why,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make an alias name a version, verified first; a server that follows the alias swaps to it.

    Without a version it is the canary of the alias. In any case a canary and a shadow of the alias end.
    """
    name, reference = parse_version(model) if "@" in model else (model, None)
    with opened_registry(store, create=True, asks_none=why.no_history) as registry:
        move = registry.promote(name, reference, alias, cause_of(why.reason))
    facts = {"model": name, "alias": alias, "version": move.now, "previous_version": move.before}
    print_result(json, f"{name}: {alias} -> {move.now}", **facts)


@app.command()
@grouped
def rollback(
    model: Name,
    *,
    alias: Alias = LATEST,
    to: Annotated[int | None, typer.Option(metavar="VERSION", help="Further back: to this version.")] = None,
    why: Why,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make an alias name the version that it named before, verified first; again for the one before that.

    While the alias has a canary, that is what ends, and the alias stays.
    """
    with opened_registry(store, create=True, asks_none=why.no_history) as registry:
        move = registry.rollback(model, alias, cause_of(why.reason), to)
    facts = {"model": model, "alias": alias, "version": move.now, "previous_version": move.before}
    print_result(json, f"{model}: {alias} -> {move.now}", **facts)


@app.command()
@grouped
def unalias(
    model: Name,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="An alias other than latest.")],
    why: Why,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove an alias; the version that it names stays, and can then be deleted."""
    with opened_registry(store, create=True, asks_none=why.no_history) as registry:
        registry.delete_alias(model, alias, cause_of(why.reason))
    print_result(json, f"{model}: {alias} removed", model=model, alias=alias, deleted=True)


@app.command()
def delete(
    model: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="A version; with --all, a model's name.")
    ],
    whole: Annotated[
        bool, typer.Option("--all", help="Remove the model, with every version and alias.")
    ] = False,
    with_aliases: Annotated[
        bool, typer.Option("--with-aliases", help="Remove aliases of the version too, but never latest.")
    ] = False,
    keep_thresholds: KeepThresholds = False,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove a version that no alias names, or a whole model, and what the database has of its thresholds."""
    forgets = not keep_thresholds
    if whole:
        if "@" in model:
            raise BadParameter(f"--all: expected the name of a model, found {model!r}")
        with opened_registry(store, create=False) as registry:
            gone = registry.delete_model(model, cause_of(reason), confirm=model, thresholds=forgets)
        line = f"{model} deleted, with {len(gone.versions)} version{'' if len(gone.versions) == 1 else 's'}"
        facts = {"versions": list(gone.versions), "deleted": True, "thresholds_deleted": gone.thresholds}
        print_result(json, line, model=model, **facts)
        return
    name, version = _version_of(model, store)
    with opened_registry(store, create=False) as registry:
        gone = registry.delete_version(
            name, version, cause_of(reason), with_aliases=with_aliases, thresholds=forgets
        )
    line = f"{name}@{version} deleted{', and its thresholds' if gone.thresholds else ''}"
    print_result(json, line, model=name, version=version, deleted=True, thresholds_deleted=gone.thresholds)


def _version_of(model: str, store: Path) -> tuple[str, int]:
    """Return the model and number of NAME@VERSION; a number need not be there: it may have been deleted."""
    from model_store.identifiers import parse_ref
    from model_store.store import Store

    name, reference = parse_version(model)
    parsed = parse_ref(reference)
    return name, parsed if isinstance(parsed, int) else Store(store).resolve(name, parsed)


@app.command()
def history(
    model: Name,
    alias: Annotated[str | None, typer.Option(metavar="NAME", help="One alias alone.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many moves.")] = 100,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show who moved the aliases of a model, when, from where to where, and why; the newest first."""
    from service.registry.facts import change_facts

    with opened_registry(store, create=True) as registry:
        changes = list(map(change_facts, registry.history(model, alias, limit=limit)))
    if json:
        print_json({"model": model, "history": changes})
    elif changes:
        shown = ("at", "alias", "action", "from_version", "to_version", "who", "why")
        rows = [["" if change[name] is None else str(change[name]) for name in shown] for change in changes]
        print_table(model, ("when", "alias", "what", "from", "to", "who", "why"), rows)
    else:
        print_line(f"{model}: no alias has moved")
