"""/v1/admin/jobs and the routes of each kind of jobs, /v1/admin/data and /v1/admin/schedules.

Jobs do work that takes long. They read the files of /v1/admin/data. Schedules submit jobs
automatically.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import Request, Response

from xylem.admin import Job, Jobs, ModelLearning, Schedules, UploadedFile
from xylem.api.door.admission import pieces, read_body
from xylem.api.door.request_timings import span_of
from xylem.api.door.responses import ClosingStream, RangedFile, json_response
from xylem.api.routes.admins import AuditedRoute, of_seen_models, router_of
from xylem.api.routes.operations import (
    answers,
    content,
    operation_of,
    problems,
    query_parameters,
    takes,
    takes_json,
)
from xylem.api.routes.requests import Services, Wired, json_body, who
from xylem.api.schemas.jobs import (
    ConceptBody,
    ConceptKey,
    ConceptList,
    JobAnswer,
    JobList,
    JobQuery,
    KindQuery,
    LearningAnswer,
    RecipeAnswer,
    RecipeBody,
    ScheduleAnswer,
    ScheduleList,
    ScheduleRequest,
    SubmittedJob,
    UploadedFileList,
)
from xylem.base import Overloaded
from xylem.serving import dump, parse_json, parse_query

router = router_of("jobs", "admin", AuditedRoute, "/v1/admin")

# The longest pause in a stream of events: a write shows whether the client is still connected.
HEARTBEAT_SECONDS = 5.0

# The kinds of jobs: for each the model of its requests, a summary, and an example.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "training": (
        "TrainingJob",
        "Train a version, and promote it if a rule says so",
        {
            "model": "debtags",
            "trainer": "label-tree",
            "data": "train.jsonl.gz",
            "valid": "valid.jsonl.gz",
            "parameters": {"trees": 3, "features.ngram_max": 2},
            "promotion": {"alias": "stable", "if": [{"metric": "P@5", "least_change": -0.2}]},
        },
    ),
    "combine": (
        "CombineJob",
        "Combine versions, and the names of a vocabulary, into one version",
        {
            "model": "yso",
            "members": ["tree", "titles@2"],
            "vocabulary": "yso.ttl",
            "language": "fi",
            "data": "valid.jsonl",
        },
    ),
    "extend": (
        "ExtendJob",
        "Add labels to a version, without training it again",
        {"model": "debtags", "data": "monday.jsonl", "rows": ["train.jsonl.gz"]},
    ),
    "vocabulary": (
        "VocabularyJob",
        "Give a combined version another vocabulary, without training",
        {"model": "yso", "vocabulary": "yso-new.ttl"},
    ),
    "learn": ("LearnJob", "Repeat the recipe of a model, with what is new", {"model": "yso"}),
    "threshold-tuning": (
        "TuningJob",
        "Tune the thresholds of a version",
        {"model": "debtags", "data": "valid.jsonl.gz", "method": "ofo"},
    ),
    "batch": (
        "BatchJob",
        "Predict the lines of a file",
        {"model": "debtags", "data": "rows.jsonl", "top_r": 5},
    ),
}


def _jobs(request: Request, services: Services) -> Jobs:
    return services.jobs.seen_by(who(request))


def _add_kind(kind: str, model: str, summary: str, example: dict[str, Any]) -> None:
    """Add the routes of one kind of jobs: to submit a job, to list jobs, and to show one."""

    @of_seen_models
    async def submit(request: Request, services: Wired) -> Response:
        job = await services.admin_work.run(
            _jobs(request, services).submit,
            kind,
            await services.admin_work.read(parse_json, await read_body(request), services.limits),
            request.headers.get("idempotency-key"),
            span_of(request.scope),
        )
        return _submitted(job, request)

    router.add_api_route(
        f"/{kind}-jobs",
        submit,
        methods=["POST"],
        status_code=202,
        operation_id=operation_of(f"submit_{kind}_job"),
        summary=summary,
        description="The answer comes at once; workers run the job. An error names all faults.",
        response_model=SubmittedJob,
        openapi_extra={
            **takes_json(model, example),
            "parameters": [
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "schema": {"type": "string", "maxLength": 255},
                    "description": "the same key and request give the same job again, however "
                    "often it is sent",
                }
            ],
        },
    )
    _add_views(kind, f"/{kind}-jobs", KindQuery)


def _submitted(job: Job, request: Request) -> Response:
    return Response(
        dump({"id": job.id, "kind": job.kind, "state": job.state}),
        202,
        {"location": f"{request.scope['root_path']}/v1/admin/jobs/{job.id}"},
        media_type="application/json",
    )


def _add_views(kind: str | None, path: str, query: type[KindQuery]) -> None:
    """Add the routes that list jobs, of one kind or of all, and that show one."""

    @of_seen_models
    async def list_jobs(request: Request, services: Wired) -> Response:
        filters = parse_query(request.scope["query_string"], query, services.limits).model_dump()
        jobs = await services.admin_work.run(
            partial(_jobs(request, services).list, **{"kind": kind, **filters})
        )
        return json_response({"jobs": [job.as_json() for job in jobs]})

    name = "" if kind is None else f"{kind}_"
    router.add_api_route(
        path,
        list_jobs,
        methods=["GET"],
        operation_id=operation_of(f"list_{name}jobs"),
        summary=f"Jobs{'' if kind is None else f' of the kind {kind}'}, the newest first",
        description="Ended jobs are kept up to the limit `jobs_kept_max`.",
        response_model=JobList,
        openapi_extra=query_parameters(query),
    )
    router.add_api_route(
        f"{path}/{{job}}",
        show_job,
        methods=["GET"],
        operation_id=operation_of(f"show_{name}job"),
        summary="A job",
        response_model=JobAnswer,
    )


@of_seen_models
async def show_job(job: str, request: Request, services: Wired) -> Response:
    """Returns the request, the progress and the result of the job."""
    return await _job(_jobs(request, services).get, job, services)


@router.delete("/jobs/{job}", summary="Cancel a job", response_model=JobAnswer)
@of_seen_models
async def cancel_job(job: str, request: Request, services: Wired) -> Response:
    """A waiting job ends at once, a running job within seconds. You may cancel a job twice."""
    return await _job(_jobs(request, services).cancel, job, services)


@router.post(
    "/jobs/{job}/retry",
    summary="Queue a job again that failed or was cancelled",
    response_model=JobAnswer,
)
@of_seen_models
async def retry_job(job: str, request: Request, services: Wired) -> Response:
    """If the job had published a version, the version stays, and is not published again."""
    return await _job(_jobs(request, services).retry, job, services)


async def _job(call: Any, job: str, services: Services) -> Response:
    return json_response((await services.admin_work.run(call, job)).as_json())


@router.get(
    "/jobs/{job}/log",
    summary="The log of a job",
    response_class=Response,
    responses=answers(200, "The log so far", {"text/plain": {"schema": {"type": "string"}}}),
)
@of_seen_models
async def show_job_log(job: str, request: Request, services: Wired) -> Response:
    """Returns what the job has written so far.

    Only the newest bytes are kept, up to the limit `job_log_bytes_max`.
    """
    return Response(
        await services.admin_work.run(_jobs(request, services).log_text, job),
        media_type="text/plain; charset=utf-8",
    )


@router.get(
    "/jobs/{job}/events",
    summary="A job as it changes, as server-sent events",
    response_class=Response,
    responses=answers(
        200, "An event `job` a change", {"text/event-stream": {"schema": {"type": "string"}}}
    ),
)
@of_seen_models
async def follow_job(job: str, request: Request, services: Wired) -> Response:
    """Each event has the job as `GET` returns it; the event's id is the revision of the job.

    With the header `Last-Event-ID`, the stream continues after that revision. The stream ends when
    the job ends.
    """
    if services.followers.locked():
        raise Overloaded("expected fewer streams of events at a time (limit event_streams_max)")
    last_event_id = request.headers.get("last-event-id", "0")
    revision = (
        int(last_event_id)
        if last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 12
        else 0
    )
    await services.followers.acquire()  # does not wait: a place is free
    changes = _jobs(request, services).follow(job, revision, services.admin_work.run)
    try:
        first = await anext(changes, None)  # before the answer begins: it may raise an error
    except BaseException:
        services.followers.release()
        raise
    return ClosingStream(
        _events(first, changes, services),
        services.followers.release,
        {"cache-control": "no-store"},
        "text/event-stream",
    )


async def _events(
    first: Job | None, changes: AsyncIterator[Job | None], services: Services
) -> AsyncIterator[bytes]:
    """Yield an event for each change of a job, and a comment after HEARTBEAT_SECONDS."""
    if first is not None:
        yield _event(first)
    sent_at = time.monotonic()
    async for job in changes:
        now = time.monotonic()
        if job is not None:
            sent_at = now
            yield _event(job)
        elif now - sent_at >= HEARTBEAT_SECONDS:
            sent_at = now
            yield b": \n\n"
        if services.draining():
            return


def _event(job: Job) -> bytes:
    return b"event: job\nid: %d\ndata: %b\n\n" % (job.revision, dump(job.as_json()))


@router.get(
    "/jobs/{job}/result",
    summary="The predictions of a batch job",
    response_class=Response,
    responses={
        **answers(200, "The lines", content("application/x-ndjson", "BatchAnswerLine")),
        **answers(206, "A part of them", content("application/x-ndjson", "BatchAnswerLine")),
        **problems(409, 416),
    },
)
@of_seen_models
async def download_job_result(job: str, request: Request, services: Wired) -> Response:
    """Each line of the result answers a line of the job's file.

    With the header `Range` you get a part, so an interrupted download can continue.
    """
    return RangedFile(
        await services.admin_work.run(_jobs(request, services).result_file, job),
        media_type="application/x-ndjson",
        filename=f"{job}.jsonl",
    )


_add_views(None, "/jobs", JobQuery)
for _kind, (_model, _summary, _example) in KINDS.items():
    _add_kind(_kind, _model, _summary, _example)


@router.get("/data", summary="The files of the data directory", responses=problems(422))
@of_seen_models
async def list_data(request: Request, services: Wired) -> UploadedFileList:
    """Files below the service's data directory (`XYLEM_DATA_DIR`), by the names that jobs use."""
    return UploadedFileList(files=await services.admin_work.run(_jobs(request, services).data.list))


