"""Figures for Prometheus: a registry of its own for each app, so
that two apps in a process do not mix.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version as version_of
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from xylem.api.door.admission import Admission
from xylem.api.door.collectors import Reading, ShadowFigures, labelled, read_stages
from xylem.api.door.work import WorkPool
from xylem.base import ProcessFigures, StageTimes, Trace
from xylem.serving import LiveStatus, roles_of
from xylem.thresholds import Follower
from xylem_store import PARTS, code_version

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

TIMINGS_BEGUN = 1024
"""Series that there may be before those of closed versions are looked for."""


class Series(NamedTuple):
    """Whose requests a timing is of.

    model, version  which version answered; empty: none did, or one that is no longer open
    """

    route: str
    status: int
    model: str
    version: str


class Timing:
    """The requests of one series.

    counts      of those that took at most so many SECONDS, longer than the bound before; the last:
                of longer
    exemplars   by the place of a count, the last of these requests that is sampled: its span,
                seconds, and when it ended
    """

    __slots__ = ("counts", "exemplars", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0
        self.exemplars: dict[int, tuple[Trace, float, float]] = {}

    def add(self, other: Timing) -> None:
        """Count the requests of another one too."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds
        self.exemplars |= other.exemplars


class Metrics:
    """The figures of one app.

    What requests count are plain numbers, without locks: event loop only.
    """

    def __init__(self) -> None:
        self.registry, self.process = CollectorRegistry(), CollectorRegistry()
        """What the app counts, and what is known of its process, which any thread may ask for."""
        self.stages = StageTimes()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.process)
        self.registry.register(ProcessFigures())
        self.report(_read_requests, self)
        self.report(read_stages, self.stages)
        # of a worker that does not answer, those that do say so
        Gauge(
            "xylem_worker_up", "Whether a worker answered this scrape.", registry=self.registry
        ).set(1)
        self.shadows = ShadowFigures(self.registry, SECONDS)
        self.settle: Callable[[], None] = lambda: None
        """Counts what waits to be counted."""
        self.in_flight = 0
        self.lines_bad = 0
        self.aborted = 0
        self.runs = code_version(), platform.python_version(), version_of("numba"), np.__version__
        self.rows: Counter[str] = Counter()
        """Predicted instances, by model."""
        self.errors: Counter[str] = Counter()
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.timings: dict[Series, Timing] = {}
        self._timings_max = TIMINGS_BEGUN
        self.open_versions: Callable[[], Collection[tuple[str, int]]] | None = None
        """Returns the models and versions that are open; None: nobody knows."""

    def timing(self, series: Series) -> Timing:
        """Return where requests of a series count.

        It may be kept for as long as the version is open.
        """
        counted = self.timings.get(series)
        if counted is None:
            if len(self.timings) >= self._timings_max:
                self.fold_closed()
                self._timings_max = TIMINGS_BEGUN + 2 * len(self.timings)
            counted = self.timings[series] = Timing()
        return counted

    def fold_closed(self) -> None:
        """Count the requests of versions that are no longer open as
        those of none: so series stay bounded.

        There are as many as open versions (limits `models_max`, `versions_max`), routes and
        statuses.
        """
        if self.open_versions is None:
            return
        self.settle()
        is_open = {(model, str(version)) for model, version in self.open_versions()}
        for series in [key for key in self.timings if key.model]:
            if (series.model, series.version) not in is_open:
                of_none = Series(series.route, series.status, "", "")
                self.timings.setdefault(of_none, Timing()).add(self.timings.pop(series))
        for model, version, result in list(self.events):
            if version and (model, version) not in is_open:
                self.events[model, "", result] += self.events.pop((model, version, result))
        self.shadows.forget_closed(is_open)

    def count_aborted(self) -> None:
        """Count a connection that was ended because its client did not read."""
        self.aborted += 1

    def record_events(self, model: str, version: int | None, results: Iterable[str]) -> None:
        """Count events of feedback to a version by what became of them; None: to one
        that is gone.
        """
        for result in results:
            self.events[model, "" if version is None else str(version), result] += 1

    def report(self, read: Callable[..., Iterator[Metric]], *arguments: object) -> None:
        """Report what a function reads of its arguments, when the figures are read."""
        self.registry.register(Reading(partial(read, *arguments)))

    def collected(self) -> list[Metric]:
        """Return what the app has counted."""
        self.settle()
        self.fold_closed()
        return list(self.registry.collect())

    async def page(self, is_openmetrics: bool = False, *, worker: int | None = None) -> bytes:
        """Return the figures in Prometheus's text format, or in that of
        OpenMetrics, which knows exemplars.

        worker   what every figure's label `worker` says; None: they have none

        They are collected here and written in a thread, which takes three times as long.
        """
        figures: Any = Reading(partial(_labelled_by, worker, self.collected(), self.process))
        return await asyncio.to_thread(
            generate_openmetrics if is_openmetrics else generate_latest, figures
        )


