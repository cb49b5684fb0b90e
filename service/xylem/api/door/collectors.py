"""Collectors of figures that are read at each scrape: stages, streams, rows, shadow versions."""

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
from prometheus_client.utils import floatToGoString

from xylem.api.door.streams import Streams
from xylem.base import STAGE_SECONDS, KeyRing, StageTimes
from xylem.serving import TOPS, ShadowOutcome
from xylem.thresholds import FeedbackRows

AnyFamily = TypeVar("AnyFamily", GaugeMetricFamily, CounterMetricFamily)


def read_stages(stages: StageTimes) -> Iterator[Metric]:
    """Yield the histogram of the time that each stage of the answers took."""
    seconds = HistogramMetricFamily(
        "xylem_stage_seconds", "Time that a stage of an answer took.", labels=("stage",)
    )
    bounds = (*map(floatToGoString, STAGE_SECONDS), "+Inf")
    for stage, counts, total in stages.figures():
        seconds.add_metric(
            (stage,), list(zip(bounds, accumulate(counts), strict=True)), 1e-9 * total
        )
    yield seconds


def read_keys(ring: KeyRing) -> Iterator[Metric]:
    """Yield what each key sent to each model."""
    kinds = {
        "requests": "Requests of a key to a model.",
        "rows": "Rows of a key that a model answered.",
        "characters": "Characters of a key's requests, as bytes of UTF-8.",
        "search_seconds": "Seconds in which a key's rows were searched.",
    }
    totals = list(ring.usage.totals.items())
    for i, (kind, documentation) in enumerate(kinds.items()):
        yield labelled(
            CounterMetricFamily,
            f"xylem_key_{kind}",
            documentation,
            ("key", "model"),
            [(place, counts[i]) for place, counts in totals],
        )


def labelled(
    kind: Callable[..., AnyFamily],
    name: str,
    documentation: str,
    labels: tuple[str, ...],
    samples: Iterable[tuple[Any, float]],
) -> AnyFamily:
    """Return a family of figures.

    kind           the class of the family
    name           the name of the metric
    documentation  one sentence on what the metric means
    labels         the names of the labels
    samples        for each figure a pair: the values of its labels (of a single label, its value),
                   and the number
    """
    family = kind(name, documentation, labels=labels)
    for label_values, value in samples:
        family.add_metric(
            list(map(str, label_values if isinstance(label_values, tuple) else (label_values,))),
            value,
        )
    return family


_STREAM_FIGURES: tuple[tuple[Any, str, str, Callable[[Streams], float]], ...] = (
    (
        GaugeMetricFamily,
        "xylem_streams_open",
        "Streams being answered.",
        lambda streams: streams.open,
    ),
    (
        GaugeMetricFamily,
        "xylem_stream_blocks",
        "Blocks of streams being answered or waiting to be sent.",
        lambda streams: streams.blocks,
    ),
    (
        GaugeMetricFamily,
        "xylem_streams_stalled",
        "Streams that have waited for a second or longer for their client to read.",
        Streams.stalled,
    ),
    (
        GaugeMetricFamily,
        "xylem_stream_spooled_bytes",
        "Bytes of answers in temporary files, which clients have not read yet.",
        Streams.spooled,
    ),
    (
        CounterMetricFamily,
        "xylem_streams_cut",
        "Streams ended because their client sent too little.",
        lambda streams: streams.cut,
    ),
)


def read_streams(streams_of: Mapping[str, Streams]) -> Iterator[Metric]:
    """Yield the figures of the streams of lines: open, in work, stalled, in files, and cut off.

    streams_of  the streams by kind, which is the label `stream`
    """
    for family, name, documentation, figure_of in _STREAM_FIGURES:
        yield labelled(
            family,
            name,
            documentation,
            ("stream",),
            ((kind, figure_of(streams)) for kind, streams in streams_of.items()),
        )


def read_rows(rows: FeedbackRows) -> Iterator[Metric]:
    """Yield the number of feedback rows that are stored, and of those that were removed."""
    yield labelled(
        GaugeMetricFamily,
        "xylem_feedback_rows",
        "Rows of feedback that are kept.",
        ("model",),
        rows.row_counts.items(),
    )
    yield labelled(
        CounterMetricFamily,
        "xylem_feedback_rows_dropped",
        "Rows of feedback removed because they were too many (rows) or too old (days).",
        ("model", "bound"),
        rows.dropped.items(),
    )


_VERSION = ("model", "version")

# no `_created` series: they would double the number of series, and nobody needs these times
disable_created_metrics()  # type: ignore[no-untyped-call]


class ShadowFigures:
    """Counts the outcomes of shadow versions, which any thread may record.

    registry  the figures are registered here
    bounds    the upper bounds of the histogram's buckets, in seconds
    """

    def __init__(self, registry: CollectorRegistry, bounds: tuple[float, ...]) -> None:
        self._requests = Counter(
            "xylem_shadow_version_requests",
            "Copies of requests for a shadow version, by result.",
            (*_VERSION, "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            "xylem_shadow_version_seconds",
            "Time that a shadow version took for a request.",
            _VERSION,
            registry=registry,
            buckets=bounds,
        )
        pair = *_VERSION, "answered", "top"
        self._compared = Counter(
            "xylem_shadow_version_compared",
            "First labels of answers that were compared with a shadow version's.",
            pair,
            registry=registry,
        )
        self._agreed = Counter(
            "xylem_shadow_version_agreed",
            "Compared first labels that both versions have.",
            pair,
            registry=registry,
        )

    def record(self, outcome: ShadowOutcome) -> None:
        """Count the outcome of one copy of a request."""
        name = outcome.model, str(outcome.version)
        self._requests.labels(*name, outcome.result).inc()
        if outcome.result == "dropped":
            return
        self._seconds.labels(*name).observe(outcome.seconds)
        for top, compared, agreed in zip(TOPS, outcome.compared, outcome.agreed, strict=True):
            pair = *name, str(outcome.answered), str(top)
            self._compared.labels(*pair).inc(compared)
            self._agreed.labels(*pair).inc(agreed)

    def forget_closed(self, open_versions: Collection[tuple[str, str]]) -> None:
        """Remove the figures of versions that are not open any more: so series stay bounded."""
        for figure in (self._requests, self._seconds, self._compared, self._agreed):
            for sample in [sample for metric in figure.collect() for sample in metric.samples]:
                if (sample.labels["model"], sample.labels["version"]) not in open_versions:
                    figure.remove(*(value for name, value in sample.labels.items() if name != "le"))
