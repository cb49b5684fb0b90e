"""POST /v1/admin/models/{model}/thresholds/tune: tune on a file of the data directory, and keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.api.door.admission import read_body
from service.api.door.auth import AdminKey
from service.api.door.responses import json_response
from service.api.door.routing import RawRoute
from service.api.door.work import WorkPool
from service.errors import BadData, BadRequest
from service.serving.learning import OnlineLearning
from service.serving.parse import check_keys, parse_json
from service.serving.served import LiveServed, ServedVersion
from service.serving.what_is import what_is
from service.settings import Settings

_FIELDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "data": ("a string", (str,)),
    "method": ("a string", (str,)),
    "version": ("an integer", (int,)),
    "test": ("a string", (str,)),
    "empty_labels": ("a string", (str,)),
    "kappa": ("a number", (int, float)),
    "start": ("an array", (list,)),
    "shadow": ("true or false", (bool,)),
}
"""The fields of a request, and what they may be; the first must be there."""


class TuneQuery(NamedTuple):
    """What to tune, on what and how; `service.workflows.tune.TuneRequest` says what the fields mean.

    method  none: the default one
    shadow  whether what is found is only scored beside the thresholds in force
    """

    model: str
    version: int
    method: str | None
    data: Path
    test: Path | None
    empty_labels: str
    kappa: float | None
    start: tuple[float, float] | None
    shadow: bool


Tune = Callable[[TuneQuery], dict[str, Any]]
"""Tunes and keeps the result; returns what `xylem thresholds --json` says. Blocking; raises XylemError."""


class TuneRoutes:
    """The route, and what it works with: one call at a time."""

    def __init__(self, live: LiveServed, learning: OnlineLearning, settings: Settings, tune: Tune) -> None:
        self._live = live
        self._learning = learning
        self._admin = AdminKey(settings.admin_key)
        self._settings = settings
        self._tune = tune
        self._work = WorkPool(1, 0, settings.limits.tune_seconds_max, "calls of tune")

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [RawRoute("/v1/admin/models/{model}/thresholds/tune", self.tune, methods=["POST"])]

    def close(self) -> None:
        """Let the thread end."""
        self._work.close()

    async def tune(self, request: Request) -> Response:
        """Tune a version by a method on a labelled file, and put the thresholds in force, or beside them."""
        self._admin.check(request.scope)
        fields = _fields(parse_json(await read_body(request, self._settings.limits)))
        served = await self._live.find(request.path_params["model"], str(fields.get("version", "latest")))
        data = await asyncio.to_thread(self._file, "data", fields["data"])
        test = await asyncio.to_thread(self._file, "test", fields["test"]) if "test" in fields else None
        query = TuneQuery(
            served.name,
            served.version,
            fields.get("method"),
            data,
            test,
            fields.get("empty_labels", "one"),
            fields.get("kappa"),
            _start(fields.get("start")),
            fields.get("shadow", False),
        )
        return json_response(await self._work.run(self._tune_here, query, served))

    def _tune_here(self, query: TuneQuery, served: ServedVersion) -> dict[str, Any]:
        """Tune, and have what was found in force here at once."""
        self._learning.follower.check()
        try:
            found = self._tune(query)
        except BadData as error:  # whose message begins with the file: as the caller named it
            root = f"{self._settings.data_dir and self._settings.data_dir.resolve()}/"
            raise BadData(str(error).removeprefix(root)) from error
        self._learning.catch_up(served.thresholds)
        return found

    def _file(self, name: str, relative: str) -> Path:
        """Return the path of a file below the data directory, links followed. Raises BadRequest."""
        if self._settings.data_dir is None:
            raise BadRequest("expected the service to have a data directory (XYLEM_DATA_DIR), found none")
        root = self._settings.data_dir.resolve()
        try:
            path = (root / relative).resolve()
            if path.is_relative_to(root) and path.is_file():
                return path
        except (OSError, ValueError, RuntimeError):  # too long, NUL, a circle of links
            pass
        raise BadRequest(f"expected a file below the data directory, found {relative[:200]!r}").at(name)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a request, of the types they must have. Raises BadRequest."""
    fields = check_keys(value, ("data",), _FIELDS)
    for name, found in fields.items():
        expected, types = _FIELDS[name]
        if type(found) not in types:
            raise BadRequest(f"expected {expected}, found {what_is(found)}").at(name)
    version = fields.get("version", 1)
    if not 1 <= version < 1 << 31:
        raise BadRequest(f"expected an integer of at least 1, found {version}").at("version")
    return fields


def _start(value: list[Any] | None) -> tuple[float, float] | None:
    if value is None:
        return None
    if len(value) != 2 or any(type(one) not in (int, float) for one in value):
        found = ", ".join(map(what_is, value[:2])) if len(value) == 2 else what_is(value)
        raise BadRequest(f"expected two numbers, a and b, found {found}").at("start")
    return float(value[0]), float(value[1])
