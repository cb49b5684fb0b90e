"""What `/readyz` and the metrics report of the live models."""

from __future__ import annotations

from typing import NamedTuple

from model_store.splits import PARTS, Split


class Pointer(NamedTuple):
    """An alias, the version that it serves now, and what stands beside that; None: nothing."""

    model: str
    alias: str
    version: int
    split: Split | None = None


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
    split = pointer.split or Split(pointer.version)
    roles = [("stable", pointer.version, PARTS - split.weight)]
    if split.canary is not None:
        roles.append(("canary", split.canary, split.weight))
    if split.shadow is not None:
        roles.append(("shadow", split.shadow, split.share))
    return roles
