"""`xylem keys`: the keys of the service, in the database of the store."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

from typer import Argument, Context, Option, Typer, echo

from xylem import base, serving
from xylem.cli.console import cell, print_json, print_line, print_list, print_result
from xylem.cli.options import DEFAULT_STORE, Json, StoreDir, grouped
from xylem.cli.places import Place, opened_place, user_name

app = Typer(help="Keys of the service: who may predict, send feedback, read metrics, administer.")

KeyId = Annotated[
    str, Argument(metavar="ID", help="The id of a key, as `xylem keys list` shows it.")
]
Lifetime = Annotated[
    str | None,
    Option(
        "--expires",
        metavar="TIME",
        help="When it ends: 90d, 12h, 30m or 45s from now; default never.",
    ),
]

_LIMITS = {
    "requests_per_second": "requests/s",
    "rows_per_second": "rows/s",
    "in_flight": "in flight",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


@contextmanager
def _opened_keys(store: Path) -> "Iterator[tuple[base.AccessKeys, base.Database]]":
    with base.ready_database(store) as database:
        yield base.AccessKeys(database), database


class TermsOfKey(NamedTuple):
    """What a key may do beside its scopes: the terms of `AccessKeys.create`."""

    no_rows: Annotated[
        list[str] | None,
        Option(
            "--no-rows",
            metavar="MODEL",
            help="Store no rows of feedback to this model; * for all; may repeat.",
        ),
    ] = None
    models: Annotated[
        list[str] | None,
        Option(
            "--model",
            metavar="PATTERN",
            help="Models that it sees, as 'shop-*'; for it there are no others; may repeat.",
        ),
    ] = None
    data_prefix: Annotated[
        str | None,
        Option(
            metavar="PREFIX",
            help="With --scope admin and --model: how the data files begin that it may use.",
        ),
    ] = None
    requests_per_second: Annotated[
        float | None, Option(metavar="N", help="Its requests a second, in each process.")
    ] = None
    rows_per_second: Annotated[
        float | None, Option(metavar="N", help="Its rows a second, in each process.")
    ] = None
    in_flight: Annotated[
        int | None, Option(metavar="N", help="Its requests in flight, in each process.")
    ] = None


@app.command()
@grouped
def create(
    name: Annotated[str, Argument(metavar="NAME", help="Who or what the key is for.")],
    terms: TermsOfKey,
    scope: Annotated[
        list[str] | None,
        Option("--scope", metavar="SCOPE", help="predict, feedback, metrics or admin; may repeat."),
    ] = None,
    expires: Lifetime = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make a key and print it, only this once: the database has only its hash.

    A key with the scope admin opens everything, with --model everything of these models. Servers
    that share the database know it within two seconds.
    """
    lifetime = seconds_of("--expires", expires)
    with _opened_keys(store) as (keys, database):
        new_key = keys.create(name, scope or [], lifetime, **terms._asdict())
        _note(database, "keys.create", new_key.key.id)
    _print_made(new_key.facts(_models_of(store)), json)


@app.command("list")
def list_keys(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """List the keys, newest first, with those that are no longer valid.

    The keys themselves are not shown.
    """
    with _opened_keys(store) as (keys, database):
        key_facts = [key.facts() for key in keys.list()]
        database_name = database.public_url
    columns = ("id", "name", "scopes", "models", "state", "created", "expires", "last_used")
    print_list(
        json,
        {"keys": key_facts},
        (
            database_name,
            (*columns, "limits"),
            [[*(key[name] for name in columns), _limits_of(key)] for key in key_facts],
        ),
        "No keys. Make one: xylem keys create NAME --scope predict",
    )


def _limits_of(key: dict[str, Any]) -> list[str]:
    return [f"{key[name]:g} {unit}" for name, unit in _LIMITS.items() if key[name] is not None]


@grouped
def usage(
    context: Context,
    place: Place,
    begin: Annotated[
        str | None, Option("--from", metavar="TIME", help="The hour to begin with, in UTC.")
    ] = None,
    end: Annotated[
        str | None, Option("--to", metavar="TIME", help="The time before which it ends.")
    ] = None,
    groups: Annotated[
        str, Option("--by", metavar="GROUPS", help="Some of hour, key and model, with commas.")
    ] = "key,model",
    json: Json = False,
) -> None:
    """Show what keys sent to models: requests, rows, characters, and seconds of search."""
    with opened_place(
        context,
        place,
        lambda database, settings: SimpleNamespace(
            usage=base.KeyRing(database, settings).usage.read
        ),
    ) as source:
        lines = source.usage(begin, end, groups)
    print_list(
        json,
        {"usage": lines},
        ("usage", list(lines[0]) if lines else [], [list(line.values()) for line in lines]),
        "No usage in this time.",
    )


@app.command()
def revoke(key_id: KeyId, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Revoke a key for good; servers that share the database refuse it within two seconds."""
    with _opened_keys(store) as (keys, database):
        key = keys.revoke(key_id)
        _note(database, "keys.revoke", key.id)
    print_result(json, f"key {key.id} ({key.name}) is revoked", **key.facts())


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        str, Option(metavar="TIME", help="How long the old key stays valid.")
    ] = "1d",
    expires: Lifetime = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Print a new key of the same name and scopes; the old one ends after the overlap.

    Without --expires the new key has the lifetime of the old one.
    """
    lifetime = seconds_of("--expires", expires)
    overlaps = seconds_of("--overlap", overlap)
    with _opened_keys(store) as (keys, database):
        new_key = keys.rotate(key_id, overlaps or 0.0, lifetime)
        _note(database, "keys.rotate", f"{key_id} {new_key.key.id}")
    _print_made(new_key.facts(_models_of(store)), json)


def seconds_of(option: str, text: str | None) -> float | None:
    """Return the seconds of a duration such as 90d, 12h, 30m or 45s; None for None.

    Raises BadParameter.
    """
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise base.BadParameter(
            f"{option}: expected a time such as 90d, 12h, 30m or 45s, found {text!r}"
        )
    return float(int(match[1]) * _UNITS[match[2]])


def _models_of(store: Path) -> list[str]:
    return [info.name for info in serving.store_of(store).models()]


def _note(database: "base.Database", action: str, target: str) -> None:
    base.AuditLog(database).append(base.Principal("", user_name()), action, target)


def _print_made(facts: dict[str, Any], json: bool) -> None:
    if json:
        print_json(facts)
        return
    echo(facts["key"])  # one line, however narrow the terminal
    print_line(
        f"key {facts['id']} ({facts['name']}): {cell(facts['scopes'])}; "
        f"expires {facts['expires'] or 'never'}"
    )
    print_line("It is shown this once. Send it as the header Authorization: Bearer KEY")
    for warning in facts["warnings"]:
        print_line(f"Warning: {warning}")
