"""The database as commands find it: the one of the settings, else beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.db.engine import Database
    from service.serving.learning import OnlineLearning


@contextmanager
def opened_database(store: Path, *, create: bool) -> Iterator[Database | None]:
    """Yield the database of a store, closed in the end; None when it is not there and `create` is not asked.

    Raises BadParameter for a URL that cannot be used.
    """
    from service.db.engine import Database, default_url
    from service.settings import read_settings

    url = read_settings().database_url
    if not create and not _is_there(store, url):
        yield None
        return
    database = Database(url or default_url(store))
    try:
        yield database
    finally:
        database.close()


@contextmanager
def opened_learning(store: Path, *, create: bool) -> Iterator[OnlineLearning | None]:
    """Yield what learns from feedback and signs prediction ids; None where `opened_database` yields None.

    It logs nothing: what fails is for the command to say. Raises BadParameter as `opened_database` does.
    """
    from service.logs import configure
    from service.serving.learning import OnlineLearning
    from service.settings import read_settings

    settings = read_settings(store=store)
    if not create and not _is_there(store, settings.database_url):
        yield None
        return
    configure("critical")
    learning = OnlineLearning(settings)
    try:
        yield learning
    finally:
        learning.close()


def user_name() -> str:
    """Return the name of who runs the command, for the history and the audit log."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def _is_there(store: Path, url: str | None) -> bool:
    from service.db.engine import FILE_NAME

    return url is not None or (store / FILE_NAME).exists()
