"""What changes on real servers under requests: aliases that move (R12), and keys that are revoked."""

import itertools
import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from tests.served_models import publish_model
from tests.servers import KEY, Connection, ServerProcess, busy

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


class Caller:
    """Asks over one connection, and holds each answer against that of the version it names."""

    def __init__(self, connection: Connection, expected: dict[tuple[bytes, int], Any], number: int) -> None:
        self._connection, self._expected = connection, expected
        self._headers = AS_A_ROUTE if number % 2 else {}
        self._todo = itertools.cycle(itertools.product(sorted({body for body, _ in expected}), PATHS))
        self.versions: list[int] = []

    def __call__(self) -> None:
        body, path = next(self._todo)
        status, found = self._connection.ask("POST", path, body, **self._headers)
        assert status == 200, found
        assert self._expected[body, found["version"]] == found_of(found)
        self.versions.append(found["version"])


@pytest.mark.parametrize(
    ("seconds", "workers"), [(3.0, 1), pytest.param(120.0, 2, marks=pytest.mark.soak)], ids=["quick", "soak"]
)
def test_answers_are_those_of_the_version_they_name_while_it_changes(
    own_store: Store, seconds: float, workers: int, seed: int
) -> None:
    with (
        ServerProcess(own_store.root, workers, admin_key=KEY, access_log=False) as server,
        ExitStack() as stack,
    ):
        expected = {}
        for body, version in itertools.product(bodies(seed), VERSIONS):
            status, answer = server.ask("POST", f"/v1/models/raw/versions/{version}/predict", body)
            assert (status, answer.get("version")) == (200, version), answer
            expected[body, version] = found_of(answer)
        assert all(expected[body, 1] != expected[body, 2] for body, _ in expected)
        connections = [stack.enter_context(Connection(server.port)) for _ in range(CONNECTIONS)]
        callers = [Caller(connection, expected, number) for number, connection in enumerate(connections)]
        until, n_moves = time.monotonic() + seconds, 0
        with busy(*callers):
            while time.monotonic() < until:
                version = VERSIONS[n_moves % 2]
                status, moved = server.admin("POST", "/models/raw/promote", {"version": version})
                assert (status, moved["version"]) == (200, version), moved
                n_moves += 1
                time.sleep(0.1)
        print(f"{n_moves} moves, {sum(len(caller.versions) for caller in callers)} requests")
        for caller in callers:  # each saw versions come and go
            assert sum(a != b for a, b in itertools.pairwise(caller.versions)) > n_moves // 4
        assert server.terminate() == 0


def test_a_key_that_one_replica_revokes_is_refused_by_the_other_within_two_seconds(tmp_path: Path) -> None:
    publish_model(Store(tmp_path), "raw", "raw")
    body = {"instances": [{"indices": [1], "values": [1.0]}]}
    with (
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as here,
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as there,
        Connection(there.port) as connection,
    ):
        made = here.admin("POST", "/keys", {"name": "shop", "scopes": ["predict"]})[1]

        def ask(key: str = made["key"]) -> tuple[int, str | None]:
            status, answer = connection.ask("POST", PATHS[0], body, authorization=f"Bearer {key}")
            return status, answer.get("code")

        while ask() != (200, None):  # until the other replica knows it
            time.sleep(0.02)
        for _ in range(50):  # its head is remembered by now
            assert ask() == (200, None)
        assert here.admin("DELETE", f"/keys/{made['id']}")[1]["state"] == "revoked"
        began = time.monotonic()
        while (answer := ask()) == (200, None):
            assert time.monotonic() - began < 60
            time.sleep(0.01)
        print(f"refused after {time.monotonic() - began:.2f} s")
        assert answer == (401, "key-revoked")
        for _ in range(500):
            assert ask(f"{made['key'][:-1]}!") == (401, "unauthorized")
        logs = here.log() + there.log()
        assert made["key"] not in logs and KEY not in logs
