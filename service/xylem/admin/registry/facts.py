"""The JSON of the registry: the same over HTTP and on the command line."""

import datetime
from typing import Any

from xylem_store import DENIED, SPLIT, Move, Store, content_digest, read_origin


def history_facts(model: str, move: Move) -> dict[str, Any]:
    """Return the JSON of a move; its time is RFC 3339."""
    return {
        **move._asdict(),
        "model": model,
        "at": datetime.datetime.fromtimestamp(move.at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def provenance(store: Store, model: str, ref: str | int) -> dict[str, Any]:
    """Return the JSON of where a version, by number or alias, came from.

    `content` is its digest, which does not depend on its name; `parent`, `job`, `rule` and
    `calibration` are fields of its origin (`xylem_store.origin`), null if the origin lacks them;
    `promotions` are the moves of aliases to it, and refused moves, with their verdicts, the newest
    first.

    The arrays are not verified, and only the origin is read. Raises NotFound, Corrupt and
    StoreUnreadable.
    """
    opened = store.open(model, ref, verify=False)
    manifest = opened.manifest
    origin = read_origin(opened.arrays)
    moves = [move for move in reversed(store.moves(model)) if move.to_version == manifest.version]
    return {
        "model": manifest.model,
        "version": manifest.version,
        "created": manifest.created_at,
        "content": content_digest(manifest),
        "code_version": manifest.code_version,
        "trainer": {"name": manifest.trainer.name, "parameters": dict(manifest.trainer.parameters)},
        "features": dict(manifest.features),
        "seed": manifest.seed,
        "data": manifest.data._asdict(),
        "metrics": dict(manifest.metrics),
        **{name: origin.get(name) for name in ("parent", "job", "rule", "calibration")},
        "promotions": [
            history_facts(model, move) for move in moves if move.action not in (SPLIT, DENIED)
        ],
    }
