"""Servers under load: more requests than can be served (R13 without its times), and
memory (R14).
"""

import contextlib
import http.client
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.servers import ServerProcess

from xylem_store.store import Store

N_SHORT = 48
N_ROUNDS = 4
RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
LONG = {"instances": [RAW] * 1024, "exact": True, "top_r": 90}
SHORT = {"instances": [RAW], "explain": True, "top_r": 90}
"""One for a thread: it has many nodes to explain."""

REFUSED = (503, "overloaded", True)
ANSWERED = (200, "", False)


def ask_at_once(server: ServerProcess, bodies: list[Any], model: str = "raw") -> Counter[Any]:
    """Return how often which status, code and whether Retry-After came.

    The server is stopped while the requests are sent: it finds all of them at once, however slow we
    are.
    """
    connections = [
        http.client.HTTPConnection("127.0.0.1", server.port, timeout=300) for _ in bodies
    ]
    server.process.send_signal(signal.SIGSTOP)
    try:
        for connection, body in zip(connections, bodies, strict=True):
            headers = {"content-type": "application/json"}
            connection.request("POST", f"/v1/models/{model}/predict", json.dumps(body), headers)
    finally:
        server.process.send_signal(signal.SIGCONT)
    seen: Counter[Any] = Counter()
    for connection in connections:
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status == 200:
            assert len(answer["predictions"]) in (1, 1024)
        seen[
            response.status, answer.get("code", ""), response.getheader("retry-after") is not None
        ] += 1
        connection.close()
    return seen


@pytest.mark.parametrize("limit", ["queue_max", "requests_max"])
def test_what_is_too_much_is_refused_and_the_rest_answered(shared_store: Path, limit: str) -> None:
    """A long prediction holds the one thread, and others fill the
    queue, or all that may be in flight.
    """
    with ServerProcess(shared_store, threads_max=1, access_log=False, **{limit: 2}) as server:
        rounds = [ask_at_once(server, [LONG] + [SHORT] * N_SHORT) for _ in range(N_ROUNDS)]
        assert all(one[ANSWERED] and one.keys() <= {ANSWERED, REFUSED} for one in rounds)
        assert any(one[REFUSED] for one in rounds)
        assert ask_at_once(server, [SHORT]) == {ANSWERED: 1}
        assert server.terminate() == 0


def test_texts_names_and_faults_are_answered_or_refused(
    shared_store: Path,
) -> None:
    with ServerProcess(shared_store, requests_max=2, access_log=False) as server:
        for model, body, answer in (
            ("text", {"instances": [{"text": "a game of chess in the terminal"}]}, ANSWERED),
            ("named", {"instances": [{"features": {"red": 1.0, "blue": 0.5}}]}, ANSWERED),
            ("text", {"instances": [{"text": "chess"}], "unknown": 1}, (422, "bad-request", False)),
        ):
            for _ in range(N_ROUNDS):
                found = ask_at_once(server, [body] * N_SHORT, model)
                assert found[answer] and found.keys() <= {answer, REFUSED}, (model, found)
                assert server.status("/livez") == 200


MODEL = "/v1/models/raw"


def request(i: int) -> tuple[str, str, bytes, dict[str, str]]:
    """The i-th request; no two are alike, and of every kind there are many."""
    instance = {"indices": RAW["indices"], "values": [1.0, 0.5, float(i)]}
    kinds: list[tuple[str, object]] = [
        (f"{MODEL}/predict", {"instances": [instance], "top_r": 3}),
        (f"{MODEL}/predict", {"instances": [instance] * (1 + i % 7)}),
        ("/v1/models/text/predict", {"instances": [{"text": f"a game of chess {i}"}]}),
        (
            "/v1/models/named/predict",
            {"instances": [{"features": {"red": 1.0 + i, f"new{i}": 1.0}}]},
        ),
        (f"{MODEL}/predict", {"instances": [instance], "exact": True, "explain": True}),
        (f"{MODEL}/batch?top_r={1 + i % 9}", instance),
        (f"{MODEL}/predict", {"instances": [instance], f"unknown{i}": i}),
        (f"/v1/models/none{i}/predict", {"instances": [instance]}),
        (f"/nothing/{i}", None),
        (MODEL, None),
        (f"{MODEL}/versions/{i}/predict", {"instances": [instance]}),
        (f"{MODEL}/feedback", {"event_id": str(i), "instance": instance, "labels": []}),
    ]
    path, body = kinds[i % len(kinds)]
    headers = {"content-type": "application/x-ndjson" if "/batch" in path else "application/json"}
    if i % 4 == 0:  # most clients send neither, and their heads are remembered
        headers |= {"x-request-id": f"number-{i}", f"x-more-{i % 5000}": "a" * (i % 100)}
    if body is None:
        return "GET", path, b"", headers
    return "POST", path, json.dumps(body).encode(), headers


def ask(port: int, numbers: range) -> Counter[int]:
    """How often the answers to these requests had which status."""
    statuses: Counter[int] = Counter()
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    ) as connection:
        for i in numbers:
            connection.request(*request(i))
            response = connection.getresponse()
            response.read()
            statuses[response.status] += 1
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
    assert grown <= (2 + n / 100_000) * (1 << 20), grown
