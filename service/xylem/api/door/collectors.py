"""Figures that are read when they are asked for: stages, streams, shadow versions, workers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from xylem.api.door.streams import Streams
from xylem.base import STAGE_SECONDS, StageTimes
from xylem.serving import TOPS, ShadowOutcome
from xylem.thresholds import FeedbackRows

AnyFamily = TypeVar("AnyFamily", GaugeMetricFamily, CounterMetricFamily)


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
        seconds.add_metric(
            (stage,), list(zip(bounds, accumulate(counts), strict=True)), 1e-9 * total
        )
    yield seconds


def labelled(
    kind: Callable[..., AnyFamily],
    name: str,
    documentation: str,
    labels: tuple[str, ...],
    samples: Iterable[tuple[Any, float]],
) -> AnyFamily:
    """Return a family of figures: what its labels say, or what its
    label says, and the value, of each.
    """
    family = kind(name, documentation, labels=labels)
    for label_values, value in samples:
        family.add_metric(
            list(map(str, label_values if isinstance(label_values, tuple) else (label_values,))),
            value,
        )
    return family


def read_streams(streams_of: Mapping[str, Streams]) -> Iterator[Metric]:
    """Yield the streams of lines: open, worked on, stalled, cut off."""
    labels = ("stream",)
    of_kinds = streams_of.items()
    opened = ((kind, streams.open) for kind, streams in of_kinds)
    yield labelled(
        GaugeMetricFamily, "xylem_streams_open", "Streams being answered.", labels, opened
    )
    documentation = "Blocks of streams being answered or waiting to be sent."
    blocks = ((kind, streams.blocks) for kind, streams in of_kinds)
    yield labelled(GaugeMetricFamily, "xylem_stream_blocks", documentation, labels, blocks)
    documentation = "Streams that have waited for a second or longer for their client to read."
    stalled = ((kind, streams.stalled()) for kind, streams in of_kinds)
    yield labelled(GaugeMetricFamily, "xylem_streams_stalled", documentation, labels, stalled)
    documentation = "Streams ended because their client sent too little."
    cut = ((kind, streams.cut) for kind, streams in of_kinds)
    yield labelled(CounterMetricFamily, "xylem_streams_cut", documentation, labels, cut)


def read_rows(rows: FeedbackRows) -> Iterator[Metric]:
    """Yield the rows of feedback that are kept, and those that were removed."""
    documentation = "Rows of feedback that are kept."
    row_counts = rows.kept.items()
    yield labelled(GaugeMetricFamily, "xylem_feedback_rows", documentation, ("model",), row_counts)
    documentation = "Rows of feedback removed because they were too many (rows) or too old (days)."
    dropped = rows.dropped.items()
    yield labelled(
        CounterMetricFamily,
        "xylem_feedback_rows_dropped",
        documentation,
        ("model", "bound"),
        dropped,
    )


_VERSION = ("model", "version")

disable_created_metrics()  # type: ignore[no-untyped-call]
"""When a figure was made is no figure of ours, and a series for each."""


class ShadowFigures:
    """Counts outcomes, which any thread may record, in figures of a registry."""

    def __init__(self, registry: CollectorRegistry, bounds: tuple[float, ...]) -> None:
        documentation = "Copies of requests for a shadow version, by what became of them."
        labels = (*_VERSION, "result")
        self._requests = Counter(
            "xylem_shadow_version_requests", documentation, labels, registry=registry
        )
        documentation = "Time that a shadow version took for a request."
        self._seconds = Histogram(
            "xylem_shadow_version_seconds",
            documentation,
            _VERSION,
            registry=registry,
            buckets=bounds,
        )
        documentation = "First labels of answers that were compared with a shadow version's."
        pair = *_VERSION, "answered", "top"
        self._compared = Counter(
            "xylem_shadow_version_compared", documentation, pair, registry=registry
        )
        documentation = "Of them, those that the shadow version has too."
        self._agreed = Counter(
            "xylem_shadow_version_agreed", documentation, pair, registry=registry
        )

    def record(self, outcome: ShadowOutcome) -> None:
        """Count what became of a copy of a request."""
        name = outcome.model, str(outcome.version)
        self._requests.labels(*name, outcome.result).inc()
        if outcome.result == "dropped":
            return
        self._seconds.labels(*name).observe(outcome.seconds)
        for top, compared, agreed in zip(TOPS, outcome.compared, outcome.agreed, strict=True):
            pair = *name, str(outcome.answered), str(top)
            self._compared.labels(*pair).inc(compared)
            self._agreed.labels(*pair).inc(agreed)

    def forget_closed(self, is_open: Collection[tuple[str, str]]) -> None:
        """Forget the figures of versions that are no longer open, so that series stay bounded."""
        for figure in (self._requests, self._seconds, self._compared, self._agreed):
            for sample in [sample for metric in figure.collect() for sample in metric.samples]:
                if (sample.labels["model"], sample.labels["version"]) not in is_open:
                    figure.remove(*(value for name, value in sample.labels.items() if name != "le"))
