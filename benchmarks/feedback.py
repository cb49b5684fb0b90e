"""Feedback: events a second in batches and one by one, and what it does to predictions meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import orjson
import scipy.sparse as sp

from benchmarks.client import closed_loop, open_loop, post
from benchmarks.data import Prepared
from benchmarks.http import instances_of
from benchmarks.ours import store_of
from benchmarks.runs import Settings, show, spread, trained
from benchmarks.server import cpu_seconds, served
from benchmarks.systems import OURS
from model_store.names import name_of
from model_store.store import Store

SECONDS = 4.0
BATCH = 64
EVENTS = 80_000
"""Events of a run in batches, each sent once: more than it can take. Of those sent one by one: a quarter."""

SINGLES = 16
"""Connections that send one event at a time."""

BATCHED_RATE, SINGLE_RATE = 5000.0, 300.0
"""Events a second where they come at a rate, and not as fast as they are taken."""

PREDICT_RATE = 97.0
"""Predictions a second beside the feedback; not a rate with whose multiples events come, or a run would only
see predictions at one moment between two events."""

_PATH = "/v1/models/model/feedback"


class Load(NamedTuple):
    """Feedback beside the predictions.

    size         events of a request; 0: there is none
    connections  that send requests
    rate         events a second; None: each connection sends the next as soon as it has an answer
    """

    size: int
    connections: int
    rate: float | None = None


LOADS = {
    "none": Load(0, 0),
    f"batches of {BATCH}": Load(BATCH, 1),
    f"batches, {BATCHED_RATE:,.0f} events/s": Load(BATCH, 4, BATCHED_RATE),
    "single events": Load(1, SINGLES),
    f"single, {SINGLE_RATE:,.0f} events/s": Load(1, SINGLES, SINGLE_RATE),
}


def run(settings: Settings) -> None:
    """Print events a second, and the latency of predict without and beside them."""
    for data in settings.data:
        trained(OURS, data, settings.threads)
        for file in store_of(data.work, 1).glob("xylem.db*"):
            file.unlink()  # what former runs have learned
        with served(store_of(data.work, 1), 1) as (pid, _, port):
            _table(settings, data, pid, port)


def _table(settings: Settings, data: Prepared, pid: int, port: int) -> None:
    instances, _ = instances_of(data)
    predictions = [
        post("/v1/models/model/predict", orjson.dumps({"instances": [instance]}))
        for instance in instances[:1000]
    ]
    closed_loop(port, predictions, 1.0)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in LOADS}
    for _ in range(settings.repeats):
        for name, load in LOADS.items():
            requests = list(_requests(data, instances, load.size)) if load.size else []
            used = cpu_seconds(pid)
            measured = _measure(port, predictions, requests, load)
            found[name].append((*measured, cpu_seconds(pid) - used))
    alone = median([used for *_, used in found["none"]])
    rows = []
    for name, runs in found.items():
        events, p50s, p99s, used = zip(*runs, strict=True)
        times = [spread([1e3 * value for value in values], 2) for values in (p50s, p99s)]
        costs = [
            1e3 * (all_of - alone) / (rate * SECONDS)
            for all_of, rate in zip(used, events, strict=True)
            if rate
        ]
        rows.append((name, spread(events, 0), *times, spread(costs, 2) if costs else ""))
    title = f"{data.name}: feedback with instances, one worker, SQLite, {PREDICT_RATE:.0f} predictions/s"
    show(
        settings,
        title,
        ("feedback", "events/s", "predict p50, ms", "p99, ms", "processor, ms an event"),
        rows,
    )


def _measure(
    port: int, predictions: Sequence[bytes], requests: Sequence[bytes], load: Load
) -> tuple[float, float, float]:
    """Return events a second, and p50 and p99 of predictions beside them in seconds.

    The feedback comes from a process of its own: threads of one would make each other's answers seem late by
    up to the interpreter's switch interval, 5 ms.
    """
    if not load.size:
        return 0.0, *open_loop(port, predictions, PREDICT_RATE, SECONDS)
    context = multiprocessing.get_context("fork")  # the requests are there already
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(_send(port, requests, load)))
    process.start()
    sender.close()
    p50, p99 = open_loop(port, predictions, PREDICT_RATE, SECONDS)
    rate: float = receiver.recv()
    process.join()
    return rate, p50, p99


def _send(port: int, requests: Sequence[bytes], load: Load) -> float:
    """Send feedback for SECONDS; return the events a second."""
    if load.rate is None:
        return load.size * closed_loop(port, requests, SECONDS, load.connections)
    start = time.perf_counter()
    open_loop(port, requests, load.rate / load.size, SECONDS, load.connections)
    return load.rate * SECONDS / max(SECONDS, time.perf_counter() - start)


def _requests(data: Prepared, instances: list[dict[str, list[float]]], size: int) -> Iterator[bytes]:
    """Yield requests of `size` events each, with the true labels of test rows, and ids of their own."""
    labels = sp.load_npz(data.work / "test.labels.npz").tocsr()
    names = Store(store_of(data.work, 1)).open("model").labels
    run_id = os.urandom(6).hex()
    events = []
    for i in range(EVENTS if size > 1 else EVENTS // 4):
        row = i % len(instances)
        true = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
        event = {"event_id": f"{run_id}-{i}", "instance": instances[row]}
        events.append({**event, "labels": [name_of(names, label) for label in true]})
        if len(events) == size:
            yield post(_PATH, orjson.dumps({"events": events}))
            events = []
