"""Thresholds that move while predictions read them; what is undone; states of another model."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from model_store.store import Store
from service.base.errors import DatabaseUnavailable
from service.base.rows import SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.thresholds.live.threshold_counters import ThresholdCounters
from service.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from service.thresholds.store.codec import (
    Deltas,
    Tuned,
    decode_deltas,
    decode_state,
    encode_deltas,
    encode_state,
)
from service.thresholds.store.state import Head
from tests.feedback_helpers import (
    N_FEATURES,
    N_LABELS,
    Replica,
    as_columns,
    columns,
    instance_event,
    labels_of,
    predictor,
    token_event,
)
from tests.small_models import small_draft


@pytest.fixture
def replica(tmp_path: object) -> Iterator[Replica]:
    made = Replica(f"sqlite:///{tmp_path}/xylem.db")
    yield made
    made.close()


def test_no_label_is_lost_while_thresholds_move(replica: Replica) -> None:
    """A label whose score reaches its old and its new threshold is in every answer."""
    replica.send(token_event("begin", [0], [0]))
    live, engine = replica.live, predictor()
    rng = np.random.default_rng(1)
    surely: set[int] = set()
    while not surely:
        indptr, features = np.array([0, N_FEATURES]), np.arange(N_FEATURES, dtype=np.int32)
        row = SparseRows(indptr, features, rng.standard_normal(N_FEATURES).astype(np.float32), N_FEATURES)
        found = engine.predict(row, PredictOptions(top_r=N_LABELS, exact=True))
        surely = set(found.labels[found.scores > 0.5].tolist())  # thresholds are at most a half
    stop = threading.Event()

    def move() -> None:
        own = np.random.default_rng(2)
        while not stop.is_set():
            event = token_event("e", *(own.integers(0, N_LABELS, 3).tolist() for _ in range(2)))
            with live.lock:
                live.served.count(columns(event), np.zeros(1, np.int64))
                live.served.keep()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(2000):
            answer = engine.predict(row, PredictOptions(top_r=N_LABELS, exact=True, threshold=live.prepared))
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
            event = token_event("e", *(rng.integers(0, N_LABELS, 4).tolist() for _ in range(2)))
            replica.live.served.count(columns(event), np.zeros(1, np.int64))
            if i in halved:
                replica.live.served.halve()
        assert replica.bits() != before
        replica.live.served.undo()
    assert replica.bits() == before


def test_a_state_of_another_model_is_refused(replica: Replica) -> None:
    n = N_LABELS + 1
    tuned = Tuned("ofo", "one", Start(), np.full(n, 0.25, np.float32), no_counts(n))
    with pytest.raises(DatabaseUnavailable, match="another store's"):
        replica.live.replace(tuned, Head(1, "m", 1, 1, 1, 0))


def test_states_and_deltas_come_back_as_they_were() -> None:
    rng = np.random.default_rng(4)
    marks = rng.integers(0, 1 << 40, 50)
    counters = Counters(marks // 3, marks)
    thresholds = thresholds_of(counters, Start(2.0, 9.0), lower_bounds(None, 0, 50))
    tuned = Tuned("fta", "zero", Start(2.0, 9.0), thresholds, counters)
    found = decode_state(encode_state(tuned))
    assert found[:3] == tuned[:3]
    assert all(
        np.array_equal(a, b) for a, b in zip((found[3], *found[4]), (tuned[3], *tuned[4]), strict=True)
    )
    deltas = Deltas(labels_of(3, 7), labels_of(0, 9), labels_of(1, 20), np.float32([0.5, 0.25]))
    again = decode_deltas(encode_deltas(deltas), 8)
    assert all(np.array_equal(a, b) for a, b in zip(again, deltas, strict=True))


def test_damaged_bytes_are_refused() -> None:
    tuned = Tuned("ofo", "one", Start(), np.full(4, 0.25, np.float32), no_counts(4))
    data = encode_state(tuned)
    for damaged in (b"", data[:-1], data.replace(b'"n_labels": 4', b'"n_labels": 5'), data[1:]):
        with pytest.raises(DatabaseUnavailable):
            decode_state(damaged)
    deltas = encode_deltas(
        Deltas(labels_of(3, 7), labels_of(0, 9), labels_of(1, 20), np.float32([0.5, 0.25]))
    )
    for damaged, n_labels in ((deltas, 7), (deltas[:-1], 8), (deltas[::-1], 8)):
        with pytest.raises(DatabaseUnavailable):
            decode_deltas(damaged, n_labels)


@pytest.mark.parametrize("kind", ["label-tree", "decision-tree"])
def test_a_block_is_counted_as_its_events_are_one_by_one(tmp_path: Path, kind: str) -> None:
    """Each event is predicted under the thresholds that those before it left; the journal grows meanwhile."""
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
        else token_event(f"e{i}", *(rng.integers(0, 60, 3).tolist() for _ in range(2)))
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
    assert moving.snapshot().thresholds.tobytes() == thresholds_of(no_counts(60), start, bounds).tobytes()
