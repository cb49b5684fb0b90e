"""POST /v1/models/{model}/feedback: true labels in, each event counted once; JSON, or streamed NDJSON."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from model_store.errors import VersionNotFound
from service.api.admission import JSON, NDJSON, check_media, read_body
from service.api.events import Checked, Verdict, check_event, refused, to_events, verdict_line
from service.api.learning import Learning
from service.api.lines import Block
from service.api.metrics import Metrics
from service.api.parse import parse_feedback, parse_json
from service.api.routing import RawRoute
from service.api.served import LiveServed, Served, find_served
from service.api.streams import Answered, Streams
from service.api.wire import dump_line, json_response
from service.errors import BadInput, DatabaseUnavailable, LimitExceeded
from service.settings import Limits
from service.thresholds.counting import Event

BLOCK_EVENTS_MAX = 64
"""Events of a stream that are committed together."""

SHORT_EVENTS = 4
"""Events of a request that are read on the event loop; more go to a thread."""

SHORT_BYTES = 1 << 14
"""Bytes of a request's body that are read there."""


class Done(NamedTuple):
    """What became of the events of a block, in their order, and the epoch of the thresholds after it."""

    verdicts: list[Verdict]
    epoch: int


class FeedbackRoutes:
    """The routes, and what they work with."""

    def __init__(self, live: LiveServed, learning: Learning, metrics: Metrics, limits: Limits) -> None:
        self._live = live
        self._learning = learning
        self._metrics = metrics
        self._limits = limits
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="xylem-events")
        self._streams = Streams(limits)

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        paths = "", "/versions/{version}", "/aliases/{alias}"
        return [
            RawRoute(f"/v1/models/{{model}}{path}/feedback", self.feedback, methods=["POST"])
            for path in paths
        ]

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def feedback(self, request: Request) -> Response:
        """Count the events of a request; each is durable when the answer says that it was applied.

        Events with an instance belong to the version of the path, those with a prediction_id to the version
        that made the prediction.
        """
        check_media(request.scope, JSON | NDJSON)
        served = await find_served(request, self._live)
        if _is_json(request):
            return await self._answer_json(request, served)
        fault = self._learning.follower.fault
        if fault is not None:
            raise DatabaseUnavailable(fault)
        return self._answer_stream(served)

    async def _answer_json(self, request: Request, served: Served) -> Response:
        body = await read_body(request, self._limits)
        values = parse_feedback(body, self._limits)
        done = await self._count(values, served, is_stream=False, is_long=len(body) > SHORT_BYTES)
        return json_response(
            {
                "model": served.name,
                "version": served.version,
                "threshold_epoch": done.epoch or None,
                "results": [verdict_line(verdict, {}) for verdict in done.verdicts],
            }
        )

    def _answer_stream(self, served: Served) -> Response:
        async def begin(block: Block) -> asyncio.Task[Answered]:
            values = [_value(line, self._limits) for line in block.lines]
            counting = await self._begin(values, served, is_stream=True, is_long=True)
            return asyncio.create_task(_lines(block.first, counting))

        headers = {"xylem-model": served.name, "xylem-version": str(served.version)}
        return self._streams.answer(begin, lambda answered: None, BLOCK_EVENTS_MAX, headers)

    async def _count(self, values: Sequence[Any], served: Served, *, is_stream: bool, is_long: bool) -> Done:
        return await (await self._begin(values, served, is_stream=is_stream, is_long=is_long))

    async def _begin(
        self, values: Sequence[Any], served: Served, *, is_stream: bool, is_long: bool
    ) -> asyncio.Task[Done]:
        """Read events and hand them to the writer; what returns is done once they are durable."""
        if is_long or len(values) > SHORT_EVENTS:
            loop = asyncio.get_running_loop()
            checked = await loop.run_in_executor(self._threads, self._check, values, served)
            parts = await self._by_version(checked, served)
            events = await loop.run_in_executor(self._threads, _all_events, parts)
        else:
            parts = await self._by_version(self._check(values, served), served)
            events = _all_events(parts)
        verdicts: list[Verdict | None] = [None] * len(values)
        waiting = []
        for part, found in zip(parts, events, strict=True):
            counted: list[tuple[int, Event]] = []
            for (place, _), event in zip(part.places, found, strict=True):
                if isinstance(event, Verdict):
                    verdicts[place] = event
                else:
                    counted.append((place, event))
            if counted and part.served is not None:
                submitted = self._learning.writer.submit(
                    part.served.thresholds, [event for _, event in counted], may_wait=is_stream
                )
                waiting.append((counted, asyncio.wrap_future(submitted)))
        ids = [value.get("event_id") if isinstance(value, dict) else None for value in values]
        return asyncio.create_task(self._finish(ids, verdicts, waiting, served))

    async def _finish(
        self,
        ids: Sequence[Any],
        verdicts: list[Verdict | None],
        waiting: Sequence[tuple[list[tuple[int, Event]], asyncio.Future[Any]]],
        served: Served,
    ) -> Done:
        """Wait for the writer, and return the verdicts in the events' order."""
        outcomes = await asyncio.gather(*(future for _, future in waiting))
        for (counted, _), outcome in zip(waiting, outcomes, strict=True):
            for (place, _), result in zip(counted, outcome.results, strict=True):
                is_late = result == "late"
                verdicts[place] = Verdict(
                    ids[place],
                    result,
                    "thresholds-replaced" if is_late else None,
                    "expected a prediction at thresholds since tuned or restored anew" if is_late else None,
                )
        done = [verdict for verdict in verdicts if verdict is not None]
        self._metrics.record_events(served.name, [verdict.result for verdict in done])
        return Done(done, served.thresholds.epoch)

    def _check(self, values: Sequence[Any], served: Served) -> list[Checked | Verdict]:
        tokens = self._learning.tokens
        return [
            refused(None, value)
            if isinstance(value, BadInput)
            else check_event(value, served.name, tokens, self._limits)
            for value in values
        ]

    async def _by_version(self, checked: Sequence[Checked | Verdict], served: Served) -> list[_Part]:
        """Return the events by the version they belong to; a version that is gone has verdicts instead."""
        groups: dict[int, list[tuple[int, Checked | Verdict]]] = {}
        for place, one in enumerate(checked):
            is_other = isinstance(one, Checked) and one.token is not None
            version = one.token.version if is_other else served.version  # type: ignore[union-attr]
            groups.setdefault(version, []).append((place, one))
        parts = []
        for version, places in groups.items():
            if version == served.version:
                parts.append(_Part(served, places))
                continue
            try:
                parts.append(_Part(await self._live.find(served.name, str(version)), places))
            except VersionNotFound as error:
                gone = [(place, _late(one, str(error))) for place, one in places]
                parts.append(_Part(None, gone))
        return parts


