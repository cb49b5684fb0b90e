"""Names of models and aliases, numbers of versions, and where things are in a store (FORMAT.md).

They are checked before any path is built from them.
"""

import re

from xylem_store.errors import InvalidName

VERSION_MAX = 999_999_999

# Patterns of names of models and aliases, and of version numbers in their only spelling.
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
ALIAS = rf"(?![0-9]+\Z){NAME_PATTERN}"
VERSION = r"[1-9][0-9]{0,8}"

# Compiled once: a look at 10,000 models matches 70,000 names.
_match_model = re.compile(NAME_PATTERN, re.ASCII).fullmatch
_match_alias = re.compile(ALIAS, re.ASCII).fullmatch
_match_version = re.compile(VERSION, re.ASCII).fullmatch

_GRAMMAR = "1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit"


def is_model(name: str) -> bool:
    """Return whether a model may have this name."""
    return _match_model(name) is not None


def is_alias(name: str) -> bool:
    """Return whether an alias may have this name: as for a model, but not digits only."""
    return _match_alias(name) is not None


def is_version(text: str) -> bool:
    """Return whether this is a version number in its only spelling."""
    return _match_version(text) is not None


def check_model(name: object) -> str:
    """Return the name. Raises InvalidName unless a model may have it."""
    if not isinstance(name, str) or not is_model(name):
        raise InvalidName(f"model name: expected {_GRAMMAR}, found {_excerpt(name)}")
    return name


def check_alias(name: object) -> str:
    """Return the name. Raises InvalidName unless an alias may have it."""
    if not isinstance(name, str) or not is_alias(name):
        raise InvalidName(
            f"alias: expected {_GRAMMAR}, and not digits only, found {_excerpt(name)}"
        )
    return name


def check_version(version: object) -> int:
    """Return the number. Raises InvalidName unless a version may have it."""
    if type(version) is not int or not 1 <= version <= VERSION_MAX:
        raise InvalidName(f"version: expected 1 to {VERSION_MAX}, found {_excerpt(version)}")
    return version


def parse_ref(ref: object) -> str | int:
    """Return the version number or the alias that `ref` is. Raises InvalidName if it is neither."""
    if isinstance(ref, str):
        return int(ref) if is_version(ref) else check_alias(ref)
    return check_version(ref)


def parse_named(text: str) -> tuple[str, str | int]:
    """Return the model and the version or alias of "NAME" or "NAME@VERSION". Raises InvalidName."""
    name, separator, version = text.partition("@")
    return check_model(name), parse_ref(version) if separator else LATEST


def _excerpt(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"


LATEST = "latest"  # the alias that every publication moves

MODELS = "models"
VERSIONS = "versions"
ALIASES = "aliases"
LAST = "last_version"
MOVES = "moves"
JOURNAL = "changes"

_SUFFIX = ".json"


def alias_file(alias: str) -> str:
    """Return the name of the file of an alias's document."""
    return alias + _SUFFIX


def alias_in(file: str) -> str | None:
    """Return the alias whose document is in a file of this name, None for other files."""
    alias = file.removesuffix(_SUFFIX)
    return alias if alias != file and is_alias(alias) else None
