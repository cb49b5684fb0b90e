"""Scopes of keys, and the text of a key: `xk_ID_SECRET`.

ID is 12 characters of a-z and 2-7, SECRET 43 of URL-safe base64. The database stores the SHA-256 of
the whole text. A slow hash (argon2, scrypt) is not needed: it protects secrets that people choose,
because an attacker can try all likely ones. A secret of 256 random bits has no likely values: a
fast hash reveals nothing, and is cheap enough to be computed on every request.
"""

import base64
import enum
import hashlib
import ipaddress
import re
import secrets
from typing import Any

from xylem.base.errors import BadParameter
from xylem.base.settings import OPENABLE, Settings


class AccessScope(enum.StrEnum):
    """The scopes that routes require, by their names for `xylem keys create --scope` and JSON."""

    PREDICT = "predict"
    FEEDBACK = "feedback"
    ADMIN = "admin"
    METRICS = "metrics"


ALL_SCOPES = frozenset(AccessScope)


def parse_scopes(names: list[str]) -> frozenset[AccessScope]:
    """Return the scopes of these names. Raises BadParameter for an unknown name, or for none."""
    unknown = [name for name in names if name not in ALL_SCOPES]
    if unknown or not names:
        unknown_text = ", ".join(map(repr, unknown)) or "none"
        raise BadParameter(
            f"scopes: expected some of {', '.join(AccessScope)}, found {unknown_text[:100]}"
        )
    return frozenset(map(AccessScope, names))


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on `host` can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_scopes(settings: Settings) -> frozenset[AccessScope]:
    """Return the scopes that need no key, as `XYLEM_OPEN_SCOPES` lists them.

    If it is not set, the scopes predict, feedback and metrics are open when the server listens on a
    loopback address, and no scope otherwise. `admin` is never open.
    """
    if settings.open_scopes is not None:
        return frozenset(map(AccessScope, settings.open_scopes))
    return frozenset(map(AccessScope, OPENABLE)) if is_loopback(settings.host) else frozenset()


def describe_access(settings: Settings) -> dict[str, Any]:
    """Return the fields of the log line `access`, which is written at the start.

    open     the scopes that need no key
    keys     the scopes that need one
    models   the patterns of the models for which the open scopes need no key, if not for all
    reason   the reason
    """
    keyless_scopes = open_scopes(settings)
    if settings.open_scopes is not None:
        reason = "XYLEM_OPEN_SCOPES"
    else:
        article = "a" if is_loopback(settings.host) else "no"
        reason = f"{settings.host} is {article} loopback address, XYLEM_OPEN_SCOPES is not set"
    return {
        "open": [scope.value for scope in AccessScope if scope in keyless_scopes],
        "keys": [scope.value for scope in AccessScope if scope not in keyless_scopes],
        **({} if settings.open_models is None else {"models": list(settings.open_models)}),
        "because": reason,
    }


PREFIX = "xk_"
_ID_BYTES = 8
_ID_LENGTH = 12

# The position of the id in the text of a key.
ID_PLACE = slice(len(PREFIX), len(PREFIX) + _ID_LENGTH)

_ID = re.compile(rf"[a-z2-7]{{{_ID_LENGTH}}}", re.ASCII)
_TEXT = re.compile(rf"{PREFIX}([a-z2-7]{{{_ID_LENGTH}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_SECRET = re.compile(rf"({PREFIX}[a-z2-7]{{{_ID_LENGTH}}})_[A-Za-z0-9_-]*", re.ASCII)


def make_secret() -> str:
    """Return the text of a new key, to be shown once: 60 random bits of id, 256 of secret."""
    key_id = base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()[:_ID_LENGTH]
    return f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"


def digest_of(text: str) -> bytes:
    """Return the SHA-256 of the text of a key, 32 bytes, which the database stores."""
    return hashlib.sha256(text.encode()).digest()


def id_of(text: str) -> str | None:
    """Return the id in the text of a key; None for any other text."""
    match = _TEXT.fullmatch(text)
    return match[1] if match else None


def is_id(text: str) -> bool:
    """Return whether a text has the form of the id of a key."""
    return _ID.fullmatch(text) is not None


def without_secrets(text: str) -> str:
    """Return a text in which each key is cut to its id."""
    return _SECRET.sub(r"\1", text)
