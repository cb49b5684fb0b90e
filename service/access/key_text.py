"""The text of a key: `xk_ID_SECRET`, ID 12 of a-z and 2-7, SECRET 43 characters of URL-safe base64.

What is kept is the SHA-256 of the whole text. No slow hash (argon2, scrypt): those make up for secrets that
people choose, of which an attacker can try all likely ones. A secret of 256 random bits has no likely ones: a
fast hash gives nothing away, and is checked on every request.
"""

import base64
import hashlib
import re
import secrets

PREFIX = "xk_"
_ID_BYTES = 8
_ID_LENGTH = 12
ID_PLACE = slice(len(PREFIX), len(PREFIX) + _ID_LENGTH)
"""Where in the text of a key its id stands."""

_ID = re.compile(rf"[a-z2-7]{{{_ID_LENGTH}}}", re.ASCII)
_TEXT = re.compile(rf"{PREFIX}([a-z2-7]{{{_ID_LENGTH}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_SECRET = re.compile(rf"({PREFIX}[a-z2-7]{{{_ID_LENGTH}}})_[A-Za-z0-9_-]*", re.ASCII)


def make_secret() -> str:
    """Return the text of a new key, which is shown once: 60 random bits of id, 256 of secret."""
    key_id = base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()[:_ID_LENGTH]
    return f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"


def digest_of(text: str) -> bytes:
    """Return what is kept of the text of a key: 32 bytes."""
    return hashlib.sha256(text.encode()).digest()


def id_of(text: str) -> str | None:
    """Return the id within the text of a key, None for any other text."""
    found = _TEXT.fullmatch(text)
    return found[1] if found else None


def is_id(text: str) -> bool:
    """Return whether this is what the id of a key may be."""
    return _ID.fullmatch(text) is not None


def without_secrets(text: str) -> str:
    """Return a text, of the keys in it the ids alone."""
    return _SECRET.sub(r"\1", text)
