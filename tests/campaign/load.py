"""Clients of replicas under faults, and the account of what they were told.

Askers hold each prediction against what the version that it names answers in peace. Feeders send
events until each is acknowledged, from whichever replica answers. The account at the end: every
acknowledged event counts once, and no other counts.
"""

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.helpers.replicas import BROKEN, PREDICT, try_once
from tests.helpers.servers import Connection

MODEL = "raw"
FEEDBACK = f"/v1/models/{MODEL}/versions/1/feedback"
BLOCK = 16
ROWS = [
    {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]},
    {"indices": [0, 2, 7, 9], "values": [0.25, 1.5, -1.0, 2.0]},
    {"indices": [11, 21, 31], "values": [-0.5, 1.0, 1.0]},
]
REFUSED = 503

Answers = dict[tuple[int, int], Any]
"""By the place of a row in ROWS and a version: what that version answers."""


class Worker:
    """Asks replicas in turns, over a connection to each; counts the answers by status."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = itertools.cycle(connections)
        self.statuses: Counter[int] = Counter()

    def ask(self, path: str, body: object) -> Any:
        """The answer; None where there was none or it was refused with
        503, and no other refusal is right.
        """
        connection = next(self._connections)
        status, answer = try_once(connection, path, body)
        self.statuses[status] += 1
        if status == 200:
            return answer
        assert status in (BROKEN, REFUSED), answer
        if status == BROKEN:
            time.sleep(0.05)  # nobody listens, for a while
        return None


class Asker(Worker):
    """Asks for the prediction of one row; each must be that of the version it names."""

    def __init__(self, connections: Sequence[Connection], expected: Answers) -> None:
        super().__init__(connections)
        self._expected = expected
        self._places = itertools.cycle(range(len(ROWS)))

    def __call__(self) -> None:
        at = next(self._places)
        answer = self.ask(PREDICT, {"instances": [ROWS[at]], "top_r": 3})
        if answer is not None:
            assert answer["predictions"][0]["labels"] == self._expected[at, answer["version"]], (
                answer
            )


class Feeder(Worker):
    """Sends the next block of events, each again until it is acknowledged."""

    def __init__(self, connections: Sequence[Connection], name: str) -> None:
        super().__init__(connections)
        self._name = name
        self.n_acknowledged = 0
        self.n_again = 0

    def block(self, first: int) -> dict[str, Any]:
        """The events from a number on; the same each time."""
        return {"events": [self._event(i) for i in range(first, first + BLOCK)]}

    def _event(self, i: int) -> dict[str, Any]:
        labels = [f"label::{i % 5}"]
        return {"event_id": f"{self._name}-{i}", "instance": ROWS[i % len(ROWS)], "labels": labels}

    def __call__(self) -> None:
        answer = self.ask(FEEDBACK, self.block(self.n_acknowledged))
        if answer is None:
            self.n_again += 1
        else:
            assert {one["result"] for one in answer["results"]} <= {"applied", "duplicate"}, answer
            self.n_acknowledged += BLOCK

    def finish(self) -> None:
        """Send the last block, whose fate may be unknown, until it is acknowledged."""
        before, until = self.n_acknowledged, time.monotonic() + 120
        while self.n_acknowledged == before:
            assert time.monotonic() < until, "no replica took the last block"
            self()
