"""POST /v1/models/{model}/feedback: true labels in, each event counted once; JSON, or streamed NDJSON."""

import asyncio
import json

from fastapi import Request, Response

from service.api.door.admission import JSON, NDJSON, check_media, is_json, read_body
from service.api.door.request_timings import timings_of, timings_of_block
from service.api.door.responses import json_response
from service.api.routes.admins import RawRoute, router_of
from service.api.routes.operations import answers, content, of_version, takes
from service.api.routes.requests import find_served
from service.api.routes.services import Wired
from service.serving.feedback import BLOCK_EVENTS_MAX
from service.serving.lines import Answered, LineBlock
from service.serving.schemas.feedback import FeedbackAnswer, FeedbackEvent

router = router_of("feedback", "feedback", RawRoute)

_EVENT = {"event_id": "order-7", "instance": {"text": "a text editor"}, "labels": ["role::program"]}
_BODIES = (
    content("application/json", "FeedbackRequest", {"events": [_EVENT]}),
    content("application/x-ndjson", FeedbackEvent, f"{json.dumps(_EVENT)}\n"),
)
_SAYS = "What became of each event, in their order"


@of_version(
    router,
    "POST",
    "feedback",
    "True labels, for",
    response_model=FeedbackAnswer,
    response_description=_SAYS,
    responses=answers(200, _SAYS, content("application/x-ndjson", "FeedbackLine")),
    openapi_extra=takes(*_BODIES),
)
async def feedback(request: Request, services: Wired) -> Response:
    """Each event moves the thresholds that `threshold: tuned` predicts at.

    It counts once, however often it is sent, and is durable once the answer says `applied`. An event with an
    instance belongs to the version of the path, one with a prediction_id to the version that predicted.
    NDJSON is streamed both ways and has no limit of length: read answers while you write.
    """
    check_media(request.scope, JSON | NDJSON)
    served = await find_served(request, services.live)
    if is_json(request.scope):
        body = await read_body(request, services.limits)
        return json_response(await services.desk.count_body(body, served, timings_of(request.scope)))
    services.learning.follower.check()
    headers = {"xylem-model": served.name, "xylem-version": str(served.version)}

    async def begin(block: LineBlock) -> asyncio.Task[Answered]:
        timings, count = timings_of_block(request.scope, services.metrics.stages)
        answering = await services.desk.begin_block(block, served, timings)
        answering.add_done_callback(count)
        return answering

    return services.feeds.answer(begin, lambda answered: None, BLOCK_EVENTS_MAX, headers)
