"""POST /v1/models/{model}/score: the exact probabilities of labels that the request names."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.api.routes.admins import RawRoute, needs
from service.api.routes.operations import content, of_version, problems, takes
from service.api.routes.replies import reply_in
from service.api.routes.services import Wired
from service.serving.schemas.score import ScoreAnswer
from service.serving.scores import SCORES

router = APIRouter(tags=["predict"], dependencies=[needs("predict")], route_class=RawRoute)

_EXAMPLE = {"instances": [{"text": "a text editor", "labels": ["role::program"]}]}


@of_version(
    router,
    "POST",
    "score",
    "Probabilities of labels, from",
    response_model=ScoreAnswer,
    response_description="The scores of each instance's labels, in their order",
    responses=problems(400, 401, 403, 404, 408, 413, 415, 422, 503),
    openapi_extra=takes(content("application/json", "ScoreRequest", _EXAMPLE)),
)
async def score(request: Request, services: Wired) -> Response:
    """Each label is scored along its path in the trees, without a search: the scores of an exact one.

    A model of next words scores the words of a text, with `sequence: true` in place of labels."""
    return await reply_in(SCORES, request, services)
