"""Who may call `/v1/admin`: those with the admin key; nobody where none is set."""

from __future__ import annotations

import hashlib
import hmac

from pydantic import SecretStr
from starlette.types import Scope

from service.api.door.problems import Unauthorized

_HASHED = "sha256:"


class AdminKey:
    """The admin key, kept as its SHA-256; None: no request has it."""

    def __init__(self, key: SecretStr | None) -> None:
        text = "" if key is None else key.get_secret_value()
        is_hash = text.startswith(_HASHED)
        self._digest = text.removeprefix(_HASHED).lower() if is_hash else _digest(text.encode())
        self._is_set = bool(text)

    def check(self, scope: Scope) -> None:
        """Raise Unauthorized unless the request brings the key: `Authorization: Bearer KEY`."""
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                given = value
        scheme, _, key = given.partition(b" ")
        is_right = hmac.compare_digest(_digest(key.strip()), self._digest)
        if not (is_right and scheme.lower() == b"bearer" and self._is_set):
            raise Unauthorized("expected Authorization: Bearer and the admin key (XYLEM_ADMIN_KEY)")


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
