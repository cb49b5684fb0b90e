"""A split: what stands beside the version that an alias names, a canary, a shadow, or both."""

from __future__ import annotations

from typing import Any, NamedTuple

from model_store.documents import Fields, parse_sealed, render_sealed
from model_store.errors import BadSplit, Corrupt
from model_store.identifiers import VERSION_MAX

PARTS = 10_000
"""Weights and shares are whole numbers of so many parts."""

SPLIT_BYTES_MAX = 4096


class Split(NamedTuple):
    """The versions beside the one that an alias names. It holds for as long as the alias names that one.

    stable  the version that the alias names
    canary  the version that answers some of the requests in its place; None: there is none
    weight  which part of them, 1 to PARTS - 1; 0 without a canary
    shadow  the version that answers some of the requests too, and is never returned; None: there is none
    share   which part of them, 1 to PARTS; 0 without a shadow
    """

    stable: int
    canary: int | None = None
    weight: int = 0
    shadow: int | None = None
    share: int = 0

    @property
    def others(self) -> tuple[int, ...]:
        """Return the versions beside the stable one."""
        return tuple(version for version in (self.canary, self.shadow) if version is not None)

    def roles_of(self, version: int) -> list[str]:
        """Return what a version is besides the stable one: `canary`, `shadow`."""
        roles = {"canary": self.canary, "shadow": self.shadow}
        return [role for role, named in roles.items() if named == version]

    def facts(self) -> dict[str, Any]:
        """Return what JSON says of the versions beside the stable one: their parts as fractions of 1."""
        canary = {"version": self.canary, "weight": self.weight / PARTS}
        shadow = {"version": self.shadow, "share": self.share / PARTS}
        return {
            "canary": None if self.canary is None else canary,
            "shadow": None if self.shadow is None else shadow,
        }

    def check(self) -> None:
        """Raise BadSplit unless versions and parts fit together."""
        weight_max, share_max = PARTS - 1, PARTS
        for role, version, part, most in (
            ("canary", self.canary, self.weight, weight_max),
            ("shadow", self.shadow, self.share, share_max),
        ):
            if version is None and part != 0:
                raise BadSplit(f"{role}: expected a version for its {part} of {PARTS} parts, found none")
            if version is not None and not 1 <= part <= most:
                raise BadSplit(f"{role}: expected 1 to {most} of {PARTS} parts, found {part}")
            if version == self.stable:
                raise BadSplit(f"{role}: expected another version than the alias names, found {version}")
        if not self.others:
            raise BadSplit("expected a canary or a shadow, found neither")


def render_split(split: Split) -> bytes:
    """Return the bytes of a split's file: the document, and the line that proves it whole."""
    return render_sealed(split._asdict())


def parse_split(data: bytes, where: str) -> Split:
    """Return the split in the bytes of its file; raise Corrupt naming `where` for anything else."""
    fields = parse_sealed(data, where)
    split = Split(
        fields.integer("stable", 1, VERSION_MAX),
        _version(fields, "canary"),
        fields.integer("weight", 0, PARTS),
        _version(fields, "shadow"),
        fields.integer("share", 0, PARTS),
    )
    fields.done()
    try:
        split.check()
    except BadSplit as error:
        raise Corrupt(where, "a split", str(error)) from error
    return split


def _version(fields: Fields, name: str) -> int | None:
    found = fields.take(name)
    if found is None:
        return None
    if type(found) is not int or not 1 <= found <= VERSION_MAX:
        raise fields.refusal(name, f"null or an integer from 1 to {VERSION_MAX}", found)
    return found
