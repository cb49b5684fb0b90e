"""Evaluate a version on a file, as `xylem evaluate` does."""

from pathlib import Path
from typing import Any

from xylem.base import no_progress
from xylem.workflows.evaluate import evaluate_rows
from xylem.workflows.labelled import read_labelled
from xylem_store.version import Model


def evaluate(model: Model, data: Path, threads: int = 1, **options: Any) -> dict[str, Any]:
    """Return the object of `xylem evaluate --json`; the options are those of `evaluate_rows`."""
    return evaluate_rows(model, read_labelled(model, data, no_progress), threads, **options).report
