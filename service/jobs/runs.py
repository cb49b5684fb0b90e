"""What a job of each kind does, by kind: functions that run in the job's process.

Each imports what it needs when it runs: the other kinds' rooms take a part of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.jobs.context import JobContext


def _training(context: JobContext, request: Any) -> dict[str, Any]:
    from service.jobs.training import run_training

    return run_training(context, request)


def _tuning(context: JobContext, request: Any) -> dict[str, Any]:
    from service.jobs.tuning import run_tuning

    return run_tuning(context, request)


def _batch(context: JobContext, request: Any) -> dict[str, Any]:
    from service.jobs.batch import run_batch

    return {**run_batch(context, request)}


RUNS: Mapping[str, Callable[[JobContext, Any], dict[str, Any]]] = {
    "training": _training,
    "threshold-tuning": _tuning,
    "batch": _batch,
}
"""Each takes the context and the request of its kind, and returns what the job keeps as its result.

A run may be the second or third of its job: what an earlier one left, when its process was killed at any
moment, must lead to the same end.
"""
