"""Changes of aliases past the registry, as tests make them."""

from collections.abc import Iterable
from pathlib import Path

from xylem_store.alias import Alias, Beside, denying
from xylem_store.identifiers import ALIASES, LATEST, MODELS, alias_file
from xylem_store.moves import DENIED, SPLIT
from xylem_store.store import Store


def deny(store: Store, model: str, labels: Iterable[str], alias: str = LATEST) -> None:
    """Have an alias deny these labels and no other."""
    names = list(labels)
    store.change_alias(model, alias, DENIED, denying(lambda _: names))


Parts = tuple[int, int] | None  # a version and its parts


def split(
    store: Store, model: str, canary: Parts = None, shadow: Parts = None, alias: str = LATEST
) -> None:
    """Have these versions stand beside the one that an alias names, and no other."""

    def change(now: Alias) -> Alias:
        return now._replace(canary=canary and Beside(*canary), shadow=shadow and Beside(*shadow))

    store.change_alias(model, alias, SPLIT, change)


def file_of(store: Store, model: str, alias: str = LATEST) -> Path:
    """Return the file of an alias's document, which may be written to."""
    file = store.root / MODELS / model / ALIASES / alias_file(alias)
    file.chmod(0o644)
    return file
