"""POST /v1/models/{model}/predict, and the same for a version or an alias."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from service.api.door.admission import read_body
from service.api.door.metrics import Metrics
from service.api.door.responses import JsonResponse
from service.api.door.routing import RawRoute
from service.api.door.work import WorkPool
from service.api.routes.versions import find_served, stale_headers
from service.serving.answer import Answer, answer_now, answer_query
from service.serving.schemas.predict import TUNED, PredictRequest
from service.serving.served import LiveServed, ServedVersion
from service.settings import Limits


class PredictRoutes(NamedTuple):
    """The routes, and what they work with."""

    live: LiveServed
    work: WorkPool
    metrics: Metrics
    limits: Limits

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/predict", self.predict, methods=["POST"]),
            RawRoute("/v1/models/{model}/versions/{version}/predict", self.predict, methods=["POST"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/predict", self.predict, methods=["POST"]),
        ]

    async def predict(self, request: Request) -> Response:
        """Answer a predict request."""
        body = await read_body(request, self.limits)
        began = asyncio.get_running_loop().time()
        served = await find_served(request, self.live)
        found = answer_now(body, 0, served, self.limits)
        if isinstance(found, PredictRequest):
            answer = await self._answer_in_thread(found, served, began)
            found = Answer((answer,), len(found.instances), found.threshold == TUNED)
        self.metrics.record_rows(served.name, found.n_rows)
        response = JsonResponse(b"".join(found.parts))
        if found.is_tuned:
            response.headers.update(stale_headers(served))
        return response

    async def _answer_in_thread(self, query: PredictRequest, served: ServedVersion, began: float) -> bytes:
        """Answer a request that is long or has a deadline, which counts from `began`, the event loop's time.

        When nobody waits for the answer any more, its search is stopped, and so its thread is free.
        """
        stop = np.zeros(1, np.uint8)
        deadline_ms = query.deadline_ms
        strike = None
        if deadline_ms is not None:
            strike = asyncio.get_running_loop().call_at(began + deadline_ms / 1000, stop.fill, 1)
        try:
            return await self.work.run(answer_query, query, served, stop)
        finally:
            stop.fill(1)
            if strike is not None:
                strike.cancel()
