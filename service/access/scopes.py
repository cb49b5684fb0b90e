"""What keys open, and what needs no key."""

import enum
import ipaddress
from typing import Any

from service.base.errors import BadParameter
from service.base.settings import OPENABLE, Settings


class AccessScope(enum.StrEnum):
    """What a route asks for. Values are those of `xylem keys create --scope` and of JSON."""

    PREDICT = "predict"
    FEEDBACK = "feedback"
    ADMIN = "admin"
    METRICS = "metrics"


ALL_SCOPES = frozenset(AccessScope)


def parse_scopes(names: list[str]) -> frozenset[AccessScope]:
    """Return the scopes of their names, at least one. Raises BadParameter."""
    unknown = [name for name in names if name not in ALL_SCOPES]
    if unknown or not names:
        found = ", ".join(map(repr, unknown)) or "none"
        raise BadParameter(f"scopes: expected some of {', '.join(AccessScope)}, found {found[:100]}")
    return frozenset(map(AccessScope, names))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_scopes(settings: Settings) -> frozenset[AccessScope]:
    """Return the scopes that need no key: those of `XYLEM_OPEN_SCOPES`.

    Where that is not set: predict, feedback and metrics when the server listens on a loopback address, else
    none. `admin` is never among them.
    """
    if settings.open_scopes is not None:
        return frozenset(map(AccessScope, settings.open_scopes))
    return frozenset(map(AccessScope, OPENABLE)) if is_loopback(settings.host) else frozenset()


def describe_access(settings: Settings) -> dict[str, Any]:
    """Return the fields of the one line that is logged at the start, as the event `access`.

    open  the scopes that need no key; keys: those that do; because: why it is so
    """
    opened = open_scopes(settings)
    if settings.open_scopes is not None:
        because = "XYLEM_OPEN_SCOPES"
    else:
        kind = "a loopback address" if is_loopback(settings.host) else "no loopback address"
        because = f"{settings.host} is {kind}, XYLEM_OPEN_SCOPES is not set"
    return {
        "open": [scope.value for scope in AccessScope if scope in opened],
        "keys": [scope.value for scope in AccessScope if scope not in opened],
        "because": because,
    }
