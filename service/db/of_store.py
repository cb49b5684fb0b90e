"""The database of a store: the one of the settings, else beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from service.db import FILE_NAME

if TYPE_CHECKING:
    from service.db.engine import Database


@contextmanager
def opened_database(store: Path, *, create: bool) -> Iterator[Database | None]:
    """Yield the database of a store, closed in the end; None when it is not there and `create` is not asked.

    Raises BadParameter for a URL that cannot be used.
    """
    from service.base.settings import read_settings
    from service.db.engine import Database, default_url

    url = read_settings().database_url
    if not create and not is_there(store, url):
        yield None
        return
    database = Database(url or default_url(store))
    try:
        yield database
    finally:
        database.close()


@contextmanager
def ready_database(store: Path) -> Iterator[Database]:
    """Yield the database of a store, made where it is not there, which answers and can be written to.

    Raises BadParameter and DatabaseUnavailable.
    """
    with opened_database(store, create=True) as database:
        assert database is not None
        with database.read():
            pass
        yield database


def is_there(store: Path, url: str | None) -> bool:
    """Tell whether a store has a database, at a URL or beside it."""
    return url is not None or (store / FILE_NAME).exists()
