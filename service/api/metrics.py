"""Figures for Prometheus: a registry of its own for each app, so that two apps in a process do not mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from service.inference.live import LiveStatus

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The figures of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = Counter(
            "xylem_requests_total", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "xylem_request_seconds",
            "Time from a request's headers to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._errors = Counter(
            "xylem_errors_total", "Requests refused or failed, by code.", ("code",), registry=self.registry
        )
        self._rows = Counter("xylem_rows_total", "Instances predicted.", ("model",), registry=self.registry)
        self.in_flight = Gauge("xylem_requests_in_flight", "Requests being answered.", registry=self.registry)
        self.lines_bad = Counter(
            "xylem_batch_lines_bad_total", "Lines of batches answered by an error.", registry=self.registry
        )
        self._of_request = lru_cache(maxsize=1024)(self._children)

    def record_request(self, route: str, status: int, code: str | None, seconds: float) -> None:
        """Count an answered request."""
        requests, timing = self._of_request(route, status)
        requests.inc()
        timing.observe(seconds)
        if code is not None:
            self._errors.labels(code).inc()

    def record_rows(self, model: str, n_rows: int) -> None:
        """Count predicted instances."""
        self._rows.labels(model).inc(n_rows)

    def watch(self, status: Callable[[], LiveStatus], ready: Callable[[], bool]) -> None:
        """Report the live models, read when the figures are."""
        self.registry.register(_LiveCollector(status, ready))

    def render(self) -> bytes:
        """Return the figures in Prometheus's text format."""
        return generate_latest(self.registry)

    def _children(self, route: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status)), self._seconds.labels(route)


class _LiveCollector(Collector):
    """The state of the live models."""

    def __init__(self, status: Callable[[], LiveStatus], ready: Callable[[], bool]) -> None:
        self._status = status
        self._ready = ready

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        status = self._status()
        yield GaugeMetricFamily("xylem_ready", "Whether /readyz says yes.", value=self._ready())
        aliases = GaugeMetricFamily(
            "xylem_model_version", "The version that an alias serves.", labels=("model", "alias")
        )
        for pointer in status.pointers:
            aliases.add_metric((pointer.model, pointer.alias), pointer.version)
        yield aliases
        failed = GaugeMetricFamily(
            "xylem_model_failed", "Versions and aliases that cannot be served.", labels=("model", "ref")
        )
        for failure in status.failures:
            failed.add_metric((failure.model, failure.ref), 1)
        yield failed
        yield CounterMetricFamily("xylem_model_swaps", "Aliases moved since the start.", value=status.swaps)
        yield GaugeMetricFamily(
            "xylem_store_failed", "Whether the last look at the store failed.", value=bool(status.store_error)
        )
