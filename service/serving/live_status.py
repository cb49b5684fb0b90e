"""What `/readyz` and the metrics report of the live models."""

from __future__ import annotations

from typing import NamedTuple

from model_store.alias import PARTS, Alias


class Pointer(NamedTuple):
    """An alias as it is served: by the version that it names, or an earlier one."""

    model: str
    name: str
    alias: Alias


class Failure(NamedTuple):
    """A version, an alias or label info that cannot be served as the store has it.

    ref        the version's number or the alias's name, or "label_info"
    retry_at   when it is tried again, by time.monotonic
    """

    model: str
    ref: str
    detail: str
    retry_at: float


class LiveStatus(NamedTuple):
    """What is served, and what is not.

    swaps  aliases moved since the start
    """

    pointers: list[Pointer]
    failures: list[Failure]
    swaps: int
    store_error: str | None


def roles_of(pointer: Pointer) -> list[tuple[str, int, int]]:
    """Return the role, the version and the part, of PARTS, of each version that answers for an alias."""
    alias = pointer.alias
    canary, shadow = alias.canary, alias.shadow
    roles = [("stable", alias.version, PARTS - (0 if canary is None else canary.parts))]
    if canary is not None:
        roles.append(("canary", *canary))
    if shadow is not None:
        roles.append(("shadow", *shadow))
    return roles
