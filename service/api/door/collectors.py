"""Figures that are read when they are asked for: stages, streams, shadow versions, workers."""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from service.api.door.streams import Streams
from service.base.stages import STAGE_SECONDS, StageTimes
from service.serving.shadows import TOPS, ShadowOutcome
from service.thresholds.store.feedback_rows import FeedbackRows


class Reading(Collector):
    """Figures that a function reads when they are asked for."""

    def __init__(self, read: Callable[[], Iterator[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        return self._read()


def read_stages(stages: StageTimes) -> Iterator[Metric]:
    """Yield how long the stages of answers took."""
    seconds = HistogramMetricFamily(
        "xylem_stage_seconds", "Time that a stage of an answer took.", labels=("stage",)
    )
    bounds = (*map(floatToGoString, STAGE_SECONDS), "+Inf")
    for stage, counts, total in stages.figures():
        seconds.add_metric((stage,), list(zip(bounds, accumulate(counts), strict=True)), 1e-9 * total)
    yield seconds


def read_streams(streams_of: Mapping[str, Streams]) -> Iterator[Metric]:
    """Yield the streams of lines: open, worked on, stalled, cut off."""
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
    for name, streams in streams_of.items():
        open_now.add_metric((name,), streams.open)
        blocks.add_metric((name,), streams.blocks)
        stalled.add_metric((name,), streams.stalled())
        cut.add_metric((name,), streams.cut)
    yield from (open_now, blocks, stalled, cut)


def read_rows(rows: FeedbackRows) -> Iterator[Metric]:
    """Yield the rows of feedback that are kept, and those that were removed."""
    kept = GaugeMetricFamily("xylem_feedback_rows", "Rows of feedback that are kept.", labels=("model",))
    for model, n in rows.kept.items():
        kept.add_metric((model,), n)
    dropped = CounterMetricFamily(
        "xylem_feedback_rows_dropped",
        "Rows of feedback removed because they were too many (rows) or too old (days).",
        labels=("model", "bound"),
    )
    for key, n in rows.dropped.items():
        dropped.add_metric(key, n)
    yield from (kept, dropped)


def read_worker() -> Iterator[Metric]:
    """Yield that this worker answers: of one that does not, those that do say so."""
    yield GaugeMetricFamily("xylem_worker_up", "Whether a worker answered this scrape.", value=1)


_Version = tuple[str, str]
"""A model, and the number of a version."""


class ShadowFigures(Collector):
    """Counts outcomes, which any thread may record.

    bounds  of the histogram of seconds
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        self._results: Counter[tuple[str, str, str]] = Counter()
        self._counts: defaultdict[_Version, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._seconds: Counter[_Version] = Counter()
        self._compared: Counter[tuple[str, str, str, str]] = Counter()
        self._agreed: Counter[tuple[str, str, str, str]] = Counter()

    def record(self, outcome: ShadowOutcome) -> None:
        """Count what became of a copy of a request."""
        name = outcome.model, str(outcome.version)
        with self._lock:
            self._results[(*name, outcome.result)] += 1
            if outcome.result == "dropped":
                return
            self._counts[name][bisect_left(self._bounds, outcome.seconds)] += 1
            self._seconds[name] += outcome.seconds  # type: ignore[assignment]
            for top, compared, agreed in zip(TOPS, outcome.compared, outcome.agreed, strict=True):
                key = *name, str(outcome.answered), str(top)
                self._compared[key] += compared
                self._agreed[key] += agreed

    def forget_closed(self, is_open: Collection[_Version]) -> None:
        """Forget the figures of versions that are no longer open, so that series stay bounded."""
        every: tuple[dict[Any, Any], ...] = (
            self._results,
            self._counts,
            self._seconds,
            self._compared,
            self._agreed,
        )
        with self._lock:
            for figures in every:
                for key in [each for each in figures if each[:2] not in is_open]:
                    del figures[key]

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        labels = "model", "version"
        requests = CounterMetricFamily(
            "xylem_shadow_version_requests",
            "Copies of requests for a shadow version, by what became of them.",
            labels=(*labels, "result"),
        )
        seconds = HistogramMetricFamily(
            "xylem_shadow_version_seconds", "Time that a shadow version took for a request.", labels=labels
        )
        pair = (*labels, "answered", "top")
        compared = CounterMetricFamily(
            "xylem_shadow_version_compared",
            "First labels of answers that were compared with a shadow version's.",
            labels=pair,
        )
        agreed = CounterMetricFamily(
            "xylem_shadow_version_agreed", "Of them, those that the shadow version has too.", labels=pair
        )
        with self._lock:
            for key, n in self._results.items():
                requests.add_metric(key, n)
            for name, counts in self._counts.items():
                bounds = (*map(floatToGoString, self._bounds), "+Inf")
                buckets = list(zip(bounds, accumulate(counts), strict=True))
                seconds.add_metric(name, buckets, self._seconds[name])
            for family, figures in ((compared, self._compared), (agreed, self._agreed)):
                for pair_key, n in figures.items():
                    family.add_metric(pair_key, n)
        yield from (requests, seconds, compared, agreed)
