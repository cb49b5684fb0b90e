"""GET /v1/models/{model}/thresholds, and for admins to tune them and to put others in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from service.api.door.responses import json_response
from service.api.routes.admins import AuditedRoute, RawRoute, needs
from service.api.routes.bodies import json_body
from service.api.routes.operations import (
    ModelName,
    content,
    of_version,
    problems,
    query_parameters,
    takes,
)
from service.api.routes.services import Services, Wired
from service.api.routes.versions import find_served
from service.errors import BadData
from service.serving.parse import parse_query
from service.serving.schemas.thresholds import (
    CandidateRequest,
    RestoreRequest,
    ThresholdChange,
    ThresholdQuery,
    Thresholds,
    TuneAnswer,
    TuneThresholdsRequest,
)
from service.serving.served import DEFAULT_ALIAS, ServedVersion
from service.serving.threshold_page import describe_thresholds
from service.thresholds.live.shadow import ShadowDatabase
from service.thresholds.store.state import ThresholdDatabase

router = APIRouter(tags=["thresholds"], dependencies=[needs("predict")], route_class=RawRoute)
admin_router = APIRouter(
    prefix="/v1/admin/models/{model}/thresholds",
    tags=["thresholds"],
    dependencies=[needs("admin")],
    route_class=AuditedRoute,
)

_REFUSALS = problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503)


def _json(model: type[object], example: object) -> dict[str, object]:
    return takes(content("application/json", model.__name__, example))


@of_version(
    router,
    "GET",
    "thresholds",
    "Thresholds, and what they rest on, of",
    response_model=Thresholds,
    responses=problems(401, 403, 404, 409, 422, 503),
    openapi_extra=query_parameters(ThresholdQuery),
)
async def thresholds(request: Request, services: Wired) -> Response:
    """The thresholds of a version, some labels at a time.

    `marks_below` leaves only labels that rest on fewer marks: too little to rely on.
    """
    query = parse_query(request.scope["query_string"], ThresholdQuery, services.limits)
    served = await find_served(request, services.live)
    services.learning.follower.check()
    found = services.threshold_work.run(describe_thresholds, served, services.learning.database, query)
    return json_response(await found)


@admin_router.post(
    "/restore",
    operation_id="restoreThresholds",
    summary="Put the thresholds of an earlier epoch in place again",
    responses=_REFUSALS,
    openapi_extra=_json(RestoreRequest, {"epoch": 41}),
)
async def restore(
    model: ModelName, body: Annotated[RestoreRequest, json_body(RestoreRequest)], services: Wired
) -> ThresholdChange:
    """Put the thresholds of an epoch in place again, of `latest` if no version is named."""
    database = ThresholdDatabase(services.learning.database)
    return await _change(model, body, services, database.restore, body.epoch)


@admin_router.post(
    "/switch",
    operation_id="switchThresholds",
    summary="Put the candidate's thresholds in force",
    responses=_REFUSALS,
    openapi_extra=_json(CandidateRequest, {}),
)
async def switch(
    model: ModelName, body: Annotated[CandidateRequest, json_body(CandidateRequest)], services: Wired
) -> ThresholdChange:
    """Put the candidate in force, with what it learned."""
    return await _change(model, body, services, ShadowDatabase(services.learning.database).switch)


@admin_router.post(
    "/drop",
    operation_id="dropThresholds",
    summary="Take the candidate's thresholds away",
    responses=_REFUSALS,
    openapi_extra=_json(CandidateRequest, {}),
)
async def drop(
    model: ModelName, body: Annotated[CandidateRequest, json_body(CandidateRequest)], services: Wired
) -> ThresholdChange:
    """Take the candidate away."""
    return await _change(model, body, services, ShadowDatabase(services.learning.database).drop)


@admin_router.post(
    "/tune",
    operation_id="tuneThresholds",
    summary="Tune thresholds on a labelled file, and put them in force or, as a candidate, beside",
    response_model=TuneAnswer,
    response_description="What was found, and the new epoch",
    responses=_REFUSALS,
    openapi_extra=_json(TuneThresholdsRequest, {"data": "valid.jsonl", "method": "ofo", "shadow": True}),
)
async def tune(
    model: ModelName,
    body: Annotated[TuneThresholdsRequest, json_body(TuneThresholdsRequest)],
    services: Wired,
) -> Response:
    """The file is one below the service's data directory (`XYLEM_DATA_DIR`). One call at a time.

    The answer is that of `xylem thresholds --json`.
    """
    served = await _find(model, body, services)
    return json_response(await services.tune_work.run(_tune_here, body, served, services))


def _tune_here(body: TuneThresholdsRequest, served: ServedVersion, services: Services) -> dict[str, Any]:
    """Tune, and have what was found in force here at once. Blocking. Raises BadInput, DatabaseUnavailable."""
    files = services.jobs.data
    data = files.path_of(body.data)
    test = None if body.test is None else files.path_of(body.test, "test")
    services.learning.follower.check()
    try:
        found = services.tune(body, served.name, served.version, data, test)
    except BadData as error:  # whose message begins with the file: as the caller named it
        raise BadData(files.shown(str(error))) from error
    services.learning.catch_up(served.thresholds)
    return found


async def _find(model: str, body: CandidateRequest, services: Services) -> ServedVersion:
    return await services.live.find(model, str(body.version or DEFAULT_ALIAS))


async def _change(
    model: str, body: CandidateRequest, services: Services, change: Callable[..., int], *values: int
) -> ThresholdChange:
    """Change the thresholds of a version, here at once; answer with the new epoch."""
    served = await _find(model, body, services)
    services.learning.follower.check()
    epoch = await services.threshold_work.run(change, served.name, served.version, *values)
    await services.threshold_work.run(services.learning.catch_up, served.thresholds)
    return ThresholdChange(model=served.name, version=served.version, threshold_epoch=epoch)
