"""R13 without its times: more requests than can be served are refused in order, and the others answered."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import ServerProcess

pytestmark = pytest.mark.timeout(600)

N_CLIENTS = 24
N_REQUESTS = 8
LONG = {"instances": [{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}] * 1024, "exact": True, "top_r": 90}
SHORT = {"instances": LONG["instances"][:1]}  # type: ignore[index]


def load(port: int, bodies: list[bytes]) -> Counter[tuple[int, str, bool]]:
    """Ask one after the other; return how often which status, code and whether Retry-After came."""
    seen: Counter[tuple[int, str, bool]] = Counter()
    for body in bodies:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", "/v1/models/raw/predict", body, {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        code = answer.get("code", "")
        if response.status == 200:
            assert len(answer["predictions"]) in (1, 1024)
        seen[response.status, code, response.getheader("retry-after") is not None] += 1
        connection.close()
    return seen


@pytest.mark.parametrize("limit", ["queue_max", "requests_max"])
def test_what_is_too_much_is_refused_and_the_rest_answered(shared_store: Path, limit: str) -> None:
    """Long predictions fill the queue, or all that may be in flight; clients go on without a pause."""
    long, short = json.dumps(LONG).encode(), json.dumps(SHORT).encode()
    with ServerProcess(shared_store, threads_max=1, access_log=False, **{limit: 2}) as server:
        with ThreadPoolExecutor(N_CLIENTS) as clients:
            loads = [clients.submit(load, server.port, [long] * N_REQUESTS) for _ in range(N_CLIENTS)]
            total = sum((one.result() for one in loads), Counter[tuple[int, str, bool]]())
        assert total.keys() == {(200, "", False), (503, "overloaded", True)}
        assert total[200, "", False] >= N_REQUESTS  # one is always being answered
        assert load(server.port, [short]) == {(200, "", False): 1}
        assert server.terminate() == 0
