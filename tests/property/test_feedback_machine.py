"""R15 and R24: replicas over one database against a dictionary, and the algorithm as the paper writes it."""

import random
from collections import defaultdict

import numpy as np
import pytest

from service.base.errors import BadParameter
from service.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from service.thresholds.store.codec import Tuned
from service.thresholds.store.state import ThresholdDatabase
from tests.feedback_helpers import N_LABELS, Replica, instance_event, predicted_at, predictor, token_event


def some_labels(rng: random.Random) -> list[int]:
    return rng.sample(range(N_LABELS), rng.randint(0, 4))


class Oracle:
    """What the database must hold: counters by label, the ids that counted, and the state of every epoch."""

    def __init__(self) -> None:
        self.hits: dict[int, int] = defaultdict(int)
        self.marks: dict[int, int] = defaultdict(int)
        self.seen: set[str] = set()
        self.epochs: dict[int, tuple[dict[int, int], dict[int, int]]] = {}

    def count(self, name: str, true: list[int], predicted: list[int]) -> str:
        if name in self.seen:
            return "duplicate"
        self.seen.add(name)
        for label in {*true, *predicted}:
            self.hits[label] += label in true and label in predicted
            self.marks[label] += (label in true) + (label in predicted)
        return "applied"

    def remember(self, epoch: int) -> None:
        self.epochs[epoch] = dict(self.hits), dict(self.marks)

    def restore(self, epoch: int, new: int) -> None:
        hits, marks = self.epochs[epoch]
        self.hits, self.marks = defaultdict(int, hits), defaultdict(int, marks)
        self.remember(new)

    def counters(self) -> Counters:
        hits, marks = ([table[i] for i in range(N_LABELS)] for table in (self.hits, self.marks))
        return Counters(np.array(hits, np.int64), np.array(marks, np.int64))


def check(replica: Replica, oracle: Oracle) -> None:
    replica.catch_up()
    state = replica.live.snapshot()
    counters = oracle.counters()
    assert np.array_equal(state.counters.hits, counters.hits)
    assert np.array_equal(state.counters.marks, counters.marks)
    bounds = lower_bounds(None, 0, N_LABELS)
    assert np.array_equal(state.thresholds, thresholds_of(counters, state.start, bounds))


@pytest.mark.parametrize("seed", range(2))
def test_replicas_against_a_dictionary(database_url: str, seed: int) -> None:
    rng, oracle = random.Random(seed), Oracle()
    replicas = [Replica(database_url) for _ in range(3)]
    base = 0
    for step in range(60):
        replica = rng.choice(replicas)
        action = rng.random()
        if action < 0.75:
            block = [
                (f"e{rng.randrange(2 * step + 5)}", some_labels(rng), some_labels(rng))
                for _ in range(rng.randint(1, 6))
            ]
            outcome = replica.send(*(token_event(*one, epoch=replica.live.epoch) for one in block))
            late = base > 0 and "late" in outcome
            if late:  # the replica had not seen what replaced the thresholds: none of the block counts
                assert set(outcome) == {"late"}
            else:
                assert outcome == [oracle.count(*one) for one in block]
                if not oracle.epochs:
                    oracle.epochs[1] = {}, {}
                oracle.remember(replica.live.epoch)
        elif action < 0.85 and oracle.epochs:
            epoch = rng.choice(list(oracle.epochs))
            base = ThresholdDatabase(replica.database).restore("m", 1, epoch)
            oracle.restore(epoch, base)
        elif oracle.epochs:
            check(replica, oracle)
    for replica in replicas:
        check(replica, oracle)
    assert len({replica.bits() for replica in replicas}) == 1
    with pytest.raises(BadParameter):
        ThresholdDatabase(replicas[0].database).restore("m", 1, 10_000)
    for replica in replicas:
        replica.close()


def test_the_order_of_predictions_made_before_does_not_matter(database_url: str, tmp_path: object) -> None:
    rng = random.Random(5)
    events = [token_event(f"e{i}", some_labels(rng), some_labels(rng)) for i in range(80)]
    found = set()
    for url in (database_url, f"sqlite:///{tmp_path}/another.db"):
        rng.shuffle(events)
        replicas = [Replica(url) for _ in range(2)]
        for start in range(0, len(events), 9):
            rng.choice(replicas).send(*events[start : start + 9])
        for replica in replicas:
            replica.catch_up()
            found.add(replica.bits()[:3])
            replica.close()
    assert len(found) == 1


def test_a_stream_of_instances_ends_where_the_offline_run_does(database_url: str) -> None:
    rng = random.Random(9)
    events = [instance_event(f"e{i}", some_labels(rng), i) for i in range(150)]
    start = Tuned("ofo", "one", Start(2.0, 9.0), np.full(N_LABELS, 2 / 9, np.float32), no_counts(N_LABELS))
    replica = Replica(database_url)
    ThresholdDatabase(replica.database).save("m", 1, start)
    for first in range(0, len(events), 7):
        replica.send(*events[first : first + 7])

    oracle = Oracle()
    bounds = lower_bounds(None, 0, N_LABELS)
    thresholds = thresholds_of(oracle.counters(), start.start, bounds)
    for i, event in enumerate(events):
        assert event.row is not None
        predicted = predicted_at(predictor().node_thresholds(thresholds), event.row)
        oracle.count(f"e{i}", event.labels.tolist(), predicted)
        thresholds = thresholds_of(oracle.counters(), start.start, bounds)
    assert np.array_equal(replica.live.thresholds, thresholds)
    assert sum(oracle.hits.values()) > 20
    replica.bits()
    replica.close()
