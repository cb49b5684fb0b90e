"""Figures by version: series go with their versions, and no request is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.api.door.metrics import TIMINGS_BEGUN, Metrics, Series, Timing
from service.serving.split import LiveStatus

ROUTE = "/v1/models/{model}/predict"


def watched(open_versions: set[tuple[str, int]]) -> Metrics:
    metrics = Metrics()
    metrics.watch(lambda: LiveStatus([], [], 0, None), lambda: True, lambda: open_versions)
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
    text = asyncio.run(metrics.page()).decode()
    assert f'xylem_requests_total{{model="a",route="{ROUTE}",status="200",version="1"}} 5.0' in text
    opened.remove(("a", 2))
    text = asyncio.run(metrics.page()).decode()
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


def test_counts_are_collected_on_the_event_loop_and_written_elsewhere() -> None:
    metrics = Metrics()
    metrics.registry.register(NamesItsThread("counted"))
    metrics.process.register(NamesItsThread("known"))
    here = f'thread="{threading.current_thread().name}"'
    for is_openmetrics in (False, True):
        page = asyncio.run(metrics.page(is_openmetrics=is_openmetrics, worker=3)).decode()
        counted, known = (
            next(line for line in page.splitlines() if line.startswith(f"{name}{{"))
            for name in ("counted", "known")
        )
        assert here in counted
        assert here not in known
        assert all('worker="3"' in line for line in (counted, known))
