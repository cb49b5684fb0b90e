"""Where in a store things are: see FORMAT.md."""

from __future__ import annotations

from model_store.identifiers import is_alias

LATEST = "latest"
"""The alias that every publication moves."""

MODELS, VERSIONS, ALIASES = "models", "versions", "aliases"
LAST, MOVES = "last_version", "moves"

_SUFFIX = ".json"


def alias_file(alias: str) -> str:
    """Return the name of the file that an alias's document is in."""
    return alias + _SUFFIX


def alias_in(file: str) -> str | None:
    """Return the alias whose document is in a file of this name, None where it is another file."""
    alias = file.removesuffix(_SUFFIX)
    return alias if alias != file and is_alias(alias) else None
