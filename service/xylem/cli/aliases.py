"""`xylem models promote`, `canary`, `rollback`, `unalias`, `delete`, `history` and so on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

import xylem_store
from xylem import admin, base, serving
from xylem.cli.console import print_list, print_result
from xylem.cli.options import DEFAULT_STORE, LATEST, Json, ModelName, StoreDir, parse_version
from xylem.cli.places import user_name

app = Typer(help="Aliases and deletions: a part of `xylem models`.")

Version = Annotated[
    str, Argument(metavar="NAME@VERSION", help="A version of a model; with --end, a model's name.")
]
Alias = Annotated[str, Option(metavar="NAME", help="The alias.")]
Reason = Annotated[str, Option(metavar="TEXT", help="The reason, for the history.")]
Ends = Annotated[bool, Option("--end", help="Only end the present one.")]


def registry_of(store: Path, database: base.Database | None = None) -> admin.Registry:
    """Return the registry of a store; without a database it uses none."""

    return admin.Registry(serving.store_of(store), database)


def store_to_publish(store: Path, reason: str) -> xylem_store.Store:
    """Return a store; its history says that the user of this command published, and why."""

    return serving.store_of(store, cause_of(reason))


def cause_of(reason: str) -> xylem_store.Cause:
    """Return the user of this command and a reason, for the history."""

    return xylem_store.Cause(user_name(), reason)


@app.command()
def promote(
    model: Annotated[
        str,
        Argument(metavar="NAME[@VERSION]", help="A version of a model; without it, the canary."),
    ],
    *,
    alias: Alias = LATEST,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Move an alias to a version, which is verified first; servers then answer with this version.

    Without a version, the alias's canary is promoted. A canary and a shadow of the alias end in any
    case.
    """
    name, reference = parse_version(model) if "@" in model else (model, None)
    print_move(registry_of(store).promote(name, reference, alias, cause_of(reason)), json)


