"""The calls for admins: aliases, versions, archives, keys, the audit log.

Their answers are objects as the server gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from xylem.calls import dumped, query
from xylem.errors import BadAnswer
from xylem.steps import JSON, Call, Request
from xylem.target import segment

JsonObject: TypeAlias = dict[str, Any]


def _object(body: bytes) -> JsonObject:
    """Return the object of an answer; an empty one for an answer without a body. Raises BadAnswer."""
    try:
        found = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("expected a JSON object, found another answer")
    return found


def _post(path: str, fields: Mapping[str, Any]) -> Call[JsonObject]:
    given = {name: value for name, value in fields.items() if value is not None}
    return Call(Request("POST", path, dumped(given), JSON), _object)


def _get(path: str) -> Call[JsonObject]:
    return Call(Request("GET", path, repeatable=True), _object)


def _model(name: str) -> str:
    return f"/v1/admin/models/{segment(name, 'model')}"


def promote(model: str, version: int | None, alias: str, reason: str | None) -> Call[JsonObject]:
    """Make an alias name a version; None: its canary."""
    return _post(f"{_model(model)}/promote", {"version": version, "alias": alias, "reason": reason})


def rollback(model: str, alias: str, to: int | None, reason: str | None) -> Call[JsonObject]:
    """Make an alias name the version that it named before, or a given one."""
    return _post(f"{_model(model)}/rollback", {"alias": alias, "to": to, "reason": reason})


def put_canary(model: str, version: int, weight: float, alias: str, reason: str | None) -> Call[JsonObject]:
    """Have a version answer a part of the requests to an alias."""
    return _put_beside(model, alias, "canary", {"version": version, "weight": weight, "reason": reason})


def put_shadow(model: str, version: int, share: float, alias: str, reason: str | None) -> Call[JsonObject]:
    """Have a version answer a part of the requests to an alias besides, without being returned."""
    return _put_beside(model, alias, "shadow", {"version": version, "share": share, "reason": reason})


def end_beside(model: str, alias: str, role: str) -> Call[JsonObject]:
    """End the canary or the shadow of an alias, or deny no labels of it any more."""
    return Call(Request("DELETE", _beside(model, alias, role)), _object)


def denied(model: str, alias: str) -> Call[JsonObject]:
    """Return the labels that answers of an alias never have."""
    return _get(_beside(model, alias, "denied"))


def put_denied(model: str, labels: Sequence[str], alias: str, reason: str | None) -> Call[JsonObject]:
    """Have answers of an alias never have these labels."""
    return _put_beside(model, alias, "denied", {"labels": list(labels), "reason": reason})


def _put_beside(model: str, alias: str, role: str, fields: Mapping[str, Any]) -> Call[JsonObject]:
    given = {name: value for name, value in fields.items() if value is not None}
    return Call(Request("PUT", _beside(model, alias, role), dumped(given), JSON), _object)


def _beside(model: str, alias: str, role: str) -> str:
    return f"{_model(model)}/aliases/{segment(alias, 'alias')}/{role}"


def history(model: str, alias: str | None, before: int | None, limit: int | None) -> Call[JsonObject]:
    """Return what the aliases of a model named, and who changed them."""
    return _get(f"{_model(model)}/history{query(alias=alias, before=before, limit=limit)}")


def delete_model(model: str, confirm: str) -> Call[JsonObject]:
    """Delete a model; `confirm` is its name once more."""
    return Call(Request("DELETE", f"{_model(model)}{query(confirm=confirm)}"), _object)


def delete_version(model: str, version: int, *, with_aliases: bool) -> Call[JsonObject]:
    """Delete a version, and with it, if asked to, the aliases that name it."""
    asked = query(with_aliases=True if with_aliases else None)
    return Call(Request("DELETE", f"{_model(model)}/versions/{int(version)}{asked}"), _object)


def delete_alias(model: str, alias: str) -> Call[JsonObject]:
    """Remove an alias."""
    return Call(Request("DELETE", f"{_model(model)}/aliases/{segment(alias, 'alias')}"), _object)


def archive_path(model: str, version: int | None) -> str:
    """Return the path of a model's archive."""
    return f"{_model(model)}/archive{query(version=version)}"


def import_archive(model: str, file: Path) -> Call[JsonObject]:
    """Publish an exported archive as a new version."""
    headers = (("content-type", "application/x-tar"),)
    return Call(Request("POST", f"{_model(model)}/archive", file, headers), _object)


def audit(before: int | None, limit: int | None) -> Call[JsonObject]:
    """Return the log of what admins did."""
    return _get(f"/v1/admin/audit{query(before=before, limit=limit)}")


def keys() -> Call[JsonObject]:
    """List the keys, which are not shown."""
    return _get("/v1/admin/keys")


def create_key(fields: Mapping[str, Any]) -> Call[JsonObject]:
    """Make a key, which the answer shows once."""
    return _post("/v1/admin/keys", fields)


def rotate_key(key_id: str, overlap_seconds: float, lifetime_seconds: float | None) -> Call[JsonObject]:
    """Make the next key of the same name and scopes, which the answer shows once."""
    fields = {"overlap_seconds": overlap_seconds, "lifetime_seconds": lifetime_seconds}
    return _post(f"/v1/admin/keys/{segment(key_id, 'key')}/rotate", fields)


def revoke_key(key_id: str) -> Call[JsonObject]:
    """Revoke a key."""
    return Call(Request("DELETE", f"/v1/admin/keys/{segment(key_id, 'key')}"), _object)
