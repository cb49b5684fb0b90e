"""What is noted of requests that have ended: counted, logged and traced together, a moment later."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest

from service.api.door.metrics import SECONDS, Metrics, Series
from service.api.door.request_log import SETTLE_SECONDS, RequestLog
from service.api.door.request_notes import AnsweredBy, EndedRequest
from service.base.stages import READ, StageNotes
from service.traces.context import Sampling
from service.traces.tracer import EndedTrace, Trace, Tracer

ROUTE = "/v1/models/{model}/predict"
ENDED = EndedRequest("POST", ROUTE, "/v1/models/tags/predict", 200, None, AnsweredBy("tags", 2, "latest"))
REFUSED = EndedRequest("POST", ROUTE, "/v1/models/tags/predict", 422, "bad-request")
MILLISECOND = 1_000_000


class Kept:
    """Keeps what is handed on to be sent."""

    def __init__(self) -> None:
        self.traces: list[EndedTrace] = []

    def send(self, ended: EndedTrace) -> None:
        """Take a span."""
        self.traces.append(ended)

    def close(self) -> None:
        """Do nothing."""


def sampled(tracer: Tracer) -> Trace:
    trace = tracer.begin(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert trace is not None
    assert trace.span_id
    return trace


def test_requests_are_counted_logged_and_traced_when_they_are_settled(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kept, metrics = Kept(), Metrics()
    tracer = Tracer(Sampling(0, True), kept)
    requests = RequestLog(metrics, access_log=True, tracer=tracer)
    trace, stages = sampled(tracer), StageNotes(is_traced=True)
    stages.end(READ)

    async def answer() -> tuple[int, int]:
        before, after = time.perf_counter_ns(), 0
        outcome = requests.outcome(ENDED, is_traced=True)
        requests.record("first", outcome, before - 7 * MILLISECOND, trace, stages)
        requests.record("second", outcome, before)
        after = time.perf_counter_ns()
        requests.record("third", requests.outcome(REFUSED, is_traced=False), before)
        assert not kept.traces
        assert sum(metrics.timings[Series(ROUTE, 200, "tags", "2")].counts) == 0
        await asyncio.sleep(20 * SETTLE_SECONDS)
        return before, after

    before, after = asyncio.run(answer())
    timing = metrics.timings[Series(ROUTE, 200, "tags", "2")]
    assert sum(timing.counts) == 2
    assert metrics.errors["bad-request"] == 1
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["request_id"] for line in lines] == ["first", "second", "third"]
    assert [line.get("trace_id") for line in lines] == [trace.id, None, None]
    assert lines[0]["ms"] >= 7
    [span] = kept.traces
    assert before <= span.ended <= after  # and not when it was settled
    assert span.ended - span.began == pytest.approx(1e6 * lines[0]["ms"], abs=1000)
    [(names, (began, ended))] = span.stretches
    assert (names, began <= ended) == (("read",), True)
    assert metrics.stages.figures()[READ][0] == "read"
    assert sum(metrics.stages.figures()[READ][1]) == 1
    [(place, (pointed, seconds, _))] = timing.exemplars.items()
    assert pointed is trace
    assert SECONDS[place - 1] < seconds <= SECONDS[place]
    assert timing.counts[place] == 1


def test_a_span_that_is_not_sampled_is_in_the_log_line_alone(capfd: pytest.CaptureFixture[str]) -> None:
    kept, metrics = Kept(), Metrics()
    tracer = Tracer(Sampling(0, True), kept)
    requests = RequestLog(metrics, access_log=True, tracer=tracer)
    trace = tracer.begin(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")

    async def answer() -> None:
        requests.record("first", requests.outcome(ENDED, is_traced=True), time.perf_counter_ns(), trace)
        requests.settle()

    asyncio.run(answer())
    assert orjson.loads(capfd.readouterr().err)["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert not kept.traces
    assert not metrics.timings[Series(ROUTE, 200, "tags", "2")].exemplars
