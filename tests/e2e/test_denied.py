"""Denied labels on real servers: set by one replica, kept to by all, on connections that are open."""

from __future__ import annotations

import http.client
import json
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
        assert client.put_denied("raw", DENIED, reason="retired")["labels"] == DENIED
        assert client.denied("raw")["labels"] == DENIED
        labels = {one.label for one in client.predict("raw", [ROW], top_r=11).predictions[0].labels}
        assert labels.isdisjoint(DENIED) and len(labels) == 9
        history = client.history("raw")["changes"][0]
        assert (history["action"], history["why"]) == ("denied", "retired")
        assert client.end_denied("raw")["labels"] == []
