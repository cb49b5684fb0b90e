"""POST /v1/models/{model}/batch: lines of instances in, lines of predictions out."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import Response

from service.api.door.admission import NDJSON, check_media
from service.api.door.metrics import Metrics
from service.api.door.routing import RawRoute
from service.api.routes.streams import Streams
from service.api.routes.versions import find_served, stale_headers
from service.serving.blocks import answer_block
from service.serving.lines import Answered, LineBlock
from service.serving.parse import parse_options
from service.serving.rows import to_options
from service.serving.schemas.predict import TUNED
from service.serving.served import LiveServed
from service.settings import Limits


class BatchRoutes:
    """The routes, and what they work with."""

    def __init__(self, live: LiveServed, metrics: Metrics, limits: Limits) -> None:
        self._live = live
        self._metrics = metrics
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.threads_max, thread_name_prefix="xylem-batch")
        self._streams = Streams(limits)

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models/{model}/batch", self.batch, methods=["POST"]),
            RawRoute("/v1/models/{model}/versions/{version}/batch", self.batch, methods=["POST"]),
            RawRoute("/v1/models/{model}/aliases/{alias}/batch", self.batch, methods=["POST"]),
        ]

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def batch(self, request: Request) -> Response:
        """Answer a batch: the options are the query string's, the version is the one of the batch's start."""
        check_media(request.scope, NDJSON)
        options = parse_options(request.scope["query_string"], self._limits)
        served = await find_served(request, self._live)
        engine_options = to_options(options, served)
        loop = asyncio.get_running_loop()

        async def begin(block: LineBlock) -> asyncio.Future[Answered]:
            return loop.run_in_executor(
                self._threads, answer_block, block, served, engine_options, self._limits
            )

        def record(answered: Answered) -> None:
            self._metrics.record_rows(served.name, answered.n_rows)
            self._metrics.lines_bad += answered.n_bad

        rows_max = max(1, min(self._limits.block_rows_max, self._limits.answer_labels_max // options.top_r))
        headers = {"xylem-model": served.name, "xylem-version": str(served.version)}
        if options.threshold == TUNED:
            headers |= stale_headers(served)
        return self._streams.answer(begin, record, rows_max, headers)
