"""R13 without its times: more requests than can be served are refused in order, and the others answered."""

from __future__ import annotations

import http.client
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

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
    [
        ("text", TEXT, ANSWERED),
        ("named", NAMED, ANSWERED),
        ("text", ODD, (422, "bad-request", False)),
    ],
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
