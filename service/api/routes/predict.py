"""POST /v1/models/{model}/predict, and the same for a version or an alias."""

from __future__ import annotations

import asyncio

import numpy as np
from fastapi import APIRouter, Request, Response

from service.api.door.admission import read_body
from service.api.door.responses import JsonResponse
from service.api.door.work import WorkPool
from service.api.routes.admins import RawRoute, needs
from service.api.routes.operations import content, of_version, problems, takes
from service.api.routes.services import Wired
from service.api.routes.versions import find_served, stale_headers
from service.serving.answer import Answer, answer_now, answer_query
from service.serving.schemas.predict import TUNED, PredictRequest
from service.serving.schemas.predictions import PredictAnswer
from service.serving.served import ServedVersion

router = APIRouter(tags=["predict"], dependencies=[needs("predict")], route_class=RawRoute)

_BODY = content("application/json", "PredictRequest", {"instances": [{"text": "a text editor"}]})


@of_version(
    router,
    "POST",
    "predict",
    "Predict with",
    response_model=PredictAnswer,
    response_description="A prediction for each instance, in their order",
    responses=problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
    openapi_extra=takes(_BODY),
)
async def predict(request: Request, services: Wired) -> Response:
    """Instances are texts, sparse vectors or named features, as the model was trained on."""
    body = await read_body(request, services.limits)
    began = asyncio.get_running_loop().time()
    served = await find_served(request, services.live)
    found = answer_now(body, 0, served, services.limits)
    if isinstance(found, PredictRequest):
        answer = await _answer_in_thread(found, served, services.work, began)
        found = Answer((answer,), len(found.instances), found.threshold == TUNED)
    services.metrics.rows[served.name] += found.n_rows
    response = JsonResponse(b"".join(found.parts))
    if found.is_tuned:
        response.headers.update(stale_headers(served))
    return response


async def _answer_in_thread(
    query: PredictRequest, served: ServedVersion, work: WorkPool, began: float
) -> bytes:
    """Answer a request that is long or has a deadline, which counts from `began`, the event loop's time.

    When nobody waits for the answer any more, its search is stopped, and so its thread is free.
    """
    stop = np.zeros(1, np.uint8)
    deadline_ms = query.deadline_ms
    strike = None
    if deadline_ms is not None:
        strike = asyncio.get_running_loop().call_at(began + deadline_ms / 1000, stop.fill, 1)
    try:
        return await work.run(answer_query, query, served, stop)
    finally:
        stop.fill(1)
        if strike is not None:
            strike.cancel()
