"""A scrape of a real server: all of its workers, stages, streams, in both formats."""

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from tests.servers import ServerProcess, wait_for

PREDICT = "/v1/models/raw/predict"
ROW = {"indices": [1, 5], "values": [1.0, 0.5]}
LINE = json.dumps(ROW).encode() + b"\n"
BODY = {"instances": [ROW]}
OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0"}


def figures(server: ServerProcess, **headers: str) -> dict[str, Any]:
    """The figures of a scrape, by name."""
    status, page = server.ask("GET", "/metrics", **headers)
    assert status == 200
    parse: Any = parse_openmetrics if headers else parse_plain
    families = list(parse(page.decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def sum_of(server: ServerProcess, name: str, **labels: str) -> float:
    """The sum of a figure's samples with these labels."""
    found = [
        sample for family in figures(server).values() for sample in family.samples if sample.name == name
    ]
    return sum(sample.value for sample in found if labels.items() <= sample.labels.items())


def test_a_scrape_has_the_figures_of_all_workers(shared_store: Path) -> None:
    with ServerProcess(shared_store, workers=2, drain_seconds=0.1) as server:
        wait_for(lambda: len(server.events("models_opened")) == 2)
        for _ in range(60):
            assert server.ask("POST", PREDICT, BODY)[0] == 200
        route = "/v1/models/{model}/predict"
        wait_for(lambda: sum_of(server, "xylem_requests_total", route=route, status="200") == 60)
        for headers in ({}, OPENMETRICS):
            found = figures(server, **headers)
            samples = [sample for family in found.values() for sample in family.samples]
            assert {sample.labels["worker"] for sample in samples} == {"0", "1"}
            assert [sample.value for sample in found["xylem_worker_up"].samples] == [1, 1]
            series = Counter((sample.name, *sorted(sample.labels.items())) for sample in samples)
            assert set(series.values()) == {1}
        pid = server.events("worker_started")[1]["pid"]
        os.kill(pid, signal.SIGSTOP)  # it listens, and does not answer
        try:
            found = next(page for _ in range(100) if (page := figures_or_none(server)) is not None)
        finally:
            os.kill(pid, signal.SIGCONT)
        up = {sample.labels["worker"]: sample.value for sample in found["xylem_worker_up"].samples}
        assert up == {"0": 1, "1": 0}
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(server.events("models_opened")) == 3)
        wait_for(lambda: sum_of(server, "xylem_worker_up") == 2)
        assert server.terminate() == 0


def figures_or_none(server: ServerProcess) -> dict[str, Any] | None:
    """The figures of a scrape; None where it met the worker that does not answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=3) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = b""
        try:
            while part := connection.recv(1 << 16):
                received += part
        except TimeoutError:
            return None
    body = received.partition(b"\r\n\r\n")[2]
    return {family.name: family for family in parse_plain(body.decode())}


def counts(server: ServerProcess, *stages: str) -> list[float]:
    return [sum_of(server, "xylem_stage_seconds_count", stage=stage) for stage in stages]


def begin_batch(connection: socket.socket, query: str = "") -> None:
    lines = [f"POST /v1/models/raw/batch{query} HTTP/1.1", "host: x", "content-type: application/x-ndjson"]
    connection.sendall("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())


def test_stages_and_streams_are_counted(own_store: Any) -> None:
    with ServerProcess(own_store.root, body_seconds_max=1) as server:
        for body in (BODY, BODY, {"instances": [ROW], "explain": True}):
            assert server.ask("POST", PREDICT, body)[0] == 200
        assert counts(server, "read", "search", "write", "features", "queue") == [3, 3, 3, 1, 0]
        wide = {"instances": [ROW] * 9, "beam_width": 100}
        assert server.ask("POST", PREDICT, wide)[0] == 200
        assert counts(server, "search", "queue") == [4, 1]
        event = {"event_id": "e1", "instance": ROW, "labels": []}
        status, answer = server.ask("POST", "/v1/models/raw/feedback", {"events": [event]})
        assert (status, answer["results"][0]["result"]) == (200, "applied"), answer
        assert counts(server, "commit") == [1]

        def lines() -> Iterator[bytes]:
            for _ in range(3):
                yield LINE
                wait_for(lambda: sum_of(server, "xylem_streams_open", stream="batch") == 1)

        assert len(list(server.stream("/v1/models/raw/batch", lines()))) == 3
        assert counts(server, "search")[0] > 4
        wait_for(lambda: sum_of(server, "xylem_streams_open") == 0)
        # a client that sends nothing more is cut off
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            begin_batch(connection)
            wait_for(lambda: sum_of(server, "xylem_streams_cut_total", stream="batch") == 1)
        assert sum_of(server, "xylem_stream_blocks") == 0


def test_a_client_that_does_not_read_stalls_its_stream(shared_store: Path) -> None:
    with ServerProcess(shared_store) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            begin_batch(connection, "?top_r=10")
            chunk = b"%x\r\n%b\r\n" % (len(LINE) * 200, LINE * 200)
            wait_for(lambda: is_full(connection, chunk))
            wait_for(lambda: sum_of(server, "xylem_streams_stalled", stream="batch") == 1)
            assert sum_of(server, "xylem_stream_blocks", stream="batch") >= 1
        wait_for(lambda: sum_of(server, "xylem_streams_stalled") == 0)


def is_full(connection: socket.socket, chunk: bytes) -> bool:
    """Send until the server takes no more; return whether it does not."""
    try:
        for _ in range(50):
            connection.sendall(chunk)
    except TimeoutError:
        return True
    return False
