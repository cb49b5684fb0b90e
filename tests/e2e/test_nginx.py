"""The shipped nginx.conf, in a real nginx, before two real replicas on loopback."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.balanced import (
    HIDDEN_PATHS,
    RUNS,
    Cluster,
    ignore_upgrades,
    kill_one,
    refuse_what_is_hidden,
    restart_all,
    stream_a_batch,
)
from tests.replicas import INSTANCE, JSON, KEY, Replica, listens, reserved_ports, wait_until

CONF = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def stream_option() -> list[str]:
    """What this nginx must be told to balance TCP; skips where there is no nginx, or it cannot."""
    if not Path(NGINX).exists():
        pytest.skip("nginx is not installed")
    built = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=True).stderr
    if re.search(r"--with-stream(\s|$)", built):
        return []
    if not STREAM_MODULE.exists():
        pytest.skip("nginx is installed without its stream module")
    if any(Path("/etc/nginx/modules-enabled").glob("*stream*.conf")):
        return []  # the shipped file includes it
    return ["-g", f"load_module {STREAM_MODULE};"]


@contextmanager
def balanced(option: list[str], ports: list[int], directory: Path) -> Iterator[None]:
    """Run nginx with the shipped file: only ports, names of replicas and paths of temporary files differ."""
    http_port, batch_port, *replicas = ports
    text = CONF.read_text().replace("/tmp/", f"{directory}/")
    for old, new in (
        ("listen 8080", f"listen 127.0.0.1:{http_port}"),
        ("listen 8081", f"listen 127.0.0.1:{batch_port}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    for number, port in enumerate(replicas, 1):
        assert text.count(f"xylem-{number}:8080") == 2
        text = text.replace(f"xylem-{number}:8080", f"127.0.0.1:{port}")
    conf = directory / "nginx.conf"
    conf.write_text(f"daemon off;\n{text}")
    with subprocess.Popen([NGINX, "-c", conf, *option], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: listens(http_port))
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def cluster(
    stream_option: list[str], shared_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("nginx")
    database = directory / "xylem.db"
    with ExitStack() as stack:
        ports = stack.enter_context(reserved_ports(4))
        replicas = [stack.enter_context(Replica(shared_store, port, database)) for port in ports[2:]]
        stack.enter_context(balanced(stream_option, ports, directory))
        yield Cluster(ports[0], ports[1], replicas)


@RUNS
def test_a_rolling_restart_under_load_fails_no_request(cluster: Cluster, n_requests: int) -> None:
    restart_all(cluster, n_requests)


@RUNS
def test_the_death_of_a_replica_breaks_no_more_than_what_is_in_flight(
    cluster: Cluster, n_requests: int
) -> None:
    kill_one(cluster, n_requests)


def test_a_batch_of_any_length_streams_through_its_own_port(cluster: Cluster) -> None:
    stream_a_batch(cluster)


def test_an_upgrade_is_ignored_and_its_body_read(cluster: Cluster) -> None:
    ignore_upgrades(cluster.port)


@pytest.mark.parametrize("path", [*HIDDEN_PATHS, "/x/../metrics", "/v1/x/../admin/audit"])
def test_what_is_for_those_who_run_it_is_not_published(cluster: Cluster, path: str) -> None:
    refuse_what_is_hidden(cluster, path)


def test_uploads_and_streams_of_events_pass_by_the_port_for_streams(cluster: Cluster) -> None:
    """It is TCP, and reaches every route: so a key is asked for there, and nginx holds nothing back."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.stream_port, timeout=120)
    key = {"authorization": f"Bearer {KEY}"}
    lines = b'{"indices": [1], "values": [1.0]}\n' * 300_000  # more than nginx would take on the other port

    def ask(
        method: str, path: str, body: bytes | None = None, headers: dict[str, str] = key
    ) -> tuple[int, dict[str, Any]]:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    assert ask("GET", "/v1/admin/jobs", headers={})[0] == 401
    status, file = ask("PUT", "/v1/admin/data/rows.jsonl", lines)
    assert (status, file["bytes"]) == (200, len(lines))
    batch = json.dumps({"model": "raw", "data": "rows.jsonl"}).encode()
    status, job = ask("POST", "/v1/admin/batch-jobs", batch, key | JSON)
    assert (status, job["state"]) == (202, "queued")
    path = f"/v1/admin/jobs/{job['id']}"
    events = http.client.HTTPConnection("127.0.0.1", cluster.stream_port, timeout=120)
    events.request("GET", f"{path}/events", headers=key)
    stream = events.getresponse()
    assert [stream.readline() for _ in range(2)] == [b"event: job\n", b"id: 1\n"]  # while the job waits
    assert ask("DELETE", path)[0] == 200
    assert b'"state":"cancelled"' in stream.read()
    for one in (connection, events):
        one.close()


def test_a_batch_on_the_other_port_is_refused_at_once(cluster: Cluster) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=120)
    connection.request("POST", "/v1/models/raw/versions/1/batch", b"{}\n" * 10, NDJSON)
    response = connection.getresponse()
    assert (response.status, response.getheader("content-type")) == (421, "application/problem+json")
    assert json.loads(response.read())["code"] == "batch-port"
    connection.close()


def feedback_on(port: int, body: bytes, headers: dict[str, str]) -> tuple[int, list[str]]:
    """Send feedback; return the status, and what became of the events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/models/raw/feedback", body, headers)
    response = connection.getresponse()
    found = response.read()
    connection.close()
    if response.status != 200:
        return response.status, [json.loads(found)["code"]]
    are_lines = headers is NDJSON
    results = map(json.loads, found.splitlines()) if are_lines else json.loads(found)["results"]
    return 200, [one["result"] for one in results]


def test_feedback_counts_once_whichever_replica_has_it(cluster: Cluster) -> None:
    events = [{"event_id": f"e{i}", "instance": INSTANCE, "labels": []} for i in range(200)]
    body = json.dumps({"events": events}).encode()
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    assert feedback_on(cluster.port, body, JSON) == (200, ["applied"] * 200)
    for _ in range(4):
        assert feedback_on(cluster.port, body, JSON) == (200, ["duplicate"] * 200)
        assert feedback_on(cluster.stream_port, lines, NDJSON) == (200, ["duplicate"] * 200)
    assert feedback_on(cluster.port, lines, NDJSON) == (421, ["batch-port"])
    for kind in ("application/ndjson; charset=utf-8", "Application/X-NDJSON"):
        assert feedback_on(cluster.port, lines, {"content-type": kind}) == (421, ["batch-port"])