@app.command()
def rollback(
    model: ModelName,
    *,
    alias: Alias = LATEST,
    to: Annotated[int | None, Option(metavar="VERSION", help="Go back to this version.")] = None,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Move an alias back to its previous version, which is verified first.

    Repeat it to go back further. If the alias has a canary, only the canary ends, and the alias
    stays.
    """
    print_move(registry_of(store).rollback(model, alias, cause_of(reason), to), json)


def print_move(change: xylem_store.AliasChange, json: bool) -> None:
    """Print the version that an alias names now."""
    print_result(json, f"{change.model}: {change.alias} -> {change.version}", **change.move())


@app.command()
def unalias(
    model: ModelName,
    alias: Annotated[str, Argument(metavar="ALIAS", help="An alias other than latest.")],
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove an alias; the version that it names stays, and can then be deleted."""
    registry_of(store).delete_alias(model, alias, cause_of(reason))
    print_result(json, f"{model}: {alias} removed", model=model, alias=alias, deleted=True)


@app.command()
def canary(
    model: Version,
    *,
    weight: Annotated[
        str | None, Option(metavar="PART", help="Share of the alias's requests: 10% or 0.1.")
    ] = None,
    end: Ends = False,
    alias: Alias = LATEST,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Let a version answer a part of the requests to an alias.

    `promote` makes it the version of the alias, `rollback` ends the canary.
    """

    if end == (weight is not None):
        raise base.BadParameter("expected --weight or --end, one of them")
    name, number = (model, 0) if end else _version_of(model, store)
    _change_split(
        store,
        name,
        alias,
        xylem_store.without_canary
        if weight is None
        else xylem_store.with_canary(number, fraction_of("--weight", weight)),
        reason,
        json,
    )


@app.command()
def shadow(
    model: Version,
    *,
    share: Annotated[
        str | None, Option(metavar="PART", help="Share of the alias's requests; default: all.")
    ] = None,
    end: Ends = False,
    alias: Alias = LATEST,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Let a version answer copies of an alias's requests.

    Its answers are compared with those of the alias, and never returned.
    """

    if end and share is not None:
        raise base.BadParameter("expected --share or --end, not both")
    name, number = (model, 0) if end else _version_of(model, store)
    _change_split(
        store,
        name,
        alias,
        xylem_store.without_shadow
        if end
        else xylem_store.with_shadow(number, fraction_of("--share", share or "1")),
        reason,
        json,
    )


def _change_split(
    store: Path, model: str, alias: str, change: xylem_store.Change, reason: str, json: bool
) -> None:
    print_split(
        registry_of(store).change(model, alias, xylem_store.SPLIT, change, cause_of(reason)), json
    )


def print_split(change: xylem_store.AliasChange, json: bool) -> None:
    """Print the version that an alias names now, with its canary and its shadow."""
    print_result(
        json,
        f"{change.model}: {change.alias} -> {change.version}"
        f"{'' if change.new_alias is None else describe_split(change.new_alias)}",
        **change.split(),
    )


def describe_split(alias: xylem_store.Alias) -> str:
    """Return the text about the canary and the shadow of an alias, to follow its version."""
    canary, shadow = alias.split().values()
    text = "" if canary is None else f", canary {canary['version']} at {canary['weight']:.6g}"
    return (
        text if shadow is None else f"{text}, shadow {shadow['version']} at {shadow['share']:.6g}"
    )


def fraction_of(option: str, text: str) -> float:
    """Return a fraction that is written as such or in percent. Raises BadParameter."""
    number = text.removesuffix("%")
    is_percent = text.endswith("%")
    try:
        return float(number) / (100 if is_percent else 1)
    except ValueError:
        raise base.BadParameter(
            f"{option}: expected a part such as 10% or 0.1, found {text!r}"
        ) from None


@app.command()
def delete(
    model: Annotated[
        str, Argument(metavar="NAME@VERSION", help="A version; with --all, a model's name.")
    ],
    all_versions: Annotated[
        bool, Option("--all", help="Remove the model, with every version and alias.")
    ] = False,
    with_aliases: Annotated[
        bool, Option("--with-aliases", help="Remove aliases of the version too, but never latest.")
    ] = False,
    keep_thresholds: Annotated[
        bool,
        Option(
            "--keep-thresholds", help="Leave thresholds in the database: other stores share it."
        ),
    ] = False,
    reason: Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove a version that no alias names, or a whole model, with its stored thresholds."""
    forgets = not keep_thresholds
    if all_versions:
        if "@" in model:
            raise base.BadParameter(f"--all: expected the name of a model, found {model!r}")
        with base.opened_database(store) as database:
            deletion = registry_of(store, database).delete_model(
                model, cause_of(reason), confirm=model, thresholds=forgets
            )
        line = (
            f"{model} deleted, with {len(deletion.versions)} "
            f"version{'' if len(deletion.versions) == 1 else 's'}"
        )
        print_result(
            json,
            line,
            model=model,
            versions=list(deletion.versions),
            deleted=True,
            thresholds_deleted=deletion.thresholds,
        )
        return
    name, version = _version_of(model, store)
    with base.opened_database(store) as database:
        deletion = registry_of(store, database).delete_version(
            name, version, cause_of(reason), with_aliases=with_aliases, thresholds=forgets
        )
    line = f"{name}@{version} deleted{', and its thresholds' if deletion.thresholds else ''}"
    print_result(
        json,
        line,
        model=name,
        version=version,
        deleted=True,
        thresholds_deleted=deletion.thresholds,
    )


def _version_of(model: str, store: Path) -> tuple[str, int]:
    """Return the model and number of NAME@VERSION.

    A number is not looked up: the version may have been deleted.
    """

    name, reference = parse_version(model)
    parsed = xylem_store.parse_ref(reference)
    return name, parsed if isinstance(parsed, int) else serving.store_of(store).resolve(
        name, parsed
    )


@app.command()
def history(
    model: ModelName,
    alias: Annotated[str | None, Option(metavar="NAME", help="Only this alias.")] = None,
    limit: Annotated[int, Option(min=1, max=1000, help="Show the newest N moves.")] = 100,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show who moved the aliases of a model, when, from where to where, and why; newest first."""

    changes = [
        admin.history_facts(model, move)
        for move in registry_of(store).history(model, alias, limit=limit)
    ]
    fields = ("at", "alias", "action", "from_version", "to_version", "who", "why")
    print_list(
        json,
        {"model": model, "history": changes},
        (
            model,
            ("when", "alias", "what", "from", "to", "who", "why"),
            [
                ["" if change[name] is None else str(change[name]) for name in fields]
                for change in changes
            ],
        ),
        f"{model}: no alias has moved",
    )
