"""Metrics that every process of the service reports: of its log, and of its followers."""

import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xylem.base.logs import lines_dropped
from xylem.base.repeating import succeeded_at


class ProcessFigures(Collector):
    """A collector of the metrics of this process."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield CounterMetricFamily(
            "xylem_log_lines_dropped", "Log lines that could not be written.", value=lines_dropped()
        )
        ages = GaugeMetricFamily(
            "xylem_follower_age_seconds",
            "Seconds since a follower last succeeded, or was started.",
            labels=("follower",),
        )
        for name, at_seconds in sorted(succeeded_at.copy().items()):
            ages.add_metric((name,), time.monotonic() - at_seconds)
        yield ages
