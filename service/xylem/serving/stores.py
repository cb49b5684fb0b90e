"""The stores of the service. Their aliases move only to versions that this release can serve."""

from pathlib import Path

from xylem.base import XylemError
from xylem_store import Cause, Corrupt, Model, Store, StoreError


def store_of(root: Path, cause: Cause = Cause()) -> Store:
    """Return the store of a directory, which tries to open a version before an alias may name it.

    cause   the person, process or job that changes the store, for its log
    """
    return Store(root, cause=cause, check=check_served)


def check_served(model: Model) -> None:
    """Open a version as servers do, and close it. Its digests and invariants have been checked.

    Raises StoreError, and XylemError if the version needs a library that is missing.
    """
    from xylem.serving.live.opening import open_version  # slow; only needed to move an alias

    try:
        open_version(model)
    except (StoreError, XylemError, MemoryError):
        raise
    except Exception as error:
        raise Corrupt(
            model.manifest.full_name,
            "a version that this release can serve",
            f"{type(error).__name__}: {error}"[:200],
        ) from error
