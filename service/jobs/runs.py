"""What a job of each kind does, by kind: functions that run in the job's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.jobs.batch import run_batch
from service.jobs.context import JobContext
from service.jobs.training import run_training
from service.jobs.tuning import run_tuning

RUNS: Mapping[str, Callable[[JobContext, Any], dict[str, Any]]] = {
    "training": run_training,
    "threshold-tuning": run_tuning,
    "batch": run_batch,
}
"""Each takes the context and the request of its kind, and returns what the job keeps as its result.

A run may be the second or third of its job: what an earlier one left, when its process was killed at any
moment, must lead to the same end.
"""
