"""Feedback: events a second in batches and one by one, and what it does to predictions meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import orjson
import scipy.sparse as sp

from benchmarks.client import closed_loop, open_loop, post
from benchmarks.data import Prepared
from benchmarks.http import instances_of
from benchmarks.ours import store_of
from benchmarks.runs import Settings, show, spread, trained
from benchmarks.server import served
from benchmarks.systems import OURS
from model_store.names import name_of
from model_store.store import Store

SECONDS = 4.0
BATCH = 64
EVENTS = 40_000
"""Events of a run, each sent once: more than it can take."""

SINGLES = 16
"""Connections that send one event at a time."""

PREDICT_RATE = 100.0
"""Predictions a second beside the feedback."""

_PATH = "/v1/models/model/feedback"


def run(settings: Settings) -> None:
    """Print events a second, and the latency of predict without and beside them."""
    for data in settings.data:
        trained(OURS, data, settings.threads)
        with served(store_of(data.work, 1), 1) as (_, _, port):
            _table(settings, data, port)


def _table(settings: Settings, data: Prepared, port: int) -> None:
    instances, _ = instances_of(data)
    predictions = [
        post("/v1/models/model/predict", orjson.dumps({"instances": [instance]}))
        for instance in instances[:1000]
    ]
    closed_loop(port, predictions, 1.0)
    loads = {"none": (0, 0), f"batches of {BATCH}": (BATCH, 1), "single events": (1, SINGLES)}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in loads}
    for _ in range(settings.repeats):
        for name, (size, connections) in loads.items():
            requests = list(_requests(data, instances, size)) if size else []
            rates: list[float] = []
            load = threading.Thread(
                target=lambda r=requests, c=connections, to=rates: to.append(closed_loop(port, r, SECONDS, c))
            )
            if size:
                load.start()
            p50, p99 = open_loop(port, predictions, PREDICT_RATE, SECONDS)
            if size:
                load.join()
            found[name].append((rates[0] * size if rates else 0.0, p50, p99))
    rows = []
    for name, runs in found.items():
        events, p50s, p99s = zip(*runs, strict=True)
        times = [spread([1e3 * value for value in values], 2) for values in (p50s, p99s)]
        rows.append((name, spread(events, 0), *times))
    title = f"{data.name}: feedback with instances, one worker, SQLite, {PREDICT_RATE:.0f} predictions/s"
    show(settings, title, ("feedback", "events/s", "predict p50, ms", "p99, ms"), rows)


def _requests(data: Prepared, instances: list[dict[str, list[float]]], size: int) -> Iterator[bytes]:
    """Yield requests of `size` events each, with the true labels of test rows, and ids of their own."""
    labels = sp.load_npz(data.work / "test.labels.npz").tocsr()
    names = Store(store_of(data.work, 1)).open("model").labels
    run_id = os.urandom(6).hex()
    events = []
    for i in range(EVENTS if size > 1 else EVENTS // 8):
        row = i % len(instances)
        true = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
        event = {"event_id": f"{run_id}-{i}", "instance": instances[row]}
        events.append({**event, "labels": [name_of(names, label) for label in true]})
        if len(events) == size:
            yield post(_PATH, orjson.dumps({"events": events}))
            events = []
