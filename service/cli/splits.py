"""`xylem models canary` and `shadow`: versions that stand beside the one that an alias names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.aliases import Alias, Why, cause_of, opened_registry
from service.cli.console import print_result
from service.cli.groups import grouped
from service.cli.options import DEFAULT_STORE, LATEST, Json, StoreDir, parse_version
from service.errors import BadParameter

if TYPE_CHECKING:
    from model_store.alias import Alias as AliasDocument
    from model_store.alias_changes import Change
    from model_store.splits import Split
    from service.registry.registry import SplitMove

app = typer.Typer(help="Canaries and shadows: a part of `xylem models`.")

Version = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="A version of a model; with --end, a model's name.")
]
Ends = Annotated[bool, typer.Option("--end", help="End it.")]


@app.command()
@grouped
def canary(
    model: Version,
    *,
    weight: Annotated[
        str | None, typer.Option(metavar="PART", help="Of the requests to the alias: 10% or 0.1.")
    ] = None,
    end: Ends = False,
    alias: Alias = LATEST,
    why: Why,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Have a version answer a part of the requests to an alias; `promote` finishes it, `rollback` ends it."""
    from service.registry.splits import with_canary, without_canary

    if end == (weight is not None):
        raise BadParameter("expected --weight or --end, one of them")
    name, number = (model, 0) if end else _version_of(model, store)
    change = without_canary if weight is None else with_canary(number, fraction_of("--weight", weight))
    with opened_registry(store, create=True, asks_none=why.no_history) as registry:
        move = registry.change_split(name, alias, change, cause_of(why.reason))
    _print(move, json)


@app.command()
@grouped
def shadow(
    model: Version,
    *,
    share: Annotated[
        str | None, typer.Option(metavar="PART", help="Of the requests to the alias: all if left out.")
    ] = None,
    end: Ends = False,
    alias: Alias = LATEST,
    why: Why,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Have a version answer requests to an alias too, to be compared and counted, and never returned."""
    from service.registry.splits import with_shadow, without_shadow

    if end and share is not None:
        raise BadParameter("expected --share or --end, not both")
    name, number = (model, 0) if end else _version_of(model, store)
    change = without_shadow if end else with_shadow(number, fraction_of("--share", share or "1"))
    with opened_registry(store, create=True, asks_none=why.no_history) as registry:
        move = registry.change_split(name, alias, change, cause_of(why.reason))
    _print(move, json)


def beside(split: Split | None) -> str:
    """Return what a line says of a split, behind the version that its alias names."""
    facts: dict[str, Any] = {} if split is None else split.facts()
    canary, shadow = facts.get("canary"), facts.get("shadow")
    said = "" if canary is None else f", canary {canary['version']} at {canary['weight']:.6g}"
    return said if shadow is None else f"{said}, shadow {shadow['version']} at {shadow['share']:.6g}"


def what_is_beside(alias: AliasDocument) -> str:
    """Return what a line says of the versions beside the one that an alias names, behind that."""
    canary, shadow = alias.split().values()
    said = "" if canary is None else f", canary {canary['version']} at {canary['weight']:.6g}"
    return said if shadow is None else f"{said}, shadow {shadow['version']} at {shadow['share']:.6g}"


def change_beside(version: int, canary: str | None, shadow: str | None) -> Change | None:
    """Return the change that puts a version beside another; None: none was asked for. Raises BadSplit."""
    from model_store.alias_changes import with_canary, with_shadow

    if canary is not None and shadow is not None:
        raise BadParameter("expected --canary or --shadow, not both")
    if canary is not None:
        return with_canary(version, fraction_of("--canary", canary))
    return None if shadow is None else with_shadow(version, fraction_of("--shadow", shadow))


def _version_of(model: str, store: Path) -> tuple[str, int]:
    from model_store.store import Store

    name, reference = parse_version(model)
    return name, Store(store).resolve(name, reference)


def fraction_of(option: str, text: str) -> float:
    """Return a part of 1 that is written as such or in percent. Raises BadParameter."""
    number, is_percent = text.removesuffix("%"), text.endswith("%")
    try:
        return float(number) / (100 if is_percent else 1)
    except ValueError:
        raise BadParameter(f"{option}: expected a part as 10% or 0.1, found {text!r}") from None


def _print(move: SplitMove, json: bool) -> None:
    from service.registry.facts import split_facts

    facts = split_facts(move)
    del facts["recorded"]
    print_result(json, f"{move.model}: {move.alias} -> {move.version}{beside(move.split)}", **facts)
