"""A job as callers see it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]

STATES: tuple[State, ...] = get_args(State)

ENDED: frozenset[State] = frozenset(("succeeded", "failed", "cancelled"))
"""The states that a job does not leave by itself."""


_OURS = frozenset(("revision", "traceparent"))
"""What of a job nobody else is told."""


class JobProgress(NamedTuple):
    """How far a job is.

    phase            what it does now, in a word or two
    done, total      of this phase, in rows or bytes or steps; total 0: not known
    rows_per_second  of what `done` counts, since the phase began; None: not known yet
    seconds_left     of this phase; None: not known
    """

    phase: str
    done: int
    total: int
    rows_per_second: float | None = None
    seconds_left: float | None = None


class PromotionVerdict(NamedTuple):
    """Whether an alias was to move to the version of a job, and why.

    alias     the alias that the rule is about
    baseline  the version that it named when the two were compared; None: there was none
    reasons   a sentence for each condition, or why there was nothing to compare
    """

    promoted: bool
    reasons: tuple[str, ...]
    alias: str
    baseline: int | None


@dataclass(frozen=True)
class Job:
    """A job and what came of it. Times are seconds since 1970.

    model       the model that it trains, tunes or predicts with
    version     the version that it published, or works with; None: not known yet
    request     what was asked for, as JSON values
    result      what it found, as JSON values: figures of a training or tuning, counts of a batch
    error       why it failed, in a sentence; `error_code` is stable
    promotion   of a training with a promotion rule, once it was judged
    attempts    how often a worker has begun it
    worker      who has it, or had it last
    cancel_asked  it runs, and is to be cancelled
    revision    rises with every change of the job
    traceparent   the span of the request that made it, as W3C writes it; None: no trace is known
    """

    id: str
    kind: str
    state: State
    model: str
    version: int | None
    request: Mapping[str, Any]
    progress: JobProgress | None
    result: Mapping[str, Any] | None
    promotion: PromotionVerdict | None
    error: str | None
    error_code: str | None
    created: float
    started: float | None
    ended: float | None
    attempts: int
    worker: str | None
    cancel_asked: bool
    revision: int
    traceparent: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether it will not change any more, unless somebody retries it."""
        return self.state in ENDED

    def as_json(self) -> dict[str, Any]:
        """Return what HTTP and `--json` tell of it."""
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _OURS}
        for name in ("progress", "promotion"):
            facts[name] = None if facts[name] is None else facts[name]._asdict()
        return facts | {name: _time(facts[name]) for name in ("created", "started", "ended")}


def _time(seconds: float | None) -> str | None:
    """Return a time as RFC 3339 has it, in UTC, to the millisecond."""
    if seconds is None:
        return None
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