def _labelled_by(
    worker: int | None, families: Iterable[Metric], process_registry: CollectorRegistry
) -> Iterator[Metric]:
    """Yield figures that were collected, and those of a registry;
    `worker`, if known, is a label of each.
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
    documentation = "Requests answered, by the version that answered."
    labels = ("route", "status", "model", "version")
    counts = ((series, sum(timing.counts)) for series, timing in timings)
    yield labelled(CounterMetricFamily, "xylem_requests", documentation, labels, counts)
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
    documentation = "Requests refused or failed, by code."
    errors = metrics.errors.items()
    yield labelled(CounterMetricFamily, "xylem_errors", documentation, ("code",), errors)
    rows = metrics.rows.items()
    yield labelled(CounterMetricFamily, "xylem_rows", "Instances predicted.", ("model",), rows)
    documentation = "Events of feedback by version and result."
    event = ("model", "version", "result")
    yield labelled(
        CounterMetricFamily, "xylem_feedback_events", documentation, event, metrics.events.items()
    )
    parts = "version", "python", "numba", "numpy"
    yield labelled(
        GaugeMetricFamily, "xylem_build_info", "1, by what runs.", parts, [(metrics.runs, 1)]
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
    """Return the buckets of a histogram: bound, count, and the request that stands
    for it, if any.
    """
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
    """Yield the requests in flight, and the bytes that are held of their bodies and answers."""
    answers = admission.answers
    bodies = admission.bodies
    n_unread = sum(client.is_answered() for client in answers.waiting)
    documentation = "Requests being answered, or whose answers clients have not read yet."
    yield GaugeMetricFamily(
        "xylem_requests_in_flight", documentation, value=metrics.in_flight + n_unread
    )
    yield GaugeMetricFamily(
        "xylem_body_bytes", "Bytes held of requests' bodies.", value=bodies.n_bytes
    )
    documentation = "Bytes of answers that clients have not read yet."
    yield GaugeMetricFamily("xylem_answer_bytes", documentation, value=answers.n_bytes)


def read_queues(pools: Mapping[str, WorkPool]) -> Iterator[Metric]:
    """Yield how much waits in each queue."""
    documentation = "Calls that wait for a thread."
    depths = ((name, pool.waiting()) for name, pool in pools.items())
    yield labelled(GaugeMetricFamily, "xylem_queue_depth", documentation, ("queue",), depths)


def read_thresholds(follower: Follower) -> Iterator[Metric]:
    """Yield the thresholds that are served. O(labels)."""
    labels = ("model", "version")
    epochs = GaugeMetricFamily(
        "xylem_threshold_epoch", "The epoch of the thresholds.", labels=labels
    )
    measures = GaugeMetricFamily(
        "xylem_threshold_macro_f",
        "Mean F-measure, 0 to 1, of the labels with tuning rows or feedback so far.",
        labels=labels,
    )
    scored = GaugeMetricFamily(
        "xylem_shadow_events", "Events that candidate thresholds were scored on.", labels=labels
    )
    shadows = GaugeMetricFamily(
        "xylem_shadow_macro_f",
        "Macro-F, 0 to 1, on these events: of the candidate, and of the thresholds in force.",
        labels=(*labels, "thresholds"),
    )
    foreign = GaugeMetricFamily(
        "xylem_thresholds_foreign",
        "Whether the database has thresholds of another version of this name, which are not used.",
        labels=labels,
    )
    for live in follower.followed:
        name = live.model, str(live.version)
        foreign.add_metric(name, live.is_foreign)
        if live.epoch:
            epochs.add_metric(name, live.epoch)
            measures.add_metric(name, live.served.macro_f())
        shadow = live.shadow
        if shadow is not None:
            scored.add_metric(name, shadow.n_events)
            for thresholds, macro_f in zip(("candidate", "served"), shadow.macro_f(), strict=True):
                shadows.add_metric((*name, thresholds), macro_f)
    yield from (epochs, measures, scored, shadows, foreign)
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


def read_live(status_of: Callable[[], LiveStatus], ready: Callable[[], bool]) -> Iterator[Metric]:
    """Yield the state of the live models."""
    status = status_of()
    yield GaugeMetricFamily("xylem_ready", "Whether /readyz says yes.", value=ready())
    documentation = "The version that an alias serves."
    labels = ("model", "alias")
    aliases = ((key, alias.version) for key, alias in status.aliases)
    yield labelled(GaugeMetricFamily, "xylem_model_version", documentation, labels, aliases)
    parts = [
        ((*key, version, role), part / PARTS)
        for key, alias in status.aliases
        for role, version, part in roles_of(alias)
    ]
    documentation = "The part of the requests to an alias that a version answers, by its role."
    yield labelled(
        GaugeMetricFamily, "xylem_alias_part", documentation, (*labels, "version", "role"), parts
    )
    documentation = "Versions and aliases that cannot be served."
    failed = (((failure.model, failure.ref), 1) for failure in status.failures)
    yield labelled(GaugeMetricFamily, "xylem_model_failed", documentation, ("model", "ref"), failed)
    yield CounterMetricFamily(
        "xylem_model_swaps", "Aliases moved since the start.", value=status.swaps
    )
    yield GaugeMetricFamily(
        "xylem_store_failed",
        "Whether the last look at the store failed.",
        value=bool(status.store_error),
    )
