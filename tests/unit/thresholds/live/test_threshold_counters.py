"""Thresholds move with counts of events, one by one or a block at once."""

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.feedback_helpers import (
    N_FEATURES,
    N_LABELS,
    Event,
    Replica,
    as_columns,
    columns,
    instance_event,
    predictor,
    token_event,
)
from tests.helpers.small_models import small_draft

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.ofo import Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.store.codec import Tuned
from xylem_store.store import Store


def random_event(rng: np.random.Generator, name: str, n_labels: int = N_LABELS) -> Event:
    """An event with up to three true labels and as many predicted ones."""
    return token_event(name, *(rng.integers(0, n_labels, 3).tolist() for _ in range(2)))


def test_no_label_is_lost_while_thresholds_move(replica: Replica) -> None:
    """A label whose score reaches its old and its new threshold is in every answer."""
    replica.send(token_event("begin", [0], [0]))
    live, engine, rng = replica.live, predictor(), np.random.default_rng(1)
    surely: set[int] = set()
    while not surely:
        values = rng.standard_normal(N_FEATURES).astype(np.float32)
        row = SparseRows(
            np.array([0, N_FEATURES]), np.arange(N_FEATURES, dtype=np.int32), values, N_FEATURES
        )
        found = engine.predict(row, PredictOptions(top_r=N_LABELS, exact=True))
        surely = set(found.labels[found.scores > 0.5].tolist())  # thresholds are at most a half
    stop = threading.Event()

    def move() -> None:
        own = np.random.default_rng(2)
        while not stop.is_set():
            with live.lock:
                live.served.count(columns(random_event(own, "e")), np.zeros(1, np.int64))
                live.served.keep()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(2000):
            answer = engine.predict(
                row, PredictOptions(top_r=N_LABELS, exact=True, threshold=live.prepared)
            )
            assert surely <= set(answer.labels.tolist())
    finally:
        stop.set()
        mover.join()
    replica.bits()


@pytest.mark.parametrize("halved", [(), (0, 70), (199,)])
def test_what_is_undone_leaves_the_same_bits(replica: Replica, halved: tuple[int, ...]) -> None:
    replica.send(token_event("begin", [0, 5], [0, 3]))
    before, rng = replica.bits(), np.random.default_rng(3)
    with replica.live.lock:
        for i in range(200):
            replica.live.served.count(columns(random_event(rng, "e")), np.zeros(1, np.int64))
            if i in halved:
                replica.live.served.halve()
        assert replica.bits() != before
        replica.live.served.undo()
    assert replica.bits() == before


@pytest.mark.parametrize("kind", ["label-tree", "decision-tree"])
def test_a_block_is_counted_as_its_events_are_one_by_one(tmp_path: Path, kind: str) -> None:
    """Each event is predicted under the thresholds that those before it
    left; the journal grows meanwhile.
    """
    link = "hinge3" if kind == "label-tree" else "argmax"
    store = Store(tmp_path / "store")
    store.publish("m", small_draft(5, n_labels=60, n_features=N_FEATURES, kind=kind, link=link))
    engine, start, rng = make_predictor(store.open("m")), Start(1.0, 30.0), np.random.default_rng(6)
    bounds = lower_bounds(None, 0, 60)
    begun = Tuned("ofo", "one", start, thresholds_of(no_counts(60), start, bounds), no_counts(60))
    moving = ThresholdCounters(begun, engine, np.empty(0, np.int64), 0)
    events = [
        instance_event(f"e{i}", rng.integers(0, 60, 3).tolist(), i)
        if i % 5
        else random_event(rng, f"e{i}", 60)
        for i in range(120)
    ]
    chosen = np.flatnonzero(rng.random(120) < 0.9)
    ends = moving.count(as_columns(events, N_FEATURES, 60), chosen)

    counters, n_touched = no_counts(60), [0]
    thresholds = thresholds_of(counters, start, bounds)
    for event in (events[i] for i in chosen):
        predicted = event.predicted
        if event.row is not None:
            prepared = engine.node_thresholds(thresholds)
            options = PredictOptions(top_r=60, exact=True, threshold=prepared)
            predicted = engine.predict(event.row, options).labels
        counters.hits[np.intersect1d(event.labels, predicted)] += 1
        for labels in (event.labels, predicted):
            counters.marks[labels] += 1
        thresholds = thresholds_of(counters, start, bounds)
        n_touched.append(n_touched[-1] + len(np.union1d(event.labels, predicted)))
    assert ends.tolist() == n_touched
    assert ends[-1] > 512  # the journal has grown twice
    found = moving.snapshot()
    assert found.thresholds.tobytes() == thresholds.tobytes()
    assert [c.tolist() for c in found.counters] == [c.tolist() for c in counters]
    assert moving.prepared.tobytes() == engine.node_thresholds(thresholds).tobytes()
    moving.undo()
    assert (
        moving.snapshot().thresholds.tobytes()
        == thresholds_of(no_counts(60), start, bounds).tobytes()
    )
