"""The stores of the service: an alias moves only to a version that this release can serve."""

from pathlib import Path

from xylem.base import XylemError
from xylem_store import NOBODY, Cause, Corrupt, Model, Store, StoreError


def store_of(root: Path, cause: Cause = NOBODY) -> Store:
    """Return the store of a directory, which opens a version as
    servers do before an alias names it.
    """
    return Store(root, cause=cause, check=check_served)


def check_served(model: Model) -> None:
    """Open a version as servers do, and let go of it; its digests and invariants have been checked.

    Raises StoreError, and XylemError where a library is missing that the version needs.
    """
    from xylem.serving.opening import open_version  # commands that move no alias do without

    try:
        open_version(model)
    except (StoreError, XylemError, MemoryError):
        raise
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:200]
        raise Corrupt(
            model.manifest.shown, "a version that this release can serve", fault
        ) from error
