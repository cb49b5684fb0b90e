"""Tuning asked for by a request: on files of the data directory, in force here at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from service.errors import BadData, BadRequest
from service.serving.learning import OnlineLearning
from service.serving.schemas.thresholds import TuneThresholdsRequest
from service.serving.served import ServedVersion

Tune: TypeAlias = Callable[[TuneThresholdsRequest, str, int, Path, Path | None], dict[str, Any]]
"""Tunes a version of a model on a file, with another to measure on, and keeps the result; returns what
`xylem thresholds --json` says. Blocking; raises XylemError."""


def tune_here(
    query: TuneThresholdsRequest,
    served: ServedVersion,
    learning: OnlineLearning,
    tune: Tune,
    data_dir: Path | None,
) -> dict[str, Any]:
    """Tune, and have what was found in force here at once. Blocking. Raises BadInput, DatabaseUnavailable."""
    data = _file("data", query.data, data_dir)
    test = None if query.test is None else _file("test", query.test, data_dir)
    learning.follower.check()
    try:
        found = tune(query, served.name, served.version, data, test)
    except BadData as error:  # whose message begins with the file: as the caller named it
        raise BadData(str(error).removeprefix(f"{data_dir and data_dir.resolve()}/")) from error
    learning.catch_up(served.thresholds)
    return found


def _file(name: str, relative: str, data_dir: Path | None) -> Path:
    """Return the path of a file below the data directory, links followed. Raises BadRequest."""
    if data_dir is None:
        raise BadRequest("expected the service to have a data directory (XYLEM_DATA_DIR), found none")
    root = data_dir.resolve()
    try:
        path = (root / relative).resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    except (OSError, ValueError, RuntimeError):  # too long, NUL, a circle of links
        pass
    raise BadRequest(f"expected a file below the data directory, found {relative[:200]!r}").at(name)
