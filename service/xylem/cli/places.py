"""The place that a command works on: a store with its database, or a server (`--url`)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Context, Option

import xylem_store
from xylem import base, client, serving
from xylem.cli.options import DEFAULT_STORE, StoreDir, in_panel, parse_reference

KEY_VARIABLE = "XYLEM_KEY"
_KEY_BYTES_MAX = 4096


@in_panel("Server", common=("store",))
class Place(NamedTuple):
    """The options for the place of the models: a store, or with `url` a server."""

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


def open_model(store: Path, model: str) -> "xylem_store.Model":
    """Return the opened version for NAME[@VERSION]. Raises BadParameter, StoreError."""
    return serving.store_of(store).open(*parse_reference(model))


def read_key(file: Path | None) -> str | None:
    """Return the key in a file, else in the environment, else None. Raises BadParameter."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with file.open("rb") as stream:
            content = stream.read(_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise base.BadParameter(
            f"--key-file: expected to read {file}, found: {error.strerror}"
        ) from None
    lines = content.split()
    if len(lines) != 1 or len(content) > _KEY_BYTES_MAX or not content.isascii():
        raise base.BadParameter(
            f"--key-file: expected a key and nothing else in {file}, found another content"
        )
    return lines[0].decode()


def refuse_beside_url(context: Context, names: tuple[str, ...]) -> None:
    """Raise BadParameter if one of these options is used together with `--url`."""
    for name in names:
        if (
            source := context.get_parameter_source(name)
        ) is not None and source.name == "COMMANDLINE":
            raise base.BadParameter(f"--{name} cannot be used with --url")


@contextmanager
def connect_server(url: str, key: str | None) -> "Iterator[client.Client]":
    """Yield a client of a server, closed at the end.

    Raises BadInput if the server refuses (4xx), Unavailable if it fails or does not answer, and
    BadParameter for a URL, a key or an argument that cannot be used.
    """
    from xylem.errors import ClientError, ProblemError

    try:
        opened_client = client.Client(url, key)
    except ValueError as error:
        raise base.BadParameter(f"--{error}") from None
    with opened_client:
        try:
            yield opened_client
        except ProblemError as error:
            kind = base.BadInput if 400 <= error.status < 500 else base.Unavailable
            raise kind(f"{url}: {error}") from None
        except ClientError as error:
            raise base.Unavailable(f"{url}: {error}") from None
        except ValueError as error:
            raise base.BadParameter(str(error)) from None


@contextmanager
def opened_learning(store: Path, *, create: bool) -> "Iterator[serving.OnlineLearning | None]":
    """Yield the part that learns from feedback and signs prediction ids.

    It is None if there is no database, unless `create`. It logs nothing: the command reports its
    errors. Raises BadParameter as `opened_database` does.
    """

    settings = base.read_settings(store=store)
    if not create and not base.is_there(store, settings.database_url):
        yield None
        return

    base.configure("critical")
    learning = serving.OnlineLearning(settings)
    try:
        yield learning
    finally:
        learning.close()


@contextmanager
def opened_place(
    context: Context,
    place: Place,
    local: "Callable[[base.Database, base.Settings], Any]",
    *,
    create: bool = False,
) -> Iterator[Any]:
    """Yield a server's client, or its local counterpart for a store's database.

    local   makes the counterpart, which has those methods of the client that the command calls
    create  as in `opened_database`

    Raises as `connect_server`.
    """
    if place.url is not None:
        refuse_beside_url(context, ("store",))
        with connect_server(place.url, read_key(place.key_file)) as opened_client:
            yield opened_client
        return

    with base.opened_database(place.store, create=create) as database:
        yield local(database, base.read_settings(store=place.store))


def user_name() -> str:
    """Return the name of the user of this command, for the history and the audit log."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return f"uid {os.getuid()}"
