"""GET /v1/models/{model}/thresholds, and for admins to put an earlier epoch's thresholds in place again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict
from urllib.parse import parse_qsl

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from model_store.names import name_of
from service.api.door.admission import read_body
from service.api.door.auth import AdminKey
from service.api.door.responses import json_response
from service.api.door.routing import RawRoute
from service.api.door.work import WorkPool
from service.api.routes.versions import find_served
from service.errors import BadRequest, NotTuned
from service.serving.learning import OnlineLearning
from service.serving.parse import check_keys, parse_json
from service.serving.served import LiveServed, ServedVersion
from service.serving.what_is import what_is
from service.settings import Limits
from service.thresholds.live.shadow import Shadow, ShadowDatabase
from service.thresholds.store.state import Checkpoint, ThresholdDatabase, checkpoints, find_head
from service.thresholds.store.tuned import Tuned

LABELS_MAX = 10_000
"""Labels of one answer, at most."""

QUERY_FIELDS_MAX = 16
"""Fields of a query string."""

_DEFAULTS = {"offset": 0, "limit": 100, "marks_below": 0}


class LabelThreshold(TypedDict):
    """A label's threshold and what it rests on: see `service.thresholds.methods.ofo.Counters`."""

    label: str
    id: int
    threshold: np.float32
    hits: int
    marks: int


class ThresholdRoutes(NamedTuple):
    """The routes, and what they work with.

    work   threads of their own, which wait for the database: nothing else waits for them
    """

    live: LiveServed
    learning: OnlineLearning
    admin: AdminKey
    limits: Limits
    work: WorkPool

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/models/{model}/versions/{version}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/thresholds", self.show, methods=["GET"]),
            RawRoute("/v1/admin/models/{model}/thresholds/restore", self.restore, methods=["POST"]),
            RawRoute("/v1/admin/models/{model}/thresholds/switch", self.switch, methods=["POST"]),
            RawRoute("/v1/admin/models/{model}/thresholds/drop", self.drop, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Answer with the thresholds of a version, some labels at a time.

        `marks_below` leaves only labels that rest on fewer marks: too little to rely on.
        """
        query = _query(request.scope["query_string"])
        served = await find_served(request, self.live)
        self.learning.follower.check()
        return json_response(await self.work.run(self._describe, served, query))

    async def restore(self, request: Request) -> Response:
        """Put the thresholds of an epoch in place again: {"epoch": 41}, and "version" unless `latest`."""
        database = ThresholdDatabase(self.learning.database)
        return await self._change(request, database.restore, "epoch")

    async def switch(self, request: Request) -> Response:
        """Put the candidate in force, with what it learned: {}, and "version" unless `latest`."""
        return await self._change(request, ShadowDatabase(self.learning.database).switch)

    async def drop(self, request: Request) -> Response:
        """Take the candidate away: {}, and "version" unless `latest`."""
        return await self._change(request, ShadowDatabase(self.learning.database).drop)

    async def _change(self, request: Request, change: Callable[..., int], *fields: str) -> Response:
        """Change the thresholds of a version, here at once; answer with the new epoch."""
        self.admin.check(request.scope)
        found = parse_json(await read_body(request, self.limits))
        check_keys(found, fields, (*fields, "version"))
        for name, value in found.items():
            if type(value) is not int or not 1 <= value < 1 << 31:
                raise BadRequest(f"expected an integer of at least 1, found {what_is(value)}").at(name)
        served = await self.live.find(request.path_params["model"], str(found.get("version", "latest")))
        values = [found[name] for name in fields]
        self.learning.follower.check()
        epoch = await self.work.run(change, served.name, served.version, *values)
        await self.work.run(self.learning.catch_up, served.thresholds)
        return json_response({"model": served.name, "version": served.version, "threshold_epoch": epoch})

    def _describe(self, served: ServedVersion, query: dict[str, int]) -> dict[str, Any]:
        live = served.thresholds
        with live.lock:
            if live.prepared is None:
                raise NotTuned(
                    f"model {served.name} version {served.version}: expected thresholds, found none"
                )
            epoch, tuned, macro_f = live.epoch, live.snapshot(), live.macro_f()
            shadow = None if live.shadow is None else _shadow(live.shadow)
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
            "macro_f": 100 * macro_f,
            "shadow": shadow,
            "checkpoints": [one._asdict() for one in kept],
            **_labels(served, tuned, query),
        }


def _shadow(shadow: Shadow) -> dict[str, Any]:
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


def _labels(served: ServedVersion, tuned: Tuned, query: dict[str, int]) -> dict[str, Any]:
    """Return the labels that the query asks for, how many there are, and where the next page begins."""
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
    goes_on = bool(shown) and end < len(ids)
    return {"n_labels": len(ids), "labels": labels, "next_offset": end if goes_on else None}


def _query(query_string: bytes) -> dict[str, int]:
    """Return what the query string asks for. Raises BadRequest."""
    found: dict[str, int] = {}
    try:
        pairs = parse_qsl(
            query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError as error:
        raise BadRequest(f"expected a query string of a few fields, found another: {error}") from None
    for name, text in pairs:
        most = LABELS_MAX if name == "limit" else 1 << 31
        if name not in _DEFAULTS:
            raise BadRequest(f"expected only {', '.join(_DEFAULTS)}, found another field").at(name[:60])
        if name in found:
            raise BadRequest("expected one value, found several").at(name)
        if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= most):
            raise BadRequest(f"expected an integer from 0 to {most}, found {text[:60]!r}").at(name)
        found[name] = int(text)
    return _DEFAULTS | found
