"""R10: processes that send feedback and are killed at random moments, by a process that forks them.

python -m tests.helpers.feeders URL ROUNDS SEED prints one JSON object. A feeder writes to a pipe
when a block of events is acknowledged. The next feeder begins with the first block that was not: it
may or may not have been counted.
"""

import json
import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np

from tests.helpers.feedback_helpers import N_LABELS, Replica, predictor, token_event
from xylem.base.db.engine import Database
from xylem.thresholds.store.state import ThresholdDatabase

ROUND_SECONDS_MAX = 0.08
BLOCK = 3
DONE = b"!"


def true_of(i: int) -> list[int]:
    return [i % N_LABELS, (i * 7) % N_LABELS]


def feed(url: str, first: int, acknowledged: int) -> None:
    """Send blocks of events, from number `first` on, for ever."""
    replica = Replica(url)
    while True:
        block = range(first, first + BLOCK)
        outcome = replica.send(*(token_event(f"e{i}", true_of(i), [i % N_LABELS]) for i in block))
        assert set(outcome) <= {"applied", "duplicate"}
        os.write(acknowledged, DONE)
        first += BLOCK


def run(url: str, rounds: int, seed: int) -> dict[str, Any]:
    """Kill feeders; compare what the database counted with what was acknowledged."""
    rng = random.Random(seed)
    predictor().warm_up()
    Replica(url).live.warm_up()
    first, in_doubt = 0, 0
    for _ in range(rounds):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            feed(url, first, write_end)
        os.close(write_end)
        first += BLOCK * len(os.read(read_end, 1))
        time.sleep(rng.uniform(0, ROUND_SECONDS_MAX))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while done := os.read(read_end, 4096):
            first += BLOCK * len(done)
        os.close(read_end)
        database = Database(url)
        tuned = ThresholdDatabase(database).load("m", 1)
        database.close()  # a connection to SQLite must not be used in a forked process
        marks = int(tuned.counters.marks.sum()) if tuned else 0
        in_doubt += marks > sum(map(marks_of, range(first)))
    replica = Replica(url)
    outcome = replica.send(
        *(token_event(f"e{i}", true_of(i), [i % N_LABELS]) for i in range(first + BLOCK))
    )
    expected = np.zeros(N_LABELS, np.int64)
    for i in range(first + BLOCK):
        for label in set(true_of(i)):
            expected[label] += 1
        expected[i % N_LABELS] += 1
    marks_counted = replica.live.snapshot().counters.marks
    replica.close()
    return {
        "acknowledged": first,
        "lost": outcome[:first].count("applied"),
        "wrong": int((marks_counted != expected).sum()),
        "in_doubt": in_doubt,
    }


def marks_of(i: int) -> int:
    return len(set(true_of(i))) + 1


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
