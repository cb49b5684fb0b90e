"""Predictions at half load beside jobs that misbehave, and without: what the jobs cost who predicts."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from benchmarks.bad_job import WAYS
from benchmarks.client import closed_loop, open_loop, post
from benchmarks.data import Prepared
from benchmarks.http import instances_of
from benchmarks.ours import store_of
from benchmarks.runs import Settings, show, spread, trained
from benchmarks.server import served
from benchmarks.systems import OURS
from service.db.engine import Database, default_url
from service.jobs.jobs import Jobs
from service.jobs.worker import Worker
from service.logs import configure
from service.settings import Limits, read_settings
from service.settings import Settings as ServiceSettings

SECONDS = 4.0
START_SECONDS = 1.0
"""Given to a worker to begin with its first job."""

ENOUGH = 99
"""Jobs that wait: no way to misbehave comes to the end of them in a run."""

LIMITS = Limits(job_memory_bytes_max=256 << 20, job_file_bytes_max=256 << 20)


def run(settings: Settings) -> None:
    """Print p50 and p99 without jobs and beside each kind, and the ratio of the medians."""
    for data in settings.data:
        trained(OURS, data, settings.threads)
        with served(store_of(data.work, 1), 1) as (_, _, port):
            _table(settings, data, port)


def _table(settings: Settings, data: Prepared, port: int) -> None:
    instances, _ = instances_of(data)
    requests = [
        post("/v1/models/model/predict", orjson.dumps({"instances": [instance]}))
        for instance in instances[:1000]
    ]
    closed_loop(port, requests, 1.0)
    rate = closed_loop(port, requests, SECONDS) / 2
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("none", *WAYS)}
    for _ in range(settings.repeats):
        for name, times in found.items():
            with _jobs(name):
                times.append(open_loop(port, requests, rate, SECONDS))
    rows = []
    for name, times in found.items():
        p50s, p99s = zip(*times, strict=True)
        ratios = [p99 / alone for p99, (_, alone) in zip(p99s, found["none"], strict=True)]
        cells = [spread([1e3 * value for value in values], 2) for values in (p50s, p99s)]
        rows.append((name, *cells, spread(ratios, 2)))
    title = f"{data.name}: predictions at half load, {rate:,.0f}/s, one worker, beside a worker of jobs"
    show(settings, title, ("jobs that", "p50, ms", "p99, ms", "p99, ratio to none of the turn"), rows)


@contextmanager
def _jobs(way: str) -> Iterator[None]:
    """Have a worker run jobs of one kind; none of `none`."""
    if way == "none":
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        settings = read_settings(store=Path(directory), limits=LIMITS)
        database = Database(default_url(settings.store))
        jobs = Jobs(database, settings)
        for number in range(ENOUGH):
            jobs.add("training", way, {"number": number})
        database.close()
        # a process of its own, as beside a server: a thread of this one would make answers seem late
        worker = multiprocessing.get_context("spawn").Process(target=_work, args=(settings,))
        worker.start()
        try:
            time.sleep(START_SECONDS)
            yield
        finally:
            worker.terminate()
            worker.join()


def _work(settings: ServiceSettings) -> None:
    """Run jobs until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    configure("error")
    database = Database(default_url(settings.store))
    Worker(settings, database, "benchmark", "benchmarks.bad_job").run(stopping)
    database.close()
