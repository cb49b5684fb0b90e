"""The database of a store: the one that the settings name, else a file beside the store."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from xylem.base.db.names import FILE_NAME

if TYPE_CHECKING:
    from xylem.base.db.engine import Database


@contextmanager
def opened_database(store: Path, *, create: bool = False) -> "Iterator[Database]":
    """Yield the database of a store, and close it at the end.

    If the store has no database, and `create` is false, an empty one in a temporary directory is
    yielded.

    create  whether a missing database is made beside the store

    Raises BadParameter for a URL that cannot be used.
    """
    from xylem.base.db.engine import Database, default_url
    from xylem.base.settings import read_settings

    url = read_settings().database_url
    with ExitStack() as stack:
        if not (create or is_there(store, url)):
            store = Path(stack.enter_context(TemporaryDirectory(prefix="xylem-")))
        yield stack.enter_context(closing(Database(url or default_url(store))))


@contextmanager
def ready_database(store: Path) -> "Iterator[Database]":
    """Yield the database of a store, made if there is none, after it has answered once.

    Raises BadParameter and DatabaseUnavailable.
    """
    with opened_database(store, create=True) as database:
        with database.read():
            pass
        yield database


def is_there(store: Path, url: str | None) -> bool:
    """Return whether a store has a database, at a URL or beside it."""
    return url is not None or (store / FILE_NAME).exists()
