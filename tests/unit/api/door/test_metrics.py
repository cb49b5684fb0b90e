"""What is noted of requests: figures by version and of all workers, log lines, spans;
none is lost.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import orjson
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xylem.api.door import neighbours
from xylem.api.door.metrics import SECONDS, TIMINGS_BEGUN, Metrics, Series, Timing, read_live
from xylem.api.door.neighbours import Neighbours, WorkerPlace, join_pages
from xylem.api.door.request_log import SETTLE_SECONDS, RequestLog
from xylem.api.door.request_timings import AnsweredBy, EndedRequest
from xylem.base.stages import READ, StageTimings
from xylem.base.traces.tracer import EndedTrace, Sampling, Tracer
from xylem.serving.live.split import Failure, LiveStatus
from xylem_store.alias import Alias

ROUTE = "/v1/models/{model}/predict"


def watched(open_versions: set[tuple[str, int]]) -> Metrics:
    metrics = Metrics()
    metrics.open_versions = lambda: open_versions
    metrics.report(partial(read_live, lambda: LiveStatus([], [], 0, None), lambda: True))
    return metrics


def count(metrics: Metrics, model: str, version: str, n: int, bucket: int = 0) -> Timing:
    timing = metrics.timing(Series(ROUTE, 200, model, version))
    timing.counts[bucket] += n
    timing.seconds += n
    return timing


def test_requests_of_closed_versions_count_as_those_of_none() -> None:
    opened = {("a", 1), ("a", 2)}
    metrics = watched(opened)
    first = count(metrics, "a", "1", 5)
    count(metrics, "a", "2", 7)
    count(metrics, "", "", 2, bucket=3)
    before = asyncio.run(metrics.page()).decode()
    assert (
        f'xylem_requests_total{{model="a",route="{ROUTE}",status="200",version="1"}} 5.0' in before
    )
    opened.remove(("a", 2))
    text = asyncio.run(metrics.page()).decode()
    assert 'version="2"' in before
    assert 'version="2"' not in text
    assert f'xylem_requests_total{{model="",route="{ROUTE}",status="200",version=""}} 9.0' in text
    assert f'xylem_request_seconds_sum{{model="",route="{ROUTE}",version=""}} 9.0' in text
    assert metrics.timing(Series(ROUTE, 200, "a", "1")) is first


def test_series_are_bounded_when_nobody_asks_for_the_figures() -> None:
    opened: set[tuple[str, int]] = set()
    metrics = watched(opened)
    for version in range(1, 20 * TIMINGS_BEGUN):
        opened.clear()
        opened.add(("a", version))
        count(metrics, "a", str(version), 1)
        assert len(metrics.timings) <= TIMINGS_BEGUN + 4
    assert sum(sum(timing.counts) for timing in metrics.timings.values()) == version


class NamesItsThread(Collector):
    """A figure whose label says in which thread it was collected."""

    def __init__(self, name: str) -> None:
        self._name = name

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, "A figure.", labels=("thread",))
        family.add_metric((threading.current_thread().name,), 1)
        yield family


def test_counts_are_collected_on_the_loop_and_written_elsewhere() -> None:
    metrics = Metrics()
    metrics.registry.register(NamesItsThread("counted"))
    metrics.process.register(NamesItsThread("known"))
    here = f'thread="{threading.current_thread().name}"'
    for is_openmetrics in (False, True):
        page = asyncio.run(metrics.page(is_openmetrics=is_openmetrics, worker=3)).decode()
        counted, known = (
            line for line in page.splitlines() if line.startswith(("counted{", "known{"))
        )
        assert here in counted
        assert here not in known
        assert 'worker="3"' in counted
        assert 'worker="3"' in known


PAGE = b"# HELP a Figure.\n# TYPE a gauge\na 1.0\n" * 20


class Worker(Neighbours):
    """One of two workers, whose own page is given."""

    def __init__(self, place: WorkerPlace, page: bytes = b"ours") -> None:
        async def own_page(is_openmetrics: bool) -> bytes:
            return page

        super().__init__(place, own_page)

    async def found(self) -> list[bytes | None]:
        """The pages of both."""
        return await self.pages(is_openmetrics=False)


def two_places() -> tuple[WorkerPlace, WorkerPlace]:
    name = secrets.token_hex(16)
    return WorkerPlace(name, 0, 2), WorkerPlace(name, 1, 2)


@contextlib.asynccontextmanager
async def two_workers(page: bytes) -> AsyncIterator[tuple[Worker, WorkerPlace]]:
    """A worker that asks, and the place of another one that answers with `page`."""
    here, there = two_places()
    with contextlib.closing(Worker(there, page)) as answering:
        await answering.start()
        yield Worker(here), there


async def test_the_page_of_another_worker_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too long is left out."""
    for page in (PAGE, b"x" * (1 << 20)):
        async with two_workers(page) as (asking, _):
            assert await asking.found() == [b"ours", page]
    monkeypatch.setattr(neighbours, "PAGE_BYTES_MAX", len(PAGE) - 1)
    async with two_workers(PAGE) as (asking, _):
        assert await asking.found() == [b"ours", None]


