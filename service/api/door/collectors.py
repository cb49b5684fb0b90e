"""Figures that are read when they are asked for: stages, streams, whether a worker answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from service.api.door.streams import Streams
from service.base.stages import STAGE_SECONDS, StageTimes


class StageCollector(Collector):
    """How long the stages of answers took."""

    def __init__(self, stages: StageTimes) -> None:
        self._stages = stages

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        seconds = HistogramMetricFamily(
            "xylem_stage_seconds", "Time that a stage of an answer took.", labels=("stage",)
        )
        bounds = (*map(floatToGoString, STAGE_SECONDS), "+Inf")
        for stage, counts, total in self._stages.figures():
            seconds.add_metric((stage,), list(zip(bounds, accumulate(counts), strict=True)), 1e-9 * total)
        yield seconds


class StreamCollector(Collector):
    """The streams of lines: open, worked on, stalled, cut off."""

    def __init__(self, streams: Mapping[str, Streams]) -> None:
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        labels = ("stream",)
        open_now = GaugeMetricFamily("xylem_streams_open", "Streams being answered.", labels=labels)
        blocks = GaugeMetricFamily(
            "xylem_stream_blocks", "Blocks of streams being answered or waiting to be sent.", labels=labels
        )
        stalled = GaugeMetricFamily(
            "xylem_streams_stalled",
            "Streams that have waited for a second or longer for their client to read.",
            labels=labels,
        )
        cut = CounterMetricFamily(
            "xylem_streams_cut", "Streams ended because their client sent too little.", labels=labels
        )
        for name, streams in self._streams.items():
            open_now.add_metric((name,), streams.open)
            blocks.add_metric((name,), streams.blocks)
            stalled.add_metric((name,), streams.stalled())
            cut.add_metric((name,), streams.cut)
        yield from (open_now, blocks, stalled, cut)


class WorkerCollector(Collector):
    """That this worker answers: of one that does not, those that do say so."""

    def collect(self) -> Iterator[Metric]:
        """Yield the figure."""
        yield GaugeMetricFamily("xylem_worker_up", "Whether a worker answered this scrape.", value=1)