@router.put(
    "/data/{name:path}",
    summary="Upload a file, or replace one",
    openapi_extra=takes(
        {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    ),
)
@of_seen_models
async def put_data(name: str, request: Request, services: Wired) -> UploadedFile:
    """The body is the content of the file.

    The file appears when all of it has arrived; an interrupted upload leaves nothing. It may be as
    long as the limit `data_bytes_max`.
    """
    upload = await asyncio.to_thread(_jobs(request, services).data.upload, name)
    with upload:
        async for piece in pieces(request, services.limits):
            await asyncio.to_thread(upload.write, piece)
        return await asyncio.to_thread(upload.finish)


@router.delete(
    "/data/{name:path}", summary="Remove a file", status_code=204, response_class=Response
)
@of_seen_models
async def delete_data(name: str, request: Request, services: Wired) -> Response:
    """A job that reads the file fails, and reports why."""
    await services.admin_work.run(_jobs(request, services).data.delete, name)
    return Response(status_code=204)


_SCHEDULE: dict[str, Any] = {
    "kind": "training",
    "cron": "0 3 * * 0",
    "job": {
        "model": "debtags",
        "trainer": "label-tree",
        "data": ["train.jsonl.gz", {"feedback": {"model": "debtags", "days": 90}}],
        "valid": {"feedback": 0.2},
        "promotion": {"alias": "latest", "if": [{"metric": "P@5", "least_change": 0.0}]},
    },
}


def _schedules(request: Request, services: Services) -> Schedules:
    return services.schedules.seen_by(who(request))


@router.post(
    "/schedules",
    summary="Submit jobs automatically: by a cron line, or after a number of feedback rows",
)
@of_seen_models
async def create_schedule(
    body: Annotated[ScheduleRequest, json_body(ScheduleRequest, _SCHEDULE)],
    request: Request,
    services: Wired,
) -> ScheduleAnswer:
    """`job` is the body of a request for such a job, and is checked at once.

    An alias of a model can have only one schedule.
    """
    return ScheduleAnswer(
        **await services.admin_work.run(
            _schedules(request, services).create_schedule, body.kind, body.job, body.cron, body.rows
        )
    )


@router.get("/schedules", summary="The schedules")
@of_seen_models
async def list_schedules(request: Request, services: Wired) -> ScheduleList:
    """The oldest schedules come first.

    Each has the time of its next run, the number of its runs, and its last job.
    """
    return ScheduleList(
        schedules=[
            ScheduleAnswer(**schedule)
            for schedule in await services.admin_work.run(_schedules(request, services).schedules)
        ]
    )


@router.delete("/schedules/{schedule}", summary="Remove a schedule")
@of_seen_models
async def delete_schedule(schedule: str, request: Request, services: Wired) -> ScheduleAnswer:
    """A job that the schedule has submitted continues."""
    return ScheduleAnswer(
        **await services.admin_work.run(_schedules(request, services).delete_schedule, schedule)
    )


_RECIPE: dict[str, Any] = {
    "vocabulary": "yso.ttl",
    "language": "fi",
    "sources": [{"file": "train.jsonl"}, {"file": "titles.jsonl.gz", "role": "members"}],
}


def _learning(request: Request, services: Services) -> ModelLearning:
    return ModelLearning(
        services.store,
        services.learning.database,
        _schedules(request, services),
        services.learning.rows,
    )


@router.get("/models/{model}/learning", summary="How a model learns, and what each run reported")
async def show_learning(model: str, request: Request, services: Wired) -> LearningAnswer:
    """The recipe, its schedule, the corrections that wait, the job that runs, and the runs."""
    return LearningAnswer(
        **await services.admin_work.run(_learning(request, services).learning, model)
    )


@router.get(
    "/models/{model}/concepts", summary="Concepts that were added to the vocabulary of a model"
)
async def list_concepts(model: str, request: Request, services: Wired) -> ConceptList:
    """They are joined to the vocabulary's file at each run, so they stay when it is replaced."""
    return ConceptList.model_validate(
        {"concepts": await services.admin_work.run(_learning(request, services).concepts, model)}
    )


_CONCEPT = {"key": "http://example.org/new", "names": {"fi": ["uusi", "toinen nimi"]}}


@router.post(
    "/models/{model}/concepts",
    summary="Add a concept to the vocabulary of a model",
    status_code=202,
    response_model=SubmittedJob,
)
async def add_concept(
    model: str,
    body: Annotated[ConceptBody, json_body(ConceptBody, _CONCEPT)],
    request: Request,
    services: Wired,
) -> Response:
    """A job publishes a version that finds the concept by its names; the next run learns it."""
    return _submitted(
        await services.admin_work.run(
            partial(_learning(request, services).add_concept, model, **body.model_dump())
        ),
        request,
    )


@router.post(
    "/models/{model}/concepts/delete",
    summary="Remove a concept that was added to the vocabulary of a model",
    status_code=202,
    response_model=SubmittedJob,
)
async def remove_concept(
    model: str,
    body: Annotated[ConceptKey, json_body(ConceptKey, {"key": "http://example.org/new"})],
    request: Request,
    services: Wired,
) -> Response:
    """A job publishes a version without it."""
    return _submitted(
        await services.admin_work.run(_learning(request, services).remove_concept, model, body.key),
        request,
    )


@router.get("/models/{model}/recipe", summary="The recipe of a model", responses=problems(422))
async def show_recipe(model: str, request: Request, services: Wired) -> RecipeAnswer:
    """A `learn` job repeats the recipe, with what is new."""
    return RecipeAnswer(
        **await services.admin_work.run(_schedules(request, services).recipe, model)
    )


@router.put("/models/{model}/recipe", summary="Replace the recipe of a model")
async def put_recipe(
    model: str,
    body: Annotated[RecipeBody, json_body(RecipeBody, _RECIPE)],
    request: Request,
    services: Wired,
) -> RecipeAnswer:
    """Its files are names below the data directory. Its schedule replaces the one before."""
    return RecipeAnswer(
        **await services.admin_work.run(
            partial(_schedules(request, services).set_recipe, names_files=True), model, body.root
        )
    )
