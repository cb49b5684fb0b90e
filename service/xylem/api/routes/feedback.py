"""/v1/models/{model}/feedback: takes true labels, as JSON or streamed NDJSON.

Each event is counted once. Admins see, export and delete the rows that are stored of them.
"""

import asyncio
import json
from functools import partial
from typing import Annotated

from fastapi import Request, Response

from xylem.api.door.admission import JSON, NDJSON, check_media, is_json, read_body
from xylem.api.door.request_timings import timings_of, timings_of_block
from xylem.api.door.responses import json_response, stream_of
from xylem.api.routes.admins import AuditedRoute, RawRoute, router_of, row_sender
from xylem.api.routes.operations import ModelName, answers, content, of_version, takes
from xylem.api.routes.requests import Services, Wired, find_served, json_body, query_of, who
from xylem.api.schemas.feedback import (
    CorrectionPage,
    CorrectionsQuery,
    FeedbackState,
    RowsDeleted,
    RowsQuery,
)
from xylem.serving import (
    BLOCK_EVENTS_MAX,
    Answered,
    DeleteRowsRequest,
    FeedbackAnswer,
    FeedbackEvent,
    LineBlock,
    StoredRows,
)

router = router_of("feedback", "feedback", RawRoute)
admin_router = router_of("feedback", "admin", AuditedRoute, "/v1/admin/models/{model}")

_EVENT = {"event_id": "order-7", "instance": {"text": "a text editor"}, "labels": ["role::program"]}
_DESCRIPTION = "What became of each event, in their order"


@of_version(
    router,
    "POST",
    "feedback",
    "True labels, for",
    response_model=FeedbackAnswer,
    response_description=_DESCRIPTION,
    responses=answers(200, _DESCRIPTION, content("application/x-ndjson", "FeedbackLine")),
    openapi_extra=takes(
        content("application/json", "FeedbackRequest", {"events": [_EVENT]}),
        content("application/x-ndjson", FeedbackEvent, f"{json.dumps(_EVENT)}\n"),
    ),
)
async def feedback(request: Request, services: Wired) -> Response:
    """Each event moves the thresholds, with which `threshold: tuned` predicts.

    An event counts once, however often it is sent. It is stored safely once the answer says
    `applied`. An event with an instance belongs to the version in the path; an event with a
    prediction_id belongs to the version that predicted. NDJSON is streamed both ways and has no
    limit of length: read the answers while you write.
    """
    check_media(request.scope, JSON | NDJSON)
    served = await find_served(request, services.live)
    row_key = row_sender(request, services, served.name)
    sender = who(request)
    meter = sender.meter
    if is_json(request.scope):
        body = await read_body(request)
        timings = timings_of(request.scope)
        answer = await services.desk.count_body(body, served, timings, sender=row_key)
        n_events = len(answer["results"])
        meter.charge(0, n_events)
        services.ring.usage.add(sender.key_id, served.name, n_rows=n_events, n_characters=len(body))
        return json_response(answer)
    services.learning.follower.check()
    add_usage = partial(services.ring.usage.add, sender.key_id, served.name)
    add_usage(n_rows=0, n_characters=0)
    headers = {"xylem-model": served.name, "xylem-version": str(served.version)}

    async def begin(block: LineBlock) -> asyncio.Task[Answered]:
        n_lines = len(block.lines)
        await meter.take_rows(n_lines)
        add_usage(
            n_rows=n_lines, n_characters=sum(len(line or b"") for line in block.lines), n_requests=0
        )
        timings, count = timings_of_block(request.scope, services.metrics.stages)
        answering = await services.desk.begin_block(block, served, timings, sender=row_key)
        answering.add_done_callback(count)
        return answering

    return services.feeds.answer(
        begin, lambda answered: None, meter.block_rows(BLOCK_EVENTS_MAX), headers
    )


@of_version(
    router,
    "GET",
    "feedback",
    "Whether the text of a correction would be stored, for",
    response_model=FeedbackState,
    openapi_extra={},
)
async def show_feedback(request: Request, services: Wired) -> Response:
    """The service, the recipe of the model and the sender's key must all allow it."""
    model = (await find_served(request, services.live)).name
    because = await services.threshold_work.run(services.learning.rows.refusal, model)
    if because is None and row_sender(request, services, model) is None:
        because = f"this key gives no texts to {model}: it was made with --no-rows"
    return json_response({"rows_stored": because is None, "because": because})


@admin_router.get("/corrections", summary="Rows of feedback that are kept, the newest first")
async def list_corrections(
    model: ModelName,
    query: Annotated[CorrectionsQuery, query_of(CorrectionsQuery)],
    services: Wired,
) -> CorrectionPage:
    """Each row has the name of the sender's key, and its labels that the model does not have."""
    return CorrectionPage(
        **await services.admin_work.run(
            _stored_rows(services).corrections,
            model,
            query.label,
            query.key,
            query.limit,
            query.before,
        )
    )


@admin_router.get(
    "/feedback-rows",
    summary="Rows of feedback that are kept, the oldest first",
    response_class=Response,
    responses=answers(
        200,
        "The rows, lines of a data file",
        {"application/x-ndjson": {"schema": {"type": "string"}}},
    ),
)
async def export_feedback_rows(
    model: ModelName, query: Annotated[RowsQuery, query_of(RowsQuery)], services: Wired
) -> Response:
    """Each row is a line of a training file, with the id of its event.

    With `days`, only the rows of the last days.
    """
    return await stream_of(
        await services.admin_work.run(_stored_rows(services).pages, model, query.days),
        services.admin_work.run,
        "application/x-ndjson",
    )


@admin_router.post(
    "/feedback-rows/delete", summary="Remove rows of feedback: of some events, of a day or of a key"
)
async def delete_feedback_rows(
    model: ModelName,
    body: Annotated[DeleteRowsRequest, json_body(DeleteRowsRequest, {"event_ids": ["order-7"]})],
    services: Wired,
) -> RowsDeleted:
    """When the answer comes, the rows have been deleted from the database.

    Versions that were trained on them stay.
    """
    return RowsDeleted(
        **await services.admin_work.run(
            _stored_rows(services).delete_feedback_rows, model, body.event_ids, body.day, body.key
        )
    )


def _stored_rows(services: Services) -> StoredRows:
    return StoredRows(services.store, services.learning.rows, services.limits)
