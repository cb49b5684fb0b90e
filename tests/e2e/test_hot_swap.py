"""R12: an alias moves ten times a second under load: no request is dropped, each answer is its version's.

And keys: what one replica revokes, the other refuses within two seconds, whole requests too.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from tests.served_models import publish_model
from tests.servers import ServerProcess

KEY = "correct-horse-battery-staple"
ADMIN = {"authorization": f"Bearer {KEY}"}
VERSIONS = (1, 2)
PATHS = ("/v1/models/raw/predict", "/v1/models/raw/aliases/latest/predict")
AS_A_ROUTE = {"origin": "https://shop.example"}
"""Headers with which a request is no plain whole one: it goes through its route."""

CONNECTIONS = 4
N_FEATURES = 34


def bodies(seed: int) -> list[bytes]:
    """Requests of one row, of many rows, and of a row that is long."""
    rng = random.Random(seed)

    def row(n: int) -> dict[str, Any]:
        indices = sorted(rng.sample(range(N_FEATURES), n))
        return {"indices": indices, "values": [round(rng.gauss(0, 1), 3) for _ in indices]}

    requests: list[dict[str, Any]] = [{"instances": [row(4)], "top_r": 5} for _ in range(10)]
    requests.append({"instances": [row(30) for _ in range(200)], "top_r": 3})
    requests.append({"instances": [row(5)], "exact": True, "deadline_ms": 30_000})
    return [json.dumps(request).encode() for request in requests]


def found_of(answer: dict[str, Any]) -> list[Any]:
    """The labels and scores of an answer, without what is new in each: the predictions' ids."""
    return [prediction["labels"] for prediction in answer["predictions"]]


class Caller(threading.Thread):
    """Asks over one connection until told to stop; what is wrong goes to `faults`."""

    def __init__(
        self, port: int, expected: dict[tuple[bytes, int], Any], stopping: threading.Event, number: int
    ) -> None:
        super().__init__()
        self._port, self._expected, self._stopping = port, expected, stopping
        self._headers = {"content-type": "application/json", **(AS_A_ROUTE if number % 2 else {})}
        self.faults: list[Any] = []
        self.versions: list[int] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        todo = itertools.cycle(itertools.product(sorted({body for body, _ in self._expected}), PATHS))
        try:
            while not self._stopping.is_set():
                body, path = next(todo)
                connection.request("POST", path, body, self._headers)
                answer = connection.getresponse()
                found = json.loads(answer.read())
                if answer.status != 200 or self._expected[body, found["version"]] != found_of(found):
                    self.faults.append((answer.status, found))
                    return
                self.versions.append(found["version"])
        except Exception as error:
            self.faults.append(error)
        finally:
            connection.close()


@pytest.mark.parametrize(
    ("seconds", "workers"), [(3.0, 1), pytest.param(120.0, 2, marks=pytest.mark.soak)], ids=["quick", "soak"]
)
def test_answers_are_those_of_the_version_they_name_while_it_changes(
    own_store: Store, seconds: float, workers: int, seed: int
) -> None:
    with ServerProcess(own_store.root, workers, admin_key=KEY, access_log=False) as server:
        expected = {}
        for body, version in itertools.product(bodies(seed), VERSIONS):
            status, answer = server.ask("POST", f"/v1/models/raw/versions/{version}/predict", body)
            assert (status, answer.get("version")) == (200, version), answer
            expected[body, version] = found_of(answer)
        assert all(expected[body, 1] != expected[body, 2] for body, _ in expected)
        stopping = threading.Event()
        callers = [Caller(server.port, expected, stopping, number) for number in range(CONNECTIONS)]
        for caller in callers:
            caller.start()
        until, n_moves = time.monotonic() + seconds, 0
        while time.monotonic() < until and all(caller.is_alive() for caller in callers):
            version = VERSIONS[n_moves % 2]
            status, moved = server.ask("POST", "/v1/admin/models/raw/promote", {"version": version}, **ADMIN)
            assert (status, moved["version"]) == (200, version), moved
            n_moves += 1
            time.sleep(0.1)
        stopping.set()
        for caller in callers:
            caller.join()
        assert [caller.faults for caller in callers] == [[]] * CONNECTIONS
        print(f"{n_moves} moves, {sum(len(caller.versions) for caller in callers)} requests")
        for caller in callers:  # each saw versions come and go
            assert sum(a != b for a, b in itertools.pairwise(caller.versions)) > n_moves // 4
        assert server.terminate() == 0


def test_a_key_that_one_replica_revokes_is_refused_by_the_other_within_two_seconds(tmp_path: Path) -> None:
    publish_model(Store(tmp_path), "raw", "raw")
    body = json.dumps({"instances": [{"indices": [1], "values": [1.0]}]}).encode()
    with (
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as here,
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as there,
    ):
        made = here.ask("POST", "/v1/admin/keys", {"name": "shop", "scopes": ["predict"]}, **ADMIN)[1]
        headers = {"content-type": "application/json", "authorization": f"Bearer {made['key']}"}
        connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=60)

        def ask() -> tuple[int, str | None]:
            connection.request("POST", PATHS[0], body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("code")

        while ask() != (200, None):  # until the other replica knows it
            time.sleep(0.02)
        for _ in range(50):  # its head is remembered by now
            assert ask() == (200, None)
        assert here.ask("DELETE", f"/v1/admin/keys/{made['id']}", **ADMIN)[1]["state"] == "revoked"
        began = time.monotonic()
        while (answer := ask()) == (200, None):
            assert time.monotonic() - began < 60
            time.sleep(0.01)
        print(f"refused after {time.monotonic() - began:.2f} s")
        assert answer == (401, "key-revoked")
        wrong = {**headers, "authorization": f"Bearer {made['key'][:-1]}!"}
        for _ in range(500):
            connection.request("POST", PATHS[0], body, wrong)
            refused = connection.getresponse()
            assert (refused.status, json.loads(refused.read())["code"]) == (401, "unauthorized")
        connection.close()
        logs = here.log() + there.log()
        assert made["key"] not in logs and KEY not in logs
