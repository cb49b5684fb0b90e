"""Which version answers a request to an alias with a canary, and of which requests its shadow hears."""

from __future__ import annotations

import hashlib
from typing import Generic, NamedTuple, TypeVar

from model_store.alias import PARTS, Alias, Beside

T = TypeVar("T")

KEY_HEADER = "xylem-canary-key"
"""The header of a request that says whose it is: requests of one key are answered by one version."""


class Chooser:
    """Says of keys whether they are among a part of all of them; the same in every process.

    A key has a point between 0 and 1, which depends on the version too, so that not the same users try every
    canary. It is among the part if its point lies below it: a part that grows loses no key.
    """

    def __init__(self, role: str, model: str, version: int, part: int) -> None:
        """Take a part of PARTS; the points are those of a role (canary, shadow) of a version."""
        self._begun = hashlib.blake2b(f"{role} {model}@{version}\n".encode(), digest_size=8)
        self._below = (part << 64) // PARTS

    def takes(self, key: bytes) -> bool:
        """Return whether a key is among the part."""
        point = self._begun.copy()
        point.update(key)
        return int.from_bytes(point.digest(), "big") < self._below


class ChosenVersion(NamedTuple, Generic[T]):
    """What answers a request, and the shadow that is to answer a copy of it, if any."""

    served: T
    shadow: T | None = None


class LiveSplit(NamedTuple, Generic[T]):
    """What answers requests to an alias besides the version that it names: a canary, a shadow, or both."""

    canary: T | None
    shadow: T | None
    canary_of: Chooser
    shadow_of: Chooser

    def choose(self, stable: T, key: bytes) -> ChosenVersion[T]:
        """Return what answers the requests of a key; `stable` is what the alias names."""
        is_canary = self.canary is not None and self.canary_of.takes(key)
        hears = self.shadow is not None and self.shadow_of.takes(key)
        return ChosenVersion(
            self.canary if is_canary and self.canary else stable, self.shadow if hears else None
        )


def live_split(model: str, alias: Alias, canary: T | None, shadow: T | None) -> LiveSplit[T]:
    """Return what serves the canary and the shadow of an alias, each None where there is none."""
    canary_of = Chooser("canary", model, *(alias.canary or Beside(0, 0)))
    return LiveSplit(canary, shadow, canary_of, Chooser("shadow", model, *(alias.shadow or Beside(0, 0))))
