"""GET /v1/models/{model}/thresholds; and for admins, to tune, restore, switch and drop them."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Request, Response

from xylem.admin import Job, JobConflict, Jobs
from xylem.api.descriptions import describe_thresholds
from xylem.api.door.admission import read_body
from xylem.api.door.request_timings import span_of
from xylem.api.door.responses import json_response
from xylem.api.routes.admins import AuditedRoute, RawRoute, router_of
from xylem.api.routes.operations import (
    ModelName,
    of_version,
    problems,
    query_parameters,
    takes_json,
)
from xylem.api.routes.requests import Services, Wired, find_served, json_body, who
from xylem.api.schemas.labels import (
    CandidateRequest,
    RestoreRequest,
    ThresholdChange,
    ThresholdQuery,
    Thresholds,
    TuneAnswer,
)
from xylem.base import BadRequest, Overloaded, TimedOut, Unavailable, XylemError
from xylem.serving import DEFAULT_ALIAS, parse_json, parse_query
from xylem.thresholds import ThresholdDatabase, take_shadow

router = router_of("thresholds", "predict", RawRoute)
admin_router = router_of("thresholds", "admin", AuditedRoute, "/v1/admin/models/{model}/thresholds")

_Candidate = Annotated[CandidateRequest, json_body(CandidateRequest, {})]
_TUNING = "threshold-tuning"  # the kind of the jobs that tune


@of_version(
    router,
    "GET",
    "thresholds",
    "Thresholds, and the counts behind them, of",
    response_model=Thresholds,
    responses=problems(409),
    openapi_extra=query_parameters(ThresholdQuery),
)
async def thresholds(request: Request, services: Wired) -> Response:
    """The thresholds of a version, one page of labels.

    With `marks_below`, only labels with fewer marks, whose thresholds are not reliable yet.
    """
    query = parse_query(request.scope["query_string"], ThresholdQuery, services.limits)
    served = await find_served(request, services.live)
    services.learning.follower.check()
    return json_response(
        await services.threshold_work.run(
            describe_thresholds, served, services.learning.database, query
        )
    )


@admin_router.post("/restore", summary="Restore the thresholds of an earlier epoch")
async def restore_thresholds(
    model: ModelName,
    body: Annotated[RestoreRequest, json_body(RestoreRequest, {"epoch": 41})],
    services: Wired,
) -> ThresholdChange:
    """Restores the thresholds of an epoch. Without a version, those of `latest` are restored."""
    return await _change(
        model, body, services, ThresholdDatabase(services.learning.database).restore, body.epoch
    )


@admin_router.post("/switch", summary="Put the candidate's thresholds in force")
async def switch_thresholds(model: ModelName, body: _Candidate, services: Wired) -> ThresholdChange:
    """Puts the thresholds of the candidate in force, with what they have learnt."""
    return await _change(
        model, body, services, partial(take_shadow, services.learning.database, switch=True)
    )


@admin_router.post("/drop", summary="Remove the candidate")
async def drop_thresholds(model: ModelName, body: _Candidate, services: Wired) -> ThresholdChange:
    """Removes the candidate and its thresholds."""
    return await _change(
        model, body, services, partial(take_shadow, services.learning.database, switch=False)
    )


@admin_router.post(
    "/tune",
    summary="Tune thresholds on a labelled file; put them in force, or store them as a candidate",
    response_model=TuneAnswer,
    response_description="What was found, and the new epoch",
    openapi_extra=takes_json(
        "TuneThresholdsRequest", {"data": "valid.jsonl", "method": "ofo", "shadow": True}
    ),
)
async def tune_thresholds(model: ModelName, request: Request, services: Wired) -> Response:
    """Tunes on a file in the service's data directory (`XYLEM_DATA_DIR`).

    The answer is the output of `xylem thresholds --json`. A job does the work, and the request
    waits for it, at most for an hour. To submit the job without waiting, use
    `threshold-tuning-jobs`.
    """
    job_request = await services.admin_work.run(
        _check_tuning,
        await services.admin_work.read(parse_json, await read_body(request), services.limits),
        model,
        services.jobs.seen_by(who(request)),
    )
    version = job_request.get("version")
    served = await services.live.find(model, str(DEFAULT_ALIAS if version is None else version))
    services.learning.follower.check()
    if services.followers.locked():
        raise Overloaded("expected fewer requests that wait for jobs (limit event_streams_max)")
    async with services.followers:
        job_request["version"] = served.version
        report = await _result(
            await services.admin_work.run(
                services.jobs.add, _TUNING, model, job_request, None, span_of(request.scope)
            ),
            services,
        )
    await services.threshold_work.run(services.learning.catch_up, served.thresholds)
    return json_response(report)


def _check_tuning(body: Any, model: str, jobs: Jobs) -> dict[str, Any]:
    """Return the request of a tuning job, from the body of a request.

    jobs  those of the sender, with the data files that the sender may use

    Blocking. Raises BadFields with all its faults.
    """
    if isinstance(body, dict):
        if "model" in body:
            raise BadRequest("expected it in the path only, found it in the body too").with_path(
                "model"
            )
        body = {**body, "model": model}
    return jobs.check(_TUNING, body)[0]


async def _result(job: Job, services: Services) -> Any:
    """Return the result of a job once it has ended; cancel the job if that takes too long.

    Raises XylemError with the code of the job, TimedOut, JobConflict for a job that somebody
    cancelled, Unavailable.
    """
    seconds = services.limits.tune_seconds_max
    give_up_at = time.monotonic() + seconds
    gives_up = False
    async for changed_job in services.jobs.follow(job.id, 0, services.admin_work.run):
        job = changed_job or job
        if services.draining():
            raise Unavailable(
                f"expected job {job.id} to end before the server stops, found it {job.state}"
            )
        if not gives_up and not job.has_ended and time.monotonic() > give_up_at:
            gives_up = True
            with contextlib.suppress(JobConflict):  # the job has just ended
                await services.admin_work.run(services.jobs.cancel, job.id)
    if job.state == "succeeded":
        return job.result
    if job.state == "failed":
        failure = XylemError(f"job {job.id}: {job.error}")
        failure.code = job.error_code or failure.code
        raise failure
    if gives_up:
        raise TimedOut(
            f"expected to tune within {seconds:g} seconds, found that job {job.id} had not ended"
        )
    raise JobConflict(f"job {job.id}: expected it to succeed, found it {job.state}")


async def _change(
    model: str, body: CandidateRequest, services: Services, change: Callable[..., int], *values: int
) -> ThresholdChange:
    """Change the thresholds of a version; this process uses the change at once.

    Returns the answer with the new epoch.
    """
    served = await services.live.find(model, str(body.version or DEFAULT_ALIAS))
    services.learning.follower.check()
    epoch = await services.threshold_work.run(
        partial(change, digest=served.thresholds.digest), served.name, served.version, *values
    )
    await services.threshold_work.run(services.learning.catch_up, served.thresholds)
    return ThresholdChange(model=served.name, version=served.version, threshold_epoch=epoch)