@pytest.mark.parametrize("n_bytes", [0, 1, 8, 100, len(PAGE)])
async def test_a_worker_that_dies_while_it_answers_has_not_answered(n_bytes: int) -> None:
    """What it has sent by then could pass for a page of fewer figures."""
    async with two_workers(PAGE) as (_, place):
        reader, writer = await asyncio.open_unix_connection(place.socket_name(1))
        writer.write(b"p")
        sent = (await reader.read())[:n_bytes]
        writer.close()

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(sent)
        writer.close()

    here, dying = two_places()
    async with await asyncio.start_unix_server(die, dying.socket_name(1)):
        assert await Worker(here).found() == [b"ours", None]


async def test_a_worker_that_is_not_there_is_told_as_down() -> None:
    pages = await Worker(two_places()[0], PAGE).found()
    assert pages == [PAGE, None]
    assert b'xylem_worker_up{worker="1"} 0.0\n' in join_pages(pages)


async def test_a_worker_without_a_socket_serves_on(capfd: pytest.CaptureFixture[str]) -> None:
    """Another process may have the name, and some sandboxes have no such sockets."""
    async with two_workers(PAGE) as (asking, place):
        with contextlib.closing(Worker(place, b"late")) as late:
            await late.start()
            assert await late.found() == [None, b"late"]
        assert await asking.found() == [b"ours", PAGE]
    assert '"event":"figures_not_shared"' in capfd.readouterr().err


ENDED = EndedRequest(
    "POST", ROUTE, "/v1/models/tags/predict", 200, None, AnsweredBy("tags", 2, "latest")
)
REFUSED = EndedRequest("POST", ROUTE, "/v1/models/tags/predict", 422, "bad-request")
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
MILLISECOND = 1_000_000


def logging_to(sent: list[EndedTrace]) -> tuple[Metrics, Tracer, RequestLog]:
    """Return what notes requests, with the figures that it counts in,
    and spans that are handed to `sent`.
    """
    metrics, tracer = Metrics(), Tracer(Sampling(0, True), sent.append, lambda: None)
    return metrics, tracer, RequestLog(metrics, access_log=True, tracer=tracer)


async def test_what_is_settled_is_counted_logged_and_traced(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent: list[EndedTrace] = []
    metrics, tracer, requests = logging_to(sent)
    trace, stages = tracer.begin(PARENT + b"01"), StageTimings(is_traced=True)
    assert trace.span_id
    stages.end(READ)
    before = time.perf_counter_ns()
    outcome = requests.outcome(ENDED, is_traced=True)
    requests.record("first", outcome, before - 7 * MILLISECOND, trace, stages)
    requests.record("second", outcome, before)
    after = time.perf_counter_ns()
    requests.record("third", requests.outcome(REFUSED, is_traced=False), before)
    timing = metrics.timings[Series(ROUTE, 200, "tags", "2")]
    assert (sent, sum(timing.counts)) == ([], 0)
    await asyncio.sleep(20 * SETTLE_SECONDS)
    assert sum(timing.counts) == 2
    assert metrics.errors["bad-request"] == 1
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines()]
    told = [(line["request_id"], line.get("trace_id")) for line in lines]
    assert told == [("first", trace.id), ("second", None), ("third", None)]
    assert lines[0]["ms"] >= 7
    [span] = sent
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


async def test_a_span_that_is_not_sampled_is_in_the_log_line_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent: list[EndedTrace] = []
    metrics, tracer, requests = logging_to(sent)
    trace = tracer.begin(PARENT + b"00")
    requests.record("first", requests.outcome(ENDED, is_traced=True), time.perf_counter_ns(), trace)
    requests.settle()
    assert orjson.loads(capfd.readouterr().err)["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert not sent
    assert not metrics.timings[Series(ROUTE, 200, "tags", "2")].exemplars


@pytest.mark.parametrize(
    ("setting", "shown"), [("all", ["a", "b"]), ("none", []), ("a*, x", ["a"]), ("b", ["b"])]
)
def test_series_of_some_models_alone(setting: str, shown: list[str]) -> None:
    metrics = Metrics(setting)
    for model in ("a", "b"):
        metrics.timing(Series("/x", 200, model, "1")).counts[0] += 2
        metrics.rows[model] += 3
    status = LiveStatus(
        [((model, "latest"), Alias(1)) for model in ("a", "b")],
        [Failure(model, "2", "", 0.0) for model in ("a", "b")],
        0,
        None,
    )
    metrics.report(partial(read_live, lambda: status, lambda: True, metrics.series_models))
    samples = [each for family in metrics.collected() for each in family.samples]
    totals = dict.fromkeys(("xylem_requests_total", "xylem_rows_total", "xylem_model_failed"), 0.0)
    for sample in samples:
        assert sample.labels.get("model", "") in ("", *shown)
        if sample.name in totals:
            totals[sample.name] += sample.value
    assert list(totals.values()) == [4.0, 6.0, 2.0]
    keys = [(each.name, *sorted(each.labels.items())) for each in samples]
    assert len(keys) == len(set(keys))
    aliases = [each.labels["model"] for each in samples if each.name == "xylem_model_version"]
    assert aliases == shown
