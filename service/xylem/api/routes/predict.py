"""POST /v1/models/{model}/predict, score and batch, and the same for a version or an alias."""

import asyncio
from functools import partial

from fastapi import Request, Response

from xylem.api.door.admission import NDJSON, OCTETS, check_media
from xylem.api.door.heads import reference_of
from xylem.api.door.request_timings import timings_of_block
from xylem.api.routes.admins import RawRoute, router_of
from xylem.api.routes.operations import (
    answers,
    content,
    of_version,
    problems,
    query_parameters,
    takes,
    takes_json,
)
from xylem.api.routes.requests import Wired, choose_served, reply_in, who
from xylem.api.schemas.predict import PredictAnswer
from xylem.base import StageTimings
from xylem.serving import (
    PREDICT,
    PREDICT_ONLY,
    SCORES,
    TUNED,
    Answered,
    InfoQuery,
    LineBlock,
    Options,
    PredictRequest,
    ScoreAnswer,
    ScoreRequest,
    answers_of,
    parse_options,
)

router = router_of("predict", "predict", RawRoute)


@of_version(
    router,
    "POST",
    "predict",
    "Predict with",
    response_model=PredictAnswer,
    response_description="A prediction for each instance, in their order",
    responses=problems(409),
    openapi_extra={
        **takes_json(PredictRequest, {"instances": [{"text": "a text editor"}]}),
        **query_parameters(InfoQuery),
    },
)
async def predict(request: Request, services: Wired) -> Response:
    """Instances are texts, sparse vectors or named features, whichever the model was trained on."""
    return await reply_in(PREDICT, request, services)


@of_version(
    router,
    "POST",
    "score",
    "Probabilities of labels, from",
    response_model=ScoreAnswer,
    response_description="The scores of each instance's labels, in their order",
    openapi_extra=takes_json(
        ScoreRequest, {"instances": [{"text": "a text editor", "labels": ["role::program"]}]}
    ),
)
async def score(request: Request, services: Wired) -> Response:
    """Each label is scored along its path in the trees. The scores are those of an exact search.

    A model of next words scores the words of a text, with `sequence: true` instead of labels.
    """
    return await reply_in(SCORES, request, services)


_MEDIA = "application/x-ndjson"
_LINES = '{"text": "a text editor"}\n{"text": "a game of chess"}\n'
_HEADERS = {
    "xylem-model": {"schema": {"type": "string"}, "description": "the model"},
    "xylem-version": {
        "schema": {"type": "integer"},
        "description": "the version of the whole batch",
    },
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_DESCRIPTION = "An answer line for each line, in their order; of the media type of the request"
_ANSWER = answers(200, _DESCRIPTION, content(_MEDIA, "BatchAnswerLine"), _BYTES)
_ANSWER[200]["headers"] = _HEADERS


@of_version(
    router,
    "POST",
    "batch",
    "Predict lines with",
    response_class=Response,
    responses={**_ANSWER, **problems(409)},
    openapi_extra={
        **takes(content(_MEDIA, "BatchLine", _LINES), _BYTES),
        **query_parameters(Options, *PREDICT_ONLY),
    },
)
async def batch(request: Request, services: Wired) -> Response:
    """NDJSON is streamed both ways: each line of the body is an instance.

    Each line of the answer is the answer to one of them. Read the answers while you write: beyond
    the limit XYLEM_BATCH_SPOOL_MIB the service stops reading for a client that does not. A line
    that cannot be used is answered by an error in its place. A connection that ends without the
    last chunk was cut off. The options are in the query string, and apply to every line.
    """
    check_media(request.scope, NDJSON | OCTETS)
    limits = services.limits
    options = parse_options(request.scope["query_string"], limits)
    served = (
        await choose_served(request, services.live, *reference_of(request.path_params))
    ).served
    answer = answers_of(served, options, limits)
    loop = asyncio.get_running_loop()

    sender = who(request)
    meter = sender.meter
    add_usage = partial(services.ring.usage.add, sender.key_id, served.name)
    add_usage(n_rows=0, n_characters=0)

    def count_usage(
        block: LineBlock, timings: StageTimings, done: asyncio.Future[Answered]
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        add_usage(
            n_rows=done.result().n_rows,
            n_characters=sum(len(line or b"") for line in block.lines),
            search_ns=timings.search_ns(),
            n_requests=0,
        )

    async def begin(block: LineBlock) -> asyncio.Future[Answered]:
        await meter.take_rows(len(block.lines))
        timings, count = timings_of_block(request.scope, services.metrics.stages)
        answering = loop.run_in_executor(
            services.batch_threads, partial(answer, block, timings=timings)
        )
        answering.add_done_callback(partial(count_usage, block, timings))
        answering.add_done_callback(count)
        return answering

    def record(answered: Answered) -> None:
        services.metrics.rows[served.name] += answered.n_rows
        services.metrics.lines_bad += answered.n_bad

    rows_max = meter.block_rows(options.block_rows(limits))
    headers = {"xylem-model": served.name, "xylem-version": str(served.version)}
    if request.headers.get("content-type", "").encode() in OCTETS:
        headers["content-type"] = request.headers["content-type"]
    if options.threshold == TUNED and served.thresholds.is_stale:  # the database does not answer
        headers["xylem-thresholds"] = "stale"
    return services.batches.answer(begin, record, rows_max, headers)
