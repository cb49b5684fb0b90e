"""What JSON says of the registry: the same over HTTP and on the command line."""

from __future__ import annotations

import datetime
from typing import Any

from model_store.splits import Split
from service.registry.denials import Denial
from service.registry.history import AliasChange
from service.registry.registry import AliasMove, SplitMove


def move_facts(move: AliasMove) -> dict[str, Any]:
    """Return what JSON says of a move that was just made."""
    return {
        "model": move.model,
        "alias": move.alias,
        "version": move.now,
        "previous_version": move.before,
        "recorded": move.recorded,
    }


def split_facts(move: SplitMove) -> dict[str, Any]:
    """Return what JSON says of a split that was just changed."""
    split = move.split or Split(move.version)
    return {
        "model": move.model,
        "alias": move.alias,
        "version": move.version,
        **split.facts(),
        "recorded": move.recorded,
    }


def denial_facts(denial: Denial) -> dict[str, Any]:
    """Return what JSON says of what an alias denies."""
    return {**denial._asdict(), "labels": list(denial.labels), "unknown": list(denial.unknown)}


def change_facts(change: AliasChange) -> dict[str, Any]:
    """Return what JSON says of a row of the history; the time as RFC 3339."""
    at = datetime.datetime.fromtimestamp(change.at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**change._asdict(), "at": at}
