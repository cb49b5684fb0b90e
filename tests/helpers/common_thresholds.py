"""A slow reading of common thresholds, and states and events to compare it with."""

import random
from typing import Any

import numpy as np

from tests.helpers.feedback_helpers import (
    N_LABELS,
    Event,
    Replica,
    instance_event,
    predictor,
    token_event,
)
from xylem.engine.predictor import PredictOptions
from xylem.thresholds.methods.aims import LIMITS, PROBABILITIES, UNIT
from xylem.thresholds.methods.ofo import Start, lower_bounds
from xylem.thresholds.store.codec import Tuned

BOUNDS = lower_bounds(None, 0, N_LABELS)
START = Start(2.0, 9.0, 0.7, 1.25)


def begun(objective: Any, empty: Any = "zero", start: Start = START) -> Tuned:
    return Tuned.begin(objective, empty, start, BOUNDS)


def some_events(n: int, seed: int) -> list[Event]:
    """Events; one in five has the labels predicted before, and some have no true label."""
    rng = random.Random(seed)
    events = []
    for i in range(n):
        true = rng.sample(range(N_LABELS), rng.choice([0, 1, 1, 2, 3, 5]))
        predicted = rng.sample(range(N_LABELS), 3)
        with_row = instance_event(f"e{seed}-{i}", true, 100 * seed + i)
        events.append(token_event(f"e{seed}-{i}", true, predicted, 1) if i % 5 == 4 else with_row)
    return events


def ranked(event: Event) -> list[tuple[int, np.float32]]:
    """Return all labels of an event's row with their scores, the best first."""
    options = PredictOptions(top_r=N_LABELS, threshold=0.0)
    found = predictor().predict(event.row, options)
    return list(zip(found.labels.tolist(), found.scores, strict=True))


class Slow:
    """A common threshold as the sources say it, all of it computed anew for each event."""

    def __init__(self, objective: str, empty: str = "zero") -> None:
        self.objective = objective
        self.empty = UNIT if empty == "one" else 0
        self.hits, self.marks = [0] * N_LABELS, [0] * N_LABELS
        self.n_rows, self.sums = 0, {}
        for probability in PROBABILITIES:
            for limit in LIMITS:
                self.sums[probability, limit] = 0

    def score_of(self, probability: float) -> np.float32:
        return np.float32(probability ** (1 / START.power) / START.scale)

    def rule(self) -> tuple[np.float32, int]:
        """Return the threshold, a score, and the limit."""
        if self.objective == "micro":
            half_f = (START.a + sum(self.hits)) / (START.b + sum(self.marks))
            return self.score_of(max(half_f, float(np.float32(0.01)))), LIMITS[-1]
        best = max(self.sums.values())
        probability, limit = next(pair for pair, f in self.sums.items() if f == best)
        return self.score_of(probability), limit

    def predict(self, event: Event, threshold: np.float32, limit: int) -> list[int]:
        return [label for label, score in ranked(event)[:limit] if score >= threshold]

    def count(self, event: Event, denied: set[int] = frozenset()) -> None:
        true = {*event.labels.tolist()} - denied
        if event.row is None:
            predicted = {*event.predicted.tolist()} - denied
        else:
            predicted = {*self.predict(event, *self.rule())}
            self.n_rows += 1
            for probability, limit in self.sums:
                labels = {*self.predict(event, self.score_of(probability), limit)}
                n_marks = len(labels) + len(true)
                f = 2 * len(labels & true) * UNIT // n_marks if n_marks else self.empty
                self.sums[probability, limit] += f
        for label in true | predicted:
            self.hits[label] += label in true & predicted
            self.marks[label] += (label in true) + (label in predicted)

    def halve(self) -> None:
        self.hits, self.marks = ([n // 2 for n in counts] for counts in (self.hits, self.marks))
        self.sums = {pair: f // 2 for pair, f in self.sums.items()}
        self.n_rows //= 2

    def check(self, tuned: Tuned) -> None:
        threshold, limit = self.rule()
        assert tuned.counters.hits.tolist() == self.hits
        assert tuned.counters.marks.tolist() == self.marks
        assert tuned.aim.sums.tolist() == [self.n_rows, *self.sums.values()]
        np.testing.assert_allclose(tuned.thresholds, threshold, rtol=2e-7)
        assert len({*tuned.thresholds.tolist()}) == 1
        assert tuned.aim.limit == limit


def all_bits(replica: Replica) -> tuple[Any, ...]:
    aim = replica.live.snapshot().aim
    assert replica.live.limit == aim.limit
    return *replica.bits(), aim.objective, aim.limit, aim.sums.tobytes()


def caught_up(one: Replica) -> Replica:
    one.catch_up()
    return one
