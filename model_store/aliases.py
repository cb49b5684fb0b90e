"""An alias: which version it names, and which ones it named before."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from model_store.documents import parse_sealed, render_sealed
from model_store.identifiers import VERSION_MAX

HISTORY_MAX = 32
"""How many earlier versions an alias remembers."""

ALIAS_BYTES_MAX = 4096


class Alias(NamedTuple):
    """The version that an alias names now, and the ones that it named before, the last one last."""

    version: int
    history: tuple[int, ...]

    def moved(self, version: int) -> Alias:
        """Return the alias after it was made to name `version`."""
        if version == self.version:
            return self
        return Alias(version, (*self.history, self.version)[-HISTORY_MAX:])

    def back(self, versions: Container[int], to: int | None = None) -> Alias | None:
        """Return the alias a step back, or where it last named `to`; None where there is no such step.

        Only `versions`, those that are there, are gone back to, and never the one that it names now.
        """
        there = [version for version in self.history if version in versions and version != self.version]
        places = [i for i, version in enumerate(there) if to in (None, version)]
        return Alias(there[places[-1]], tuple(there[: places[-1]])) if places else None


def render_alias(alias: Alias) -> bytes:
    """Return the bytes of an alias's file: the document, and the line that proves it whole."""
    return render_sealed({"history": alias.history, "version": alias.version})


def parse_alias(data: bytes, where: str) -> Alias:
    """Return the alias in the bytes of its file; raise Corrupt naming `where` for anything else."""
    fields = parse_sealed(data, where)
    version = fields.integer("version", 1, VERSION_MAX)
    history = fields.take("history")
    fields.done()
    well_formed = (
        type(history) is list
        and len(history) <= HISTORY_MAX
        and all(type(item) is int and 1 <= item <= VERSION_MAX for item in history)
    )
    if not well_formed:
        raise fields.refusal("history", f"at most {HISTORY_MAX} version numbers", history)
    return Alias(version, tuple(history))
