"""R14: a server's memory does not grow with the requests that it answers."""

from __future__ import annotations

import http.client
import json

import pytest

from model_store.store import Store
from tests.servers import ServerProcess

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
MODEL = "/v1/models/raw"
MEGABYTE = 1 << 20


def request(i: int) -> tuple[str, str, bytes, dict[str, str]]:
    """The i-th request; no two are alike, and of every kind there are many."""
    instance = {"indices": RAW["indices"], "values": [1.0, 0.5, float(i)]}
    kinds: list[tuple[str, str, object]] = [
        ("POST", f"{MODEL}/predict", {"instances": [instance], "top_r": 3}),
        ("POST", f"{MODEL}/predict", {"instances": [instance] * (1 + i % 7)}),
        ("POST", "/v1/models/text/predict", {"instances": [{"text": f"a game of chess {i}"}]}),
        ("POST", "/v1/models/named/predict", {"instances": [{"features": {"red": 1.0 + i, f"new{i}": 1.0}}]}),
        ("POST", f"{MODEL}/predict", {"instances": [instance], "exact": True, "explain": True}),
        ("POST", f"{MODEL}/batch?top_r={1 + i % 9}", instance),
        ("POST", f"{MODEL}/predict", {"instances": [instance], f"unknown{i}": i}),
        ("POST", f"/v1/models/none{i}/predict", {"instances": [instance]}),
        ("GET", f"/nothing/{i}", None),
        ("GET", MODEL, None),
        ("POST", f"{MODEL}/versions/{i}/predict", {"instances": [instance]}),
        ("POST", f"{MODEL}/feedback", {"event_id": str(i), "instance": instance, "labels": []}),
    ]
    method, path, body = kinds[i % len(kinds)]
    media = "application/x-ndjson" if "/batch" in path else "application/json"
    headers = {"content-type": media}
    if i % 4 == 0:  # most clients send neither, and their heads are remembered
        headers |= {"x-request-id": f"number-{i}", f"x-more-{i % 5000}": "a" * (i % 100)}
    return method, path, b"" if body is None else json.dumps(body).encode(), headers


def ask(port: int, numbers: range) -> dict[int, int]:
    """How often the answers to these requests had which status."""
    statuses: dict[int, int] = {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for i in numbers:
        connection.request(*request(i))
        response = connection.getresponse()
        response.read()
        statuses[response.status] = statuses.get(response.status, 0) + 1
    connection.close()
    return statuses


@pytest.mark.parametrize(
    "n",
    [2_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(0)])],
    ids=["quick", "soak"],
)
def test_memory_is_flat(n: int, own_store: Store) -> None:
    """At most 1 MB for 100,000 requests, and 2 MB that caches with a limit may still take."""
    with ServerProcess(own_store.root, access_log=False) as server:
        ask(server.port, range(n // 2))
        before = server.memory_bytes()
        statuses = ask(server.port, range(n // 2, 3 * n // 2))
        grown = server.memory_bytes() - before
    assert statuses.keys() == {200, 404, 422}
    assert min(statuses.values()) >= n // 13
    assert grown <= MEGABYTE * (2 + n / 100_000), grown
