"""Change aliases in the store directly, not through the registry."""

from collections.abc import Iterable
from pathlib import Path

from xylem_store.alias import Alias, TrafficShare, denying
from xylem_store.identifiers import ALIASES, LATEST, MODELS, alias_file
from xylem_store.moves import DENIED, SPLIT
from xylem_store.store import Store


def deny(store: Store, model: str, labels: Iterable[str], alias: str = LATEST) -> None:
    """Set the labels that an alias denies; others are no longer denied."""
    names = list(labels)
    store.change_alias(model, alias, DENIED, denying(lambda _: names))


Parts = tuple[int, int] | None  # (version, its parts of the traffic)


def split(
    store: Store, model: str, canary: Parts = None, shadow: Parts = None, alias: str = LATEST
) -> None:
    """Set the canary and the shadow version of an alias; None: the alias has none."""

    def change(now: Alias) -> Alias:
        return now._replace(
            canary=canary and TrafficShare(*canary), shadow=shadow and TrafficShare(*shadow)
        )

    store.change_alias(model, alias, SPLIT, change)


def file_of(store: Store, model: str, alias: str = LATEST) -> Path:
    """Return the file of an alias's document, after it was made writable."""
    file = store.root / MODELS / model / ALIASES / alias_file(alias)
    file.chmod(0o644)
    return file