class _Part(NamedTuple):
    """The events of one version, with their places in the request; None: the version is gone."""

    served: Served | None
    places: Sequence[tuple[int, Checked | Verdict]]


def _all_events(parts: Sequence[_Part]) -> list[list[Event | Verdict]]:
    """Return for each part what is to be counted of its events."""
    found = []
    for served, places in parts:
        checked = [one for _, one in places if isinstance(one, Checked)]
        events = iter(to_events(checked, served) if served is not None else ())
        found.append([next(events) if isinstance(one, Checked) else one for _, one in places])
    return found


def _late(one: Checked | Verdict, detail: str) -> Verdict:
    if isinstance(one, Verdict):
        return one
    return Verdict(one.feedback.event_id, "late", "version-gone", detail)


async def _lines(first: int, counting: asyncio.Task[Done]) -> Answered:
    """Return the lines that answer a block of a stream."""
    done = await counting
    lines = b"".join(
        dump_line(verdict_line(verdict, {"line": first + i})) for i, verdict in enumerate(done.verdicts)
    )
    n_bad = sum(verdict.result == "rejected" for verdict in done.verdicts)
    return Answered(lines, len(done.verdicts) - n_bad, n_bad)


def _value(line: bytes | None, limits: Limits) -> Any:
    """Return the JSON value of a line, or what is wrong with it."""
    if line is None:
        most = limits.line_bytes_max
        return LimitExceeded(f"expected a line of at most {most} bytes (limit line_bytes_max), found more")
    try:
        return parse_json(line)
    except BadInput as error:
        return error


def _is_json(request: Request) -> bool:
    return request.headers["content-type"].partition(";")[0].strip().lower().encode() in JSON
