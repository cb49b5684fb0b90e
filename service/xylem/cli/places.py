"""Where commands find what they ask: a store and its database, or a server (`--url`, the key)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from xylem.base import BadInput, BadParameter, Unavailable, is_there, opened_database
from xylem.cli.options import DEFAULT_STORE, StoreDir, in_panel, parse_reference

if TYPE_CHECKING:
    from xylem.base import Database, Settings
    from xylem.client import Client
    from xylem.serving import OnlineLearning
    from xylem_store import Model, Store


KEY_VARIABLE = "XYLEM_KEY"
_KEY_BYTES_MAX = 4096


@in_panel("Server", common=("store",))
class Place(NamedTuple):
    """Where the models are that a command asks: a store, or with `url` a server."""

    store: StoreDir = DEFAULT_STORE
    url: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Use a server, not the store: https://HOST or http://127.0.0.1:8080.",
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="A file with the key for --url; default $XYLEM_KEY."),
    ] = None


def store_at(path: Path) -> Store:
    """Return the store of a directory, which need not be there."""
    from xylem.serving import store_of

    return store_of(path)


def open_model(store: Path, model: str) -> Model:
    """Return the version that NAME[@VERSION] names, opened. Raises BadParameter, StoreError."""
    return store_at(store).open(*parse_reference(model))


def read_key(file: Path | None) -> str | None:
    """Return the key in a file, else that of the environment, else None. Raises BadParameter."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with file.open("rb") as opened:
            content = opened.read(_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise BadParameter(
            f"--key-file: expected to read {file}, found: {error.strerror}"
        ) from None
    lines = content.split()
    if len(lines) != 1 or len(content) > _KEY_BYTES_MAX or not content.isascii():
        raise BadParameter(
            f"--key-file: expected a key and nothing else in {file}, found another content"
        )
    return lines[0].decode()


def refuse_beside_url(context: typer.Context, names: tuple[str, ...]) -> None:
    """Refuse options that only mean something without `--url`. Raises BadParameter."""
    for name in names:
        if (
            source := context.get_parameter_source(name)
        ) is not None and source.name == "COMMANDLINE":
            raise BadParameter(f"--{name}: expected without --url, found with it")


@contextmanager
def connect_server(url: str, key: str | None) -> Iterator[Client]:
    """Yield a client of a server, closed in the end.

    Raises BadInput where the server refuses (4xx), Unavailable where it fails or does not answer,
    and BadParameter for a URL, a key or an argument that cannot be used.
    """
    from xylem.client import Client
    from xylem.errors import ClientError, ProblemError

    try:
        client = Client(url, key)
    except ValueError as error:
        raise BadParameter(f"--{error}") from None
    with client:
        try:
            yield client
        except ProblemError as error:
            kind = BadInput if 400 <= error.status < 500 else Unavailable
            raise kind(f"{url}: {error}") from None
        except ClientError as error:
            raise Unavailable(f"{url}: {error}") from None
        except ValueError as error:
            raise BadParameter(str(error)) from None


@contextmanager
def opened_learning(store: Path, *, create: bool) -> Iterator[OnlineLearning | None]:
    """Yield what learns from feedback and signs prediction ids; None
    without a database, unless `create`.

    It logs nothing: what fails is for the command to say. Raises BadParameter as `opened_database`
    does.
    """
    from xylem.base import configure, read_settings

    settings = read_settings(store=store)
    if not create and not is_there(store, settings.database_url):
        yield None
        return
    from xylem.serving import OnlineLearning

    configure("critical")
    learning = OnlineLearning(settings)
    try:
        yield learning
    finally:
        learning.close()


@contextmanager
def opened_place(
    context: typer.Context,
    place: Place,
    local: Callable[[Database, Settings], Any],
    *,
    create: bool = False,
) -> Iterator[Any]:
    """Yield who answers: a server's client, or what `local` makes of a store's database, which has
    the calls of the client that are needed. Raises as `connect_server`.

    create  as `opened_database` has it
    """
    if place.url is not None:
        refuse_beside_url(context, ("store",))
        with connect_server(place.url, read_key(place.key_file)) as client:
            yield client
        return
    from xylem.base import read_settings

    with opened_database(place.store, create=create) as database:
        yield local(database, read_settings(store=place.store))


def user_name() -> str:
    """Return the name of who runs the command, for the history and the audit log."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"
