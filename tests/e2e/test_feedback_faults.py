"""Feedback where the disk is full and where the database is not there yet: real processes, real refusals."""

import json
import resource
import socket
import threading
from typing import Any

from sqlalchemy import make_url

from model_store.store import Store
from tests.databases import forward, socket_path
from tests.servers import ServerProcess, wait_for

INSTANCE = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
FEEDBACK = "/v1/models/raw/feedback"
PREDICT = "/v1/models/raw/predict"
TUNED = {"instances": [INSTANCE], "threshold": "tuned"}


def block(first: int) -> dict[str, Any]:
    return {"events": [{"event_id": f"e{first + i}", "instance": INSTANCE, "labels": []} for i in range(64)]}


def results_of(server: ServerProcess, first: int) -> set[str] | None:
    """What became of the events of a block; None: they were refused."""
    status, found = server.ask("POST", FEEDBACK, block(first))
    if status == 503:
        assert found["code"] == "database-unavailable"
        return None
    assert status == 200, found
    return {one["result"] for one in found["results"]}


def test_a_full_disk_refuses_feedback_and_counts_nothing_of_it(own_store: Store) -> None:
    """No file may grow beyond some bytes: what a full disk says to SQLite, and only to this server."""
    with ServerProcess(own_store.root, access_log=False, threshold_refresh_ms=50) as server:
        assert results_of(server, 0) == {"applied"}
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (400_000, hard))
        first = 64
        while results_of(server, first) == {"applied"}:
            first += 64
            assert first < 100_000
        for _ in range(3):
            assert results_of(server, first) is None
            status, answer = server.ask("POST", PREDICT, TUNED)
            assert (status, answer["predictions"][0].keys() >= {"labels"}) == (200, True)
        shown = server.ask("GET", "/v1/models/raw/thresholds")[1]
        assert shown["n_events"] == first
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert results_of(server, 0) == {"duplicate"}
        assert results_of(server, first) == {"applied"}
        assert server.ask("GET", "/v1/models/raw/thresholds")[1]["n_events"] == first + 64
        assert server.terminate() == 0


def test_a_database_that_comes_later_is_used_then(own_store: Store, postgresql: str) -> None:
    """It starts without its PostgreSQL, predicts, refuses feedback, and goes on when it is there."""
    url, path = make_url(postgresql), socket_path(postgresql)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        away = url.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        with ServerProcess(own_store.root, database_url=away, threshold_refresh_ms=50) as server:
            assert results_of(server, 0) is None
            assert server.ask("POST", PREDICT, {"instances": [INSTANCE]})[0] == 200
            assert server.ask("POST", PREDICT, TUNED)[1]["code"] == "database-unavailable"
            line = json.dumps(block(0)["events"][0]).encode()
            _, refused = server.ask("POST", FEEDBACK, line, **{"content-type": "application/x-ndjson"})
            assert refused["detail"] == "expected a database that answers, found that it does not"
            [failed] = server.events("database_failed")
            assert str(port) in failed["detail"]
            assert all(str(port) in one["detail"] for one in server.events("request_failed"))
            listener.listen()
            threading.Thread(target=forward, args=(listener, path), daemon=True).start()
            wait_for(lambda: results_of(server, 0) is not None)
            assert server.ask("POST", PREDICT, TUNED)[0] == 200
            assert results_of(server, 0) == {"duplicate"}
            assert server.terminate() == 0
