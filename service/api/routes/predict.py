"""POST /v1/models/{model}/predict, and the same for a version or an alias."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter, Request, Response

from service.api.door.admission import read_body
from service.api.door.responses import JsonResponse
from service.api.door.stage_notes import notes_of
from service.api.routes.admins import RawRoute, needs
from service.api.routes.deadlines import run_until_deadline
from service.api.routes.operations import content, of_version, problems, query_parameters, takes
from service.api.routes.services import Wired
from service.api.routes.versions import choose_served, stale_headers
from service.serving.answer import Answer, answer_now, answer_query, answer_read
from service.serving.parse import LONG_BYTES, parse_predict_asked
from service.serving.schemas.predict import TUNED, InfoQuery, PredictRequest
from service.serving.schemas.predictions import PredictAnswer
from service.serving.shadow_copies import ShadowCopy
from service.stages import READ

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
    openapi_extra={**takes(_BODY), **query_parameters(InfoQuery)},
)
async def predict(request: Request, services: Wired) -> Response:
    """Instances are texts, sparse vectors or named features, as the model was trained on."""
    body = await read_body(request, services.limits)
    began = asyncio.get_running_loop().time()
    served, shadow = await choose_served(request, services.live)
    notes = notes_of(request.scope)
    query_string = request.scope["query_string"]
    if query_string or len(body) > LONG_BYTES:
        notes.begin()
        query = await services.work.read(parse_predict_asked, body, query_string, services.limits)
        notes.end(READ)
        found = answer_read(query, served, notes)
    else:
        found = answer_now(body, 0, served, services.limits, notes)
    if isinstance(found, PredictRequest):
        notes.begin()
        answer_noted = partial(answer_query, notes=notes)
        answer = await run_until_deadline(
            services.work, began, found.deadline_ms, answer_noted, found, served
        )
        found = Answer((answer,), len(found.instances), found.threshold == TUNED)
    services.metrics.rows[served.name] += found.n_rows
    answered = b"".join(found.parts)
    if shadow is not None:
        services.shadows.offer(ShadowCopy(body, answered, served, shadow))
    response = JsonResponse(answered)
    if found.is_tuned:
        response.headers.update(stale_headers(served))
    return response
