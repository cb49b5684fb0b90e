"""Which version answers a request to an alias with a canary, and of which requests its shadow hears."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from model_store.splits import PARTS, Split
from model_store.store import ModelInfo
from service.logs import log

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
    """What answers the requests to an alias besides the version that it names: a canary, a shadow, or both.

    split  as it is served: without a version that cannot be opened
    """

    split: Split
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


def live_split(model: str, split: Split, canary: T | None, shadow: T | None) -> LiveSplit[T] | None:
    """Return what serves a split; None where neither canary nor shadow is open."""
    if canary is None:
        split = split._replace(canary=None, weight=0)
    if shadow is None:
        split = split._replace(shadow=None, share=0)
    if not split.others:
        return None
    canary_of = Chooser("canary", model, split.canary or 0, split.weight)
    shadow_of = Chooser("shadow", model, split.shadow or 0, split.share)
    return LiveSplit(split, canary, shadow, canary_of, shadow_of)


def live_splits(
    infos: Sequence[ModelInfo],
    pointers: Mapping[tuple[str, str], int],
    opened: Callable[[tuple[str, int]], T | None],
    view: Callable[[str, str, T], T],
    fail: Callable[[str, str, str], object],
) -> dict[tuple[str, str], LiveSplit[T]]:
    """Return what serves the splits of aliases, open once what the aliases name is.

    opened  opens a version, None where that cannot be
    view    returns what serves a version under a model's alias
    fail    is told of each model, alias and fault
    """
    splits: dict[tuple[str, str], LiveSplit[T]] = {}
    for info in infos:
        for alias in info.broken_splits:
            fail(info.name, alias, "the file of its split is damaged")
        for alias, split in info.splits.items():
            if pointers.get((info.name, alias)) != split.stable:
                continue  # the version cannot be opened: the one before it answers alone
            beside: list[T | None] = []
            for version in (split.canary, split.shadow):
                served = None if version is None else opened((info.name, version))
                beside.append(None if served is None else view(info.name, alias, served))
            found = live_split(info.name, split, *beside)
            if found is not None:
                splits[info.name, alias] = found
    return splits


def log_splits(
    before: Mapping[tuple[str, str], LiveSplit[Any]], now: Mapping[tuple[str, str], LiveSplit[Any]]
) -> None:
    """Log the aliases whose canary or shadow came, changed or went."""
    for model, alias in sorted(before.keys() | now.keys()):
        old, new = before.get((model, alias)), now.get((model, alias))
        if (old and old.split) != (new and new.split):
            beside = {"canary": None, "shadow": None} if new is None else new.split.facts()
            log(logging.INFO, "model_split", model=model, alias=alias, **beside)
