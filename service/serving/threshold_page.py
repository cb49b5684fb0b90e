"""The thresholds of a version, some labels at a time, and what they rest on."""

from __future__ import annotations

import numpy as np

from model_store.names import name_of
from service.base.errors import NotTuned
from service.db.engine import Database
from service.serving.schemas.thresholds import (
    LabelThreshold,
    ShadowSummary,
    ThresholdCheckpoint,
    ThresholdQuery,
    Thresholds,
)
from service.serving.served import ServedVersion
from service.thresholds.live.shadow import Shadow
from service.thresholds.store.state import checkpoints, find_head


def describe_thresholds(served: ServedVersion, database: Database, query: ThresholdQuery) -> Thresholds:
    """Return what is known of a version's thresholds. Blocking. Raises NotTuned, DatabaseUnavailable."""
    live = served.thresholds
    with live.lock:
        if live.prepared is None:
            raise NotTuned(f"model {served.name} version {served.version}: expected thresholds, found none")
        epoch, tuned, macro_f = live.epoch, live.snapshot(), live.macro_f()
        shadow = None if live.shadow is None else _describe_shadow(live.shadow)
    kept: list[ThresholdCheckpoint] = []
    n_events = 0
    with database.read() as connection:
        head = find_head(connection, served.name, served.version)
        if head is not None:
            n_events = head.n_events
            kept = [
                {"epoch": one.epoch, "kind": one.kind, "created_at": one.created_at}
                for one in checkpoints(connection, head)
            ]
    marks, hits = tuned.counters.marks, tuned.counters.hits
    ids = np.flatnonzero(marks < query.marks_below) if query.marks_below else np.arange(len(marks))
    shown = ids[query.offset : query.offset + query.limit].tolist()
    labels: list[LabelThreshold] = [
        {
            "label": name_of(served.labels, i),
            "id": i,
            "threshold": tuned.thresholds[i],
            "hits": int(hits[i]),
            "marks": int(marks[i]),
        }
        for i in shown
    ]
    end = query.offset + len(shown)
    return {
        "model": served.name,
        "version": served.version,
        "threshold_epoch": epoch,
        "method": tuned.method,
        "start": tuned.start._asdict(),
        "n_events": n_events,
        "macro_f": 100 * macro_f,
        "shadow": shadow,
        "checkpoints": kept,
        "n_labels": len(ids),
        "labels": labels,
        "next_offset": end if shown and end < len(ids) else None,
    }


def _describe_shadow(shadow: Shadow) -> ShadowSummary:
    """Return what is known of a candidate."""
    macro_f, served_macro_f = shadow.macro_f()
    return {
        "since_epoch": shadow.since,
        "created_at": shadow.created_at,
        "method": shadow.candidate.method,
        "start": shadow.candidate.start._asdict(),
        "n_events": shadow.n_events,
        "macro_f": 100 * macro_f,
        "served_macro_f": 100 * served_macro_f,
        "empty_label_convention": shadow.candidate.convention,
    }
