"""/livez, /readyz and /metrics, for operators of the service."""

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE

from xylem.api.door.neighbours import join_pages
from xylem.api.routes.admins import may, needs, router_of
from xylem.api.routes.operations import answers, content
from xylem.api.routes.requests import Wired
from xylem.api.schemas.models import Alive, Readiness, ServedAlias, ServingFailure
from xylem.base import AccessScope

router = router_of("service")

_OPENMETRICS = "application/openmetrics-text"


@router.get("/livez", summary="Whether the process runs")
async def livez() -> Alive:
    """Answers that the process runs."""
    return Alive()


@router.get(
    "/readyz",
    summary="Whether requests should be sent here, and which models are served",
    response_description="Ready",
    responses=answers(503, "Not ready", content("application/json", Readiness)),
    response_model_exclude_unset=True,
)
async def readyz(request: Request, services: Wired, response: Response) -> Readiness:
    """Ready means that the kernels are compiled and the models are verified.

    Models that are open answer requests even before. `waits_for` names what comes first: kernels to
    compile, with their number, the database, or models. A store without models is ready at once.

    Not ready: before that; if no model can be served; and after SIGTERM.

    Clients that may not predict get only the status. Others get the models that they may see.
    """
    ready = services.ready
    response.status_code = 200 if ready else 503
    state = "ready" if ready else "draining" if services.draining() else "not ready"
    sender = may(request, AccessScope.PREDICT)
    if sender is None:
        return Readiness(status=state)
    status = services.live.status()
    return Readiness(
        status=state,
        models=[
            ServedAlias(model=model, alias=name, version=alias.version)
            for (model, name), alias in status.aliases
            if sender.sees(model)
        ],
        failures=[
            ServingFailure(model=failure.model, ref=failure.ref, detail=failure.detail)
            for failure in status.failures
            if sender.sees(failure.model)
        ],
        store_error=status.store_error,
        waits_for=services.waits_for,
    )


@router.get(
    "/metrics",
    summary="Figures in Prometheus's text format",
    response_class=Response,
    responses=answers(200, "The figures", {"text/plain": {"schema": {"type": "string"}}}),
    dependencies=[needs("metrics")],
)
async def metrics(request: Request, services: Wired) -> Response:
    """The figures of all workers, in OpenMetrics's format if the request accepts it."""
    is_openmetrics = _OPENMETRICS in request.headers.get("accept", "")
    media = OPENMETRICS_TYPE if is_openmetrics else CONTENT_TYPE_PLAIN_0_0_4
    page = (
        await services.metrics.page(is_openmetrics=is_openmetrics)
        if services.neighbours is None
        else join_pages(await services.neighbours.pages(is_openmetrics=is_openmetrics))
    )
    return Response(page, media_type=media)
