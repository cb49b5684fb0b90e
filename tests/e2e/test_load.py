"""Servers under load: more requests than can be served (R13 without its times), and memory (R14)."""

import http.client
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from model_store.store import Store
from tests.servers import ServerProcess

N_SHORT = 48
N_ROUNDS = 4
LONG = {"instances": [{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}] * 1024, "exact": True, "top_r": 90}
# One for a thread: it has many nodes to explain.
SHORT = {"instances": LONG["instances"][:1], "explain": True, "top_r": 90}  # type: ignore[index]
REFUSED = (503, "overloaded", True)
ANSWERED = (200, "", False)


TEXT = {"instances": [{"text": "a game of chess in the terminal"}]}
NAMED = {"instances": [{"features": {"red": 1.0, "blue": 0.5}}]}
ODD = {"instances": [{"text": "chess"}], "unknown": 1}


def ask_at_once(
    server: ServerProcess, bodies: list[bytes], model: str = "raw"
) -> Counter[tuple[int, str, bool]]:
    """Return how often which status, code and whether Retry-After came.

    The server is stopped while the requests are sent: it finds all of them at once, however slow we are.
    """
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=300) for _ in bodies]
    server.process.send_signal(signal.SIGSTOP)
    try:
        for connection, body in zip(connections, bodies, strict=True):
            path, headers = f"/v1/models/{model}/predict", {"content-type": "application/json"}
            connection.request("POST", path, body, headers)
    finally:
        server.process.send_signal(signal.SIGCONT)
    seen: Counter[tuple[int, str, bool]] = Counter()
    for connection in connections:
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status == 200:
            assert len(answer["predictions"]) in (1, 1024)
        seen[response.status, answer.get("code", ""), response.getheader("retry-after") is not None] += 1
        connection.close()
    return seen


@pytest.mark.parametrize("limit", ["queue_max", "requests_max"])
def test_what_is_too_much_is_refused_and_the_rest_answered(shared_store: Path, limit: str) -> None:
    """A long prediction holds the one thread, and others fill the queue, or all that may be in flight."""
    long, short = json.dumps(LONG).encode(), json.dumps(SHORT).encode()
    with ServerProcess(shared_store, threads_max=1, access_log=False, **{limit: 2}) as server:
        rounds = [ask_at_once(server, [long] + [short] * N_SHORT) for _ in range(N_ROUNDS)]
        assert all(one.keys() <= {ANSWERED, REFUSED} for one in rounds)
        assert all(one[ANSWERED] for one in rounds)
        assert any(one[REFUSED] for one in rounds)
        assert ask_at_once(server, [short]) == {ANSWERED: 1}
        assert server.terminate() == 0


@pytest.mark.parametrize(
    ("model", "body", "answer"),
    [("text", TEXT, ANSWERED), ("named", NAMED, ANSWERED), ("text", ODD, (422, "bad-request", False))],
    ids=["text", "named", "refused"],
)
def test_texts_and_names_and_faults_are_answered_or_refused_and_the_server_lives(
    shared_store: Path, model: str, body: dict[str, object], answer: tuple[int, str, bool]
) -> None:
    with ServerProcess(shared_store, requests_max=2, access_log=False) as server:
        for _ in range(N_ROUNDS):
            found = ask_at_once(server, [json.dumps(body).encode()] * N_SHORT, model)
            assert found.keys() <= {answer, REFUSED}
            assert found[answer]
            assert server.status("/livez") == 200


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
