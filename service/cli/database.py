"""The database as commands find it: the one of the settings, else beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from service.db.of_store import is_there

if TYPE_CHECKING:
    from service.serving.learning import OnlineLearning


@contextmanager
def opened_learning(store: Path, *, create: bool) -> Iterator[OnlineLearning | None]:
    """Yield what learns from feedback and signs prediction ids; None where `opened_database` yields None.

    It logs nothing: what fails is for the command to say. Raises BadParameter as `opened_database` does.
    """
    from service.base.logs import configure
    from service.base.settings import read_settings
    from service.serving.learning import OnlineLearning

    settings = read_settings(store=store)
    if not create and not is_there(store, settings.database_url):
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
