"""Figures for Prometheus. Each app has a registry of its own, so that two apps do not mix."""

import asyncio
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version as version_of
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from xylem.api.door.admission import Admission
from xylem.api.door.series_models import SeriesModels
from xylem.api.door.streams import Streams
from xylem.api.door.work import WorkPool
from xylem.base import STAGE_SECONDS, KeyRing, ProcessFigures, StageTimes, Trace
from xylem.serving import TOPS, LiveStatus, ShadowOutcome, roles_of
from xylem.thresholds import FeedbackRows, Follower
from xylem_store import PARTS, code_version

AnyFamily = TypeVar("AnyFamily", GaugeMetricFamily, CounterMetricFamily)


class FunctionCollector(Collector):
    """A collector whose figures are read by a function at each scrape."""

    def __init__(self, read: Callable[[], Iterator[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        return self._read()


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
    """Yield the counters of each key and model: requests, rows, characters, seconds of search."""
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


SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# When there are this many series, a new one calls `fold_closed` for the first time.
TIMINGS_BEGUN = 1024


class Series(NamedTuple):
    """The labels of one Timing.

    model, version  the version that answered; empty: no version answered, or it is not open any
                    more
    """

    route: str
    status: int
    model: str
    version: str


class Timing:
    """Counts and times of the requests of one series.

    counts     for each bound of SECONDS, how many requests took at most this time, and longer than
               the previous bound; then how many took longer than all bounds
    exemplars  by index in `counts`, the last of these requests that is sampled: its span, its
               seconds, and when it ended
    """

    __slots__ = ("counts", "exemplars", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.exemplars: dict[int, tuple[Trace, float, float]] = {}

    def add(self, other: "Timing") -> None:
        """Add the requests of another Timing."""
        self.counts = [
            count + other_count
            for count, other_count in zip(self.counts, other.counts, strict=True)
        ]
        self.seconds += other.seconds
        self.exemplars |= other.exemplars


class Metrics:
    """The figures of one app.

    Requests are counted in plain numbers, without locks: event loop only.
    """

    def __init__(self, models: str = "all") -> None:
        """Take which models have series of their own, as `SeriesModels` does."""
        self.series_models = SeriesModels(models)
        # the figures of the app, and those of its process, which any thread may read
        self.registry, self.process = CollectorRegistry(), CollectorRegistry()
        self.stages = StageTimes()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.process)
        self.registry.register(ProcessFigures())
        self.report(_read_requests, self)
        self.report(read_stages, self.stages)
        # for a worker that does not answer, the others report 0: see `neighbours.join_pages`
        Gauge(
            "xylem_worker_up", "Whether a worker answered this scrape.", registry=self.registry
        ).set(1)
        self.shadows = ShadowFigures(self.registry, SECONDS)
        # counts the requests that are still waiting to be counted
        self.settle: Callable[[], None] = lambda: None
        self.in_flight = self.lines_bad = self.aborted = 0
        self.runs = code_version(), platform.python_version(), version_of("numba"), np.__version__
        self.rows: defaultdict[str, int] = defaultdict(
            int
        )  # instances that were predicted, by model
        self.errors: defaultdict[str, int] = defaultdict(int)
        self.events: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.timings: dict[Series, Timing] = {}
        self._timings_max = TIMINGS_BEGUN
        # returns the models and versions that are open; None if these are not known
        self.open_versions: Callable[[], Collection[tuple[str, int]]] | None = None

    def timing(self, series: Series) -> Timing:
        """Return the Timing in which the requests of a series are counted.

        Callers may keep it for as long as the version is open.
        """
        counted = self.timings.get(series)
        if counted is None:
            if len(self.timings) >= self._timings_max:
                self.fold_closed()
                self._timings_max = TIMINGS_BEGUN + 2 * len(self.timings)
            counted = self.timings[series] = Timing()
        return counted

    def fold_closed(self) -> None:
        """Move the counts of versions that are not open any more to the series without a version.

        So series stay bounded: by the open versions (limits `models_max`, `versions_max`), the
        routes and the statuses.
        """
        if self.open_versions is None:
            return
        self.settle()
        open_versions = {(model, str(version)) for model, version in self.open_versions()}
        for series in [key for key in self.timings if key.model]:
            if (series.model, series.version) not in open_versions:
                self.timings.setdefault(Series(series.route, series.status, "", ""), Timing()).add(
                    self.timings.pop(series)
                )
        for model, version, result in list(self.events):
            if version and (model, version) not in open_versions:
                self.events[model, "", result] += self.events.pop((model, version, result))
        self.shadows.forget_closed(open_versions)

    def count_aborted(self) -> None:
        """Count a connection that was ended because its client did not read."""
        self.aborted += 1

    def record_events(self, model: str, version: int | None, results: Iterable[str]) -> None:
        """Count events of feedback to a version, by result.

        version  None: the version does not exist any more
        """
        for result in results:
            self.events[model, "" if version is None else str(version), result] += 1

    def report(self, read: Callable[..., Iterator[Metric]], *arguments: object) -> None:
        """Register a function that yields figures at each scrape, when called with `arguments`."""
        self.registry.register(FunctionCollector(partial(read, *arguments)))

    def collected(self) -> list[Metric]:
        """Return the figures of the app, without those of its process."""
        self.settle()
        self.fold_closed()
        return self.series_models.fold(self.registry.collect())

    async def page(self, is_openmetrics: bool = False, *, worker: int | None = None) -> bytes:
        """Return the figures in Prometheus's text format, or in OpenMetrics's format.

        Only OpenMetrics has exemplars.

        worker  the value of the label `worker` of every figure; None: the figures do not have this
                label

        The figures are collected in this thread, and written in another, which takes three times as
        long.
        """
        figures: Any = FunctionCollector(
            partial(_labelled_by, worker, self.collected(), self.process)
        )
        return await asyncio.to_thread(
            generate_openmetrics if is_openmetrics else generate_latest, figures
        )


def _labelled_by(
    worker: int | None, families: Iterable[Metric], process_registry: CollectorRegistry
) -> Iterator[Metric]:
    """Yield figures that were collected, and the figures of a registry.

    worker  the value of the label `worker` of each figure; None: they do not have this label
    """
    for family in chain(families, process_registry.collect()):
        if worker is not None:
            family.samples = [
                sample._replace(labels={"worker": str(worker), **sample.labels})
                for sample in family.samples
            ]
        yield family


def _read_requests(metrics: Metrics) -> Iterator[Metric]:
    timings = metrics.timings.items()
    yield labelled(
        CounterMetricFamily,
        "xylem_requests",
        "Requests answered, by the version that answered.",
        ("route", "status", "model", "version"),
        ((series, sum(timing.counts)) for series, timing in timings),
    )
    seconds = HistogramMetricFamily(
        "xylem_request_seconds",
        "Time from a request's headers to the end of its answer.",
        labels=("route", "model", "version"),
    )
    totals: defaultdict[tuple[str, str, str], Timing] = defaultdict(Timing)
    for (route, _, model, version), timing in timings:
        totals[route, model, version].add(timing)
    for label_values, timing in totals.items():
        seconds.add_metric(label_values, _buckets(timing), timing.seconds)
    yield seconds
    yield labelled(
        CounterMetricFamily,
        "xylem_errors",
        "Requests refused or failed, by code.",
        ("code",),
        metrics.errors.items(),
    )
    yield labelled(
        CounterMetricFamily, "xylem_rows", "Instances predicted.", ("model",), metrics.rows.items()
    )
    yield labelled(
        CounterMetricFamily,
        "xylem_feedback_events",
        "Events of feedback by version and result.",
        ("model", "version", "result"),
        metrics.events.items(),
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_build_info",
        "Always 1; its labels are the versions that run.",
        ("version", "python", "numba", "numpy"),
        [(metrics.runs, 1)],
    )
    yield CounterMetricFamily(
        "xylem_batch_lines_bad", "Lines of batches answered by an error.", value=metrics.lines_bad
    )
    yield CounterMetricFamily(
        "xylem_connections_aborted",
        "Connections ended because the client did not read its answer.",
        value=metrics.aborted,
    )


def _buckets(timing: Timing) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    bounds = (*map(floatToGoString, SECONDS), "+Inf")
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    for i, (bound, n) in enumerate(zip(bounds, accumulate(timing.counts), strict=True)):
        if (exemplar := timing.exemplars.get(i)) is None:
            buckets.append((bound, n))
        else:
            trace, seconds, ended_at = exemplar
            buckets.append((bound, n, Exemplar({"trace_id": trace.id}, seconds, ended_at)))
    return buckets


def read_in_flight(metrics: Metrics, admission: Admission) -> Iterator[Metric]:
    """Yield the number of requests in flight, and the bytes held of their bodies and answers."""
    n_unread = sum(client.is_answered() for client in admission.answers.waiting)
    yield GaugeMetricFamily(
        "xylem_requests_in_flight",
        "Requests being answered, or whose answers clients have not read yet.",
        value=metrics.in_flight + n_unread,
    )
    yield GaugeMetricFamily(
        "xylem_body_bytes", "Bytes held of requests' bodies.", value=admission.bodies.n_bytes
    )
    yield GaugeMetricFamily(
        "xylem_answer_bytes",
        "Bytes of answers that clients have not read yet.",
        value=admission.answers.n_bytes,
    )


def read_queues(pools: Mapping[str, WorkPool]) -> Iterator[Metric]:
    """Yield how many calls wait in each queue."""
    yield labelled(
        GaugeMetricFamily,
        "xylem_queue_depth",
        "Calls that wait for a thread.",
        ("queue",),
        ((name, pool.waiting()) for name, pool in pools.items()),
    )


def read_thresholds(follower: Follower) -> Iterator[Metric]:
    """Yield the figures of the thresholds in force and of candidates. O(labels)."""
    labels = ("model", "version")
    versions = [((live.model, live.version), live) for live in follower.followed]
    shadows = [(name, live.shadow) for name, live in versions]
    yield labelled(
        GaugeMetricFamily,
        "xylem_threshold_epoch",
        "The epoch of the thresholds.",
        labels,
        [(name, live.epoch) for name, live in versions if live.epoch],
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_threshold_macro_f",
        "Mean F-measure, 0 to 1, of the labels with tuning rows or feedback so far.",
        labels,
        [(name, live.served.macro_f()) for name, live in versions if live.epoch],
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_shadow_events",
        "Events that candidate thresholds were scored on.",
        labels,
        [(name, shadow.n_events) for name, shadow in shadows if shadow is not None],
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_shadow_macro_f",
        "Macro-F, 0 to 1, on these events: of the candidate, and of the thresholds in force.",
        (*labels, "thresholds"),
        [
            ((*name, thresholds), macro_f)
            for name, shadow in shadows
            if shadow is not None
            for thresholds, macro_f in zip(("candidate", "served"), shadow.macro_f(), strict=True)
        ],
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_thresholds_foreign",
        "Whether the database has thresholds of another version of this name, which are not used.",
        labels,
        [(name, live.is_foreign) for name, live in versions],
    )
    yield GaugeMetricFamily(
        "xylem_threshold_lag_seconds",
        "Seconds since the database was last read, beyond which thresholds may be old.",
        value=follower.lag_seconds,
    )
    yield GaugeMetricFamily(
        "xylem_database_failed",
        "Whether the database does not answer, or cannot be written.",
        value=bool(follower.fault) or time.monotonic() < follower.database.failing_until,
    )


def read_live(
    status_of: Callable[[], LiveStatus],
    ready: Callable[[], bool],
    series_models: Container[str] | None = None,
) -> Iterator[Metric]:
    """Yield the figures of the models, versions and aliases that are served.

    series_models  the models whose aliases have series; None: all
    """
    status = status_of()
    served_aliases = [
        (key, alias)
        for key, alias in status.aliases
        if series_models is None or key[0] in series_models
    ]
    yield GaugeMetricFamily("xylem_ready", "Whether /readyz says yes.", value=ready())
    yield labelled(
        GaugeMetricFamily,
        "xylem_model_version",
        "The version that an alias serves.",
        ("model", "alias"),
        ((key, alias.version) for key, alias in served_aliases),
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_alias_part",
        "The part of the requests to an alias that a version answers, by its role.",
        ("model", "alias", "version", "role"),
        (
            ((*key, version, role), part / PARTS)
            for key, alias in served_aliases
            for role, version, part in roles_of(alias)
        ),
    )
    yield labelled(
        GaugeMetricFamily,
        "xylem_model_failed",
        "Versions and aliases that cannot be served.",
        ("model", "ref"),
        (((failure.model, failure.ref), 1) for failure in status.failures),
    )
    yield CounterMetricFamily(
        "xylem_model_swaps", "Aliases moved since the start.", value=status.swaps
    )
    yield GaugeMetricFamily("xylem_versions_open", "Versions that are open.", value=status.n_open)
    yield CounterMetricFamily(
        "xylem_versions_opened", "Versions opened since the start.", value=status.n_opened
    )
    yield GaugeMetricFamily(
        "xylem_openings_waiting",
        "Openings that requests wait for, one of them under way.",
        value=status.n_waiting,
    )
    yield GaugeMetricFamily(
        "xylem_store_failed",
        "Whether the last look at the store failed.",
        value=bool(status.store_error),
    )
