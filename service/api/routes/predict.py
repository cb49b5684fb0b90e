"""POST /v1/models/{model}/predict, and the same for a version or an alias."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.api.routes.admins import RawRoute, needs
from service.api.routes.operations import content, of_version, problems, query_parameters, takes
from service.api.routes.replies import reply_in
from service.api.routes.services import Wired
from service.serving.predict import PREDICT
from service.serving.schemas.predict import InfoQuery
from service.serving.schemas.predictions import PredictAnswer

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
    return await reply_in(PREDICT, request, services)
