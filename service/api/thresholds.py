"""GET /v1/models/{model}/thresholds, and for admins to put an earlier epoch's thresholds in place again."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, TypedDict
from urllib.parse import parse_qsl

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from model_store.names import name_of
from service.api.admission import read_body
from service.api.auth import AdminKey
from service.api.learning import Learning
from service.api.parse import parse_json
from service.api.routing import RawRoute
from service.api.served import LiveServed, Served, find_served
from service.api.wire import json_response
from service.errors import BadRequest, NotTuned
from service.settings import Limits
from service.thresholds.state import Checkpoint, ThresholdDatabase, checkpoints, find_head
from service.thresholds.tuned import Tuned

LABELS_MAX = 10_000
"""Labels of one answer, at most."""

_DEFAULTS = {"offset": 0, "limit": 100, "marks_below": 0}


class LabelThreshold(TypedDict):
    """A label's threshold and what it rests on: see `service.thresholds.ofo.Counters`."""

    label: str
    id: int
    threshold: np.float32
    hits: int
    marks: int


class ThresholdRoutes(NamedTuple):
    """The routes, and what they work with."""

    live: LiveServed
    learning: Learning
    admin: AdminKey
    limits: Limits

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/models/{model}/versions/{version}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/admin/models/{model}/thresholds/restore", self.restore, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Answer with the thresholds of a version, some labels at a time.

        `marks_below` leaves only labels that rest on fewer marks: too little to rely on.
        """
        query = _query(request.scope["query_string"])
        served = await find_served(request, self.live)
        answer = await asyncio.to_thread(self._describe, served, query)
        return json_response(answer)

    async def restore(self, request: Request) -> Response:
        """Put the thresholds of an epoch in place again: {"epoch": 41}, and "version" unless `latest`."""
        self.admin.check(request.scope)
        fields = parse_json(await read_body(request, self.limits))
        if type(fields) is not dict or not {"epoch"} <= fields.keys() <= {"epoch", "version"}:
            raise BadRequest("expected an object with epoch and perhaps version, found another value")
        for name, value in fields.items():
            if type(value) is not int or not 1 <= value < 1 << 31:
                raise BadRequest("expected an integer of at least 1, found another value").at(name)
        model = request.path_params["model"]
        served = await self.live.find(model, str(fields.get("version", "latest")))
        epoch = await asyncio.to_thread(self._restore, served, fields["epoch"])
        return json_response({"model": served.name, "version": served.version, "threshold_epoch": epoch})

    def _restore(self, served: Served, epoch: int) -> int:
        database = self.learning.database
        new = ThresholdDatabase(database).restore(served.name, served.version, epoch)
        with served.thresholds.lock, database.read() as connection:
            served.thresholds.catch_up(connection)
        return new

    def _describe(self, served: Served, query: dict[str, int]) -> dict[str, Any]:
        live = served.thresholds
        with live.lock:
            if live.prepared is None:
                raise NotTuned(
                    f"model {served.name} version {served.version}: expected thresholds, found none"
                )
            epoch, tuned, macro_f = live.epoch, live.snapshot(), live.macro_f()
        kept: list[Checkpoint] = []
        n_events = 0
        with self.learning.database.read() as connection:
            head = find_head(connection, served.name, served.version)
            if head is not None:
                kept, n_events = checkpoints(connection, head), head.n_events
        return {
            "model": served.name,
            "version": served.version,
            "threshold_epoch": epoch,
            "method": tuned.method,
            "start": tuned.start._asdict(),
            "n_events": n_events,
            "macro_f": macro_f,
            "checkpoints": [one._asdict() for one in kept],
            **_labels(served, tuned, query),
        }


def _labels(served: Served, tuned: Tuned, query: dict[str, int]) -> dict[str, Any]:
    """Return the labels that the query asks for, and how many there are."""
    marks = tuned.counters.marks
    most = query["marks_below"]
    ids = np.flatnonzero(marks < most) if most else np.arange(len(marks))
    first = query["offset"]
    shown = ids[first : first + query["limit"]].tolist()
    labels: list[LabelThreshold] = [
        {
            "label": name_of(served.labels, i),
            "id": i,
            "threshold": tuned.thresholds[i],
            "hits": int(tuned.counters.hits[i]),
            "marks": int(marks[i]),
        }
        for i in shown
    ]
    end = first + len(shown)
    return {"n_labels": len(ids), "labels": labels, "next_offset": end if end < len(ids) else None}


def _query(query_string: bytes) -> dict[str, int]:
    """Return what the query string asks for. Raises BadRequest."""
    found = dict(_DEFAULTS)
    for name, text in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=16):
        most = LABELS_MAX if name == "limit" else 1 << 31
        if name not in _DEFAULTS:
            raise BadRequest(f"expected only {', '.join(_DEFAULTS)}, found another field").at(name[:60])
        if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= most):
            raise BadRequest(f"expected an integer from 0 to {most}, found {text[:60]!r}").at(name)
        found[name] = int(text)
    return found
