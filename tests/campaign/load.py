"""Clients of replicas under faults, and the account of what they were told.

Askers hold each prediction against what the version that it names answers in peace. Feeders send events until
each is acknowledged, from whichever replica answers. The account at the end: every acknowledged event counts
once, and no other counts.
"""

import http.client
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

MODEL = "raw"
PREDICT = f"/v1/models/{MODEL}/predict"
FEEDBACK = f"/v1/models/{MODEL}/versions/1/feedback"
JSON_TYPE = {"content-type": "application/json"}
BLOCK = 16
ROWS = [
    {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]},
    {"indices": [0, 2, 7, 9], "values": [0.25, 1.5, -1.0, 2.0]},
    {"indices": [11, 21, 31], "values": [-0.5, 1.0, 1.0]},
]
REFUSED = 503
NO_ANSWER = 0
"""Counted in the place of a status: no answer, or one that broke off."""


class Client:
    """One connection after the other to one replica; one that breaks is no fault of the answer's."""

    def __init__(self, port: int, seconds: float = 60.0) -> None:
        self._port = port
        self._seconds = seconds
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """The status and the answer; NO_ANSWER where none came whole."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._seconds)
        try:
            self._connection.request("POST", path, json.dumps(body), JSON_TYPE)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self.close()
            time.sleep(0.05)  # nobody listens, for a while
            return NO_ANSWER, {}

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Worker(threading.Thread, ABC):
    """A client that asks until told to stop; what must not be is kept in `faults`."""

    def __init__(self, ports: Sequence[int], stopping: threading.Event) -> None:
        super().__init__()
        self._clients = [Client(port) for port in ports]
        self._stopping = stopping
        self.statuses: Counter[int] = Counter()
        self.faults: list[Any] = []

    def run(self) -> None:
        """Take turns with the replicas."""
        turn = 0
        while not self._stopping.is_set() and not self.faults:
            self.step(self._clients[turn % len(self._clients)])
            turn += 1
        self.finish()
        for client in self._clients:
            client.close()

    @abstractmethod
    def step(self, client: Client) -> None:
        """Ask once."""

    def finish(self) -> None:
        """What is left to do once told to stop."""


Answers = dict[tuple[int, int], Any]
"""By the place of a row in ROWS and a version: what that version answers."""


class Asker(Worker):
    """Asks for predictions; each must be that of the version it names, or refused with 503."""

    def __init__(self, ports: Sequence[int], stopping: threading.Event, expected: Answers) -> None:
        super().__init__(ports, stopping)
        self._expected = expected
        self._n = 0

    def step(self, client: Client) -> None:
        """Ask for one row."""
        at = self._n % len(ROWS)
        self._n += 1
        status, answer = client.ask(PREDICT, {"instances": [ROWS[at]], "top_r": 3})
        self.statuses[status] += 1
        if status == 200:
            if answer["predictions"][0]["labels"] != self._expected[at, answer["version"]]:
                self.faults.append(answer)
        elif status not in (NO_ANSWER, REFUSED):
            self.faults.append((status, answer))


class Feeder(Worker):
    """Sends events in blocks, each again until it is acknowledged."""

    def __init__(self, ports: Sequence[int], stopping: threading.Event, name: str) -> None:
        super().__init__(ports, stopping)
        self._name = name
        self.n_acknowledged = 0
        self.n_again = 0

    def block(self, first: int) -> dict[str, Any]:
        """The events from a number on; the same each time."""
        events = [
            {
                "event_id": f"{self._name}-{number}",
                "instance": ROWS[number % len(ROWS)],
                "labels": [f"label::{number % 5}"],
            }
            for number in range(first, first + BLOCK)
        ]
        return {"events": events}

    def step(self, client: Client) -> None:
        """Send the block that comes next."""
        status, answer = client.ask(FEEDBACK, self.block(self.n_acknowledged))
        self.statuses[status] += 1
        if status == 200:
            results = {one["result"] for one in answer["results"]}
            if not results <= {"applied", "duplicate"}:
                self.faults.append(answer)
            self.n_acknowledged += BLOCK
        elif status in (NO_ANSWER, REFUSED):
            self.n_again += 1
        else:
            self.faults.append((status, answer))

    def finish(self) -> None:
        """Send the last block, whose fate may be unknown, until it is acknowledged."""
        before = self.n_acknowledged
        until = time.monotonic() + 120
        while self.n_acknowledged == before and not self.faults:
            for client in self._clients:
                if self.n_acknowledged == before:
                    self.step(client)
            if time.monotonic() > until:
                self.faults.append("no replica took the last block")
