"""What JSON says of the registry: the same over HTTP and on the command line."""

from __future__ import annotations

import datetime
from typing import Any

from model_store.alias import Alias
from model_store.alias_writing import AliasChange
from model_store.moves import Move
from service.registry.denials import Denial


def move_facts(change: AliasChange) -> dict[str, Any]:
    """Return what JSON says of what an alias names now, and named before."""
    named = {"version": change.now, "previous_version": change.before.version or None}
    return {"model": change.model, "alias": change.alias, **named, "recorded": True}


def split_facts(change: AliasChange) -> dict[str, Any]:
    """Return what JSON says of what stands beside the version that an alias names now."""
    split = (change.after or Alias(0)).split()
    return {"model": change.model, "alias": change.alias, "version": change.now, **split, "recorded": True}


def denial_facts(denial: Denial) -> dict[str, Any]:
    """Return what JSON says of what an alias denies."""
    return {**denial._asdict(), "labels": list(denial.labels), "unknown": list(denial.unknown)}


def history_facts(model: str, move: Move) -> dict[str, Any]:
    """Return what JSON says of a move; the time as RFC 3339."""
    at = datetime.datetime.fromtimestamp(move.at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**move._asdict(), "model": model, "at": at}
