"""What changes on real servers under requests: aliases that move (R12), revoked keys, denied labels."""

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xylem
from model_store.store import Store
from tests.alias_helpers import split
from tests.served_models import publish_model
from tests.servers import ServerProcess, wait_for

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


ROW = {"indices": [1, 5, 9], "values": [1.0, 0.5, 2.0]}
ROUTE = "/v1/admin/models/raw/aliases/latest/denied"
DENIED = ["label::1", "label::4"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("denied") / "store"
    for seed in (1, 2):
        publish_model(Store(root), "raw", "raw", seed=seed)
    return root


@pytest.fixture(scope="module")
def replicas(root: Path) -> Iterator[list[ServerProcess]]:
    with (
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as here,
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as there,
    ):
        yield [here, there]


def labels_of(connection: http.client.HTTPConnection, path: str = "", **headers: str) -> set[str]:
    """The labels of a prediction of all; over one connection heads are remembered."""
    body = json.dumps({"instances": [ROW], "top_r": 11}).encode()
    given = {"content-type": "application/json", **headers}
    connection.request("POST", f"/v1/models/raw{path}/predict", body, given)
    answer = connection.getresponse()
    found: Any = json.loads(answer.read())
    assert answer.status == 200, found
    return {label["label"] for label in found["predictions"][0]["labels"]}


def test_all_replicas_keep_to_it_until_it_is_taken_off(root: Path, replicas: list[ServerProcess]) -> None:
    every = {f"label::{i}" for i in range(11)}
    connections = [http.client.HTTPConnection("127.0.0.1", one.port, timeout=60) for one in replicas]
    for connection in connections:
        for _ in range(3):
            assert labels_of(connection) == every
    body = {"labels": DENIED, "reason": "retired"}
    status, answer = replicas[0].ask("PUT", ROUTE, body, **ADMIN)
    assert (status, answer["labels"], answer["unknown"]) == (200, DENIED, [])
    assert labels_of(connections[0]) == every - set(DENIED)  # at once, where the request came
    wait_for(lambda: labels_of(connections[1]) == every - set(DENIED))
    as_a_route = {"origin": "https://shop.example"}
    for connection in connections:
        assert labels_of(connection, **as_a_route) == every - set(DENIED)
        for path in ("/versions/2", "/versions/1"):
            assert labels_of(connection, path) == every
    split(Store(root), "raw", (1, 5000))
    wait_for(lambda: replicas[0].ask("GET", "/v1/models/raw")[1]["splits"] != {})
    for i in range(12):
        headers = {"xylem-canary-key": f"user-{i}"}
        assert labels_of(connections[0], **headers) == every - set(DENIED)
    assert replicas[0].ask("POST", "/v1/admin/models/raw/promote", {"version": 1}, **ADMIN)[0] == 200
    assert labels_of(connections[0]) == every - set(DENIED)
    assert replicas[0].ask("DELETE", ROUTE, **ADMIN)[0] == 200
    assert labels_of(connections[0]) == every
    assert replicas[0].ask("GET", ROUTE, **ADMIN)[1]["labels"] == []
    entries = replicas[0].ask("GET", "/v1/admin/audit", **ADMIN)[1]["entries"]
    assert [entry["action"] for entry in entries if entry["target"].endswith("/denied")] == [
        "endDenied",
        "putDenied",
    ]
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"labels": ["lable::1"]}, 422, "unknown-label"),
        ({"labels": [f"label {i}" for i in range(10_001)]}, 422, "bad-request"),
        ({"labels": "label::1"}, 422, "bad-request"),
        ({}, 422, "bad-request"),
    ],
)
def test_what_cannot_be_denied_is_refused(
    replicas: list[ServerProcess], body: dict[str, Any], status: int, code: str
) -> None:
    found, answer = replicas[0].ask("PUT", ROUTE, body, **ADMIN)
    assert (found, answer["code"]) == (status, code), answer
    assert replicas[0].ask("PUT", ROUTE, body)[0] == 401
    assert replicas[0].ask("PUT", ROUTE.replace("latest", "none"), {"labels": []}, **ADMIN)[0] == 404


def test_the_client_denies_and_allows_again(replicas: list[ServerProcess]) -> None:
    with xylem.Client(f"http://127.0.0.1:{replicas[0].port}", KEY) as client:
        assert client.call("PUT", ROUTE, labels=DENIED, reason="retired")["labels"] == DENIED
        assert client.call("GET", ROUTE)["labels"] == DENIED
        labels = {one.label for one in client.predict("raw", [ROW], top_r=11).predictions[0].labels}
        assert labels.isdisjoint(DENIED) and len(labels) == 9
        history = client.history("raw")["changes"][0]
        assert (history["action"], history["why"]) == ("denied", "retired")
        assert client.call("DELETE", ROUTE)["labels"] == []
