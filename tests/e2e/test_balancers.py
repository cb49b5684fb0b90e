"""The shipped haproxy.cfg and nginx.conf, in the real ones, before two real replicas
on loopback.
"""

import http.client
import json
import re
import signal
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.helpers import balanced
from tests.helpers.balanced import Cluster, haproxy_command, nginx_command
from tests.helpers.replicas import (
    BODY,
    BROKEN,
    INSTANCE,
    N_CLIENTS,
    PREDICT,
    Replica,
    load,
    reserved_ports,
)
from tests.helpers.servers import KEY, Connection, answer_on, exchange, wait_for
from tests.helpers.tls_relay import make_certificate

JSON, NDJSON = "application/json", "application/x-ndjson"
N_EVENTS = 200
DRAIN_SECONDS = {"haproxy": 2, "nginx": 0.3}
"""As deploy/systemd/xylem.env has it: haproxy must see that a replica is not ready
before it stops.
"""

RUNS = pytest.mark.parametrize(
    "n_requests", [200, pytest.param(5000, marks=pytest.mark.soak)], ids=["quick", "soak"]
)
"""So many requests are answered at least while replicas come and go."""

HIDDEN_PATHS = [
    *("/metrics", "/metrics/", "//metrics", "/%6Detrics", "/x/../metrics"),
    *("/v1/admin", "/v1/admin/jobs", "//v1//admin/keys", "/v1/%61dmin/keys"),
    *("/v1/admin/models/raw/thresholds/tune", "/v1/x/../admin/audit"),
]
"""Ways to name what is for those who run it."""


@pytest.fixture(scope="module", params=["haproxy", "nginx"])
def cluster(
    request: pytest.FixtureRequest, shared_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp(request.param)
    is_haproxy = request.param == "haproxy"
    (haproxy_command if is_haproxy else nginx_command)(directory)  # skips where it is not installed
    settings = {"database_url": f"sqlite:///{directory}/xylem.db", "data_dir": directory}
    settings["drain_seconds"] = DRAIN_SECONDS[request.param]
    with ExitStack() as stack:
        port, stream_port, *ports = stack.enter_context(reserved_ports(4))
        replicas = [stack.enter_context(Replica(shared_store, each, **settings)) for each in ports]
        if is_haproxy:
            stack.enter_context(balanced.haproxy(port, ports, directory))
            yield Cluster(port, port, replicas)
        else:
            stack.enter_context(balanced.nginx(port, stream_port, ports, directory))
            yield Cluster(port, stream_port, replicas)


of_haproxy = pytest.mark.parametrize("cluster", ["haproxy"], indirect=True)
of_nginx = pytest.mark.parametrize("cluster", ["nginx"], indirect=True)


@RUNS
def test_a_rolling_restart_under_load_fails_no_request(cluster: Cluster, n_requests: int) -> None:
    """R16: both replicas answer before and after."""
    before = [replica.answered() for replica in cluster.replicas]

    def least() -> int:
        pairs = zip(cluster.replicas, before, strict=True)
        return min(replica.answered() - then for replica, then in pairs)

    with load(cluster.port) as counts:
        wait_for(lambda: least() > 20)
        while counts[200] < n_requests:
            for replica in cluster.replicas:
                assert replica.stop(signal.SIGTERM) == 0
                replica.start()
                wait_for(lambda replica=replica: replica.answered() > 20)  # type: ignore[misc]
    assert counts.keys() == {200}, counts


@RUNS
def test_a_death_breaks_no_more_than_what_is_in_flight(cluster: Cluster, n_requests: int) -> None:
    """R18, and nothing that is asked twice: the balancer repeats what has no answer."""
    with load(cluster.port) as counts:
        while counts[200] < n_requests:
            wait_for(lambda: counts[200] > 50)
            n_broken = counts[BROKEN]
            cluster.replicas[0].stop(signal.SIGKILL)
            seen = counts[200]
            wait_for(lambda seen=seen: counts[200] > seen + 100)  # type: ignore[misc]
            cluster.replicas[0].start()
            assert counts[BROKEN] <= n_broken + N_CLIENTS, counts
    assert counts.keys() <= {200, BROKEN}, counts  # none REFUSED_TWICE


def test_a_batch_of_any_length_streams_both_ways(cluster: Cluster) -> None:
    """Answers come while lines are still to be sent."""
    n_lines, n_first = 20_000, 10
    lines = b"".join(json.dumps({"id": i, **INSTANCE}).encode() + b"\n" for i in range(n_lines))
    cut = lines.index(b'{"id": %d,' % n_first)
    with socket.create_connection(("127.0.0.1", cluster.stream_port), timeout=120) as connection:
        head = (
            f"POST /v1/models/raw/batch?top_r=1 HTTP/1.1\r\nhost: x\r\ncontent-type: {NDJSON}\r\n"
        )
        connection.sendall(f"{head}content-length: {len(lines)}\r\n\r\n".encode() + lines[:cut])
        response = http.client.HTTPResponse(connection)
        response.begin()
        first = [
            json.loads(response.readline())["id"] for _ in range(n_first)
        ]  # the rest is not sent yet
        rest = threading.Thread(target=connection.sendall, args=(lines[cut:],))
        rest.start()
        ids = [json.loads(line)["id"] for line in response]
        rest.join()
    assert [*first, *ids] == list(range(n_lines))


@pytest.mark.parametrize("path", HIDDEN_PATHS)
def test_what_is_for_those_who_run_it_is_not_published(cluster: Cluster, path: str) -> None:
    """The balancer itself says so; haproxy resolves no path, and a replica has no such route."""
    by_replica = ".." in path and cluster.stream_port == cluster.port
    for method in ("GET", "POST"):
        status, headers, content = exchange(cluster.port, method, path)
        assert (status, json.loads(content)["code"]) == (404, "route-not-found")
        assert ("x-request-id" in headers) == by_replica


def test_an_upgrade_is_ignored_and_its_body_read(cluster: Cluster) -> None:
    balanced.ignore_upgrades(cluster.port)


@contextmanager
def dying(*, resets: bool) -> Iterator[tuple[int, list[bytes]]]:
    """A replica at its death: it says that it is ready, and closes
    the connection of any other request.
    """
    deaths: list[bytes] = []

    class Death(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            if b"/readyz" in head:
                self.wfile.write(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                return
            deaths.append(head)
            if resets:
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Death) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], deaths
        server.shutdown()


@of_haproxy
@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("pause", [None, 0.0, 0.02], ids=["whole", "two packets", "body later"])
def test_a_request_is_repeated(
    cluster: Cluster, tmp_path: Path, pause: float | None, resets: bool
) -> None:
    """However it is sent: of a body in a packet of its own, haproxy repeats only what
    it has whole.
    """
    n_requests = 20
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(BODY)}\r\n\r\n"
    with ExitStack() as stack:
        [port] = stack.enter_context(reserved_ports(1))
        dying_port, deaths = stack.enter_context(dying(resets=resets))
        stack.enter_context(
            balanced.haproxy(port, [dying_port, cluster.replicas[1].port], tmp_path)
        )
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(n_requests):
            if pause is None:
                connection.sendall((head + BODY).encode())
            else:
                connection.sendall(head.encode())
                time.sleep(pause)
                connection.sendall(BODY.encode())
            status, answer = answer_on(connection)
            assert (status, len(answer["predictions"])) == (200, 1)
        assert deaths


@of_haproxy
def test_without_a_replica_the_answer_is_a_problem_too(cluster: Cluster) -> None:
    for replica in cluster.replicas:
        replica.stop(signal.SIGKILL)
    status, headers, content = exchange(cluster.port, "GET", "/v1/models")
    assert status in (502, 503)
    assert headers["retry-after"] == "1"
    assert json.loads(content)["code"] == "unavailable"
    for replica in cluster.replicas:
        replica.start()


@of_nginx
def test_uploads_and_streams_of_events_pass_by_their_own_port(cluster: Cluster) -> None:
    """It is TCP, and reaches every route: so a key is asked for
    there, and nginx holds nothing back.
    """
    lines = (
        b'{"indices": [1], "values": [1.0]}\n' * 300_000
    )  # more than nginx would take on the other port
    key = {"authorization": f"Bearer {KEY}"}
    with Connection(cluster.stream_port) as connection, Connection(cluster.stream_port) as events:
        assert connection.ask("GET", "/v1/admin/jobs")[0] == 401
        status, file = connection.ask("PUT", "/v1/admin/data/rows.jsonl", lines, **key)
        assert (status, file["bytes"]) == (200, len(lines))
        batch = {"model": "raw", "data": "rows.jsonl"}
        status, job = connection.ask("POST", "/v1/admin/batch-jobs", batch, **key)
        assert (status, job["state"]) == (202, "queued")
        path = f"/v1/admin/jobs/{job['id']}"
        stream = events.begin("GET", f"{path}/events", **key)
        assert [stream.readline() for _ in range(2)] == [
            b"event: job\n",
            b"id: 1\n",
        ]  # while the job waits
        assert connection.ask("DELETE", path, **key)[0] == 200
        assert b'"state":"cancelled"' in stream.read()


@of_nginx
def test_a_batch_on_the_other_port_is_refused_at_once(cluster: Cluster) -> None:
    path = "/v1/models/raw/versions/1/batch"
    status, headers, content = exchange(
        cluster.port, "POST", path, b"{}\n" * 10, content_type=NDJSON
    )
    assert (status, headers["content-type"]) == (421, "application/problem+json")
    assert json.loads(content)["code"] == "batch-port"


def feedback_on(port: int, body: bytes, media: str) -> tuple[int, set[str]]:
    """Send feedback; return the status, and what became of the events."""
    status, _, found = exchange(port, "POST", "/v1/models/raw/feedback", body, content_type=media)
    if status != 200:
        return status, {json.loads(found)["code"]}
    results = (
        map(json.loads, found.splitlines()) if media == NDJSON else json.loads(found)["results"]
    )
    verdicts = [one["result"] for one in results]
    assert len(verdicts) == N_EVENTS
    return status, set(verdicts)


@of_nginx
def test_feedback_counts_once_whichever_replica_has_it(cluster: Cluster) -> None:
    events = [{"event_id": f"e{i}", "instance": INSTANCE, "labels": []} for i in range(N_EVENTS)]
    body = json.dumps({"events": events}).encode()
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    assert feedback_on(cluster.port, body, JSON) == (200, {"applied"})
    for _ in range(4):
        assert feedback_on(cluster.port, body, JSON) == (200, {"duplicate"})
        assert feedback_on(cluster.stream_port, lines, NDJSON) == (200, {"duplicate"})
    for media in (NDJSON, "application/ndjson; charset=utf-8", "Application/X-NDJSON"):
        assert feedback_on(cluster.port, lines, media) == (421, {"batch-port"})


@pytest.mark.parametrize("balancer", ["haproxy", "nginx"])
def test_predictions_over_tls(balancer: str, shared_store: Path, tmp_path: Path) -> None:
    """By the lines that the shipped files have for it."""
    conf = tmp_path / "balancer.conf"
    certificate, key = make_certificate(tmp_path)
    for name, parts in (("pem", [certificate, key]), ("crt", [certificate]), ("key", [key])):
        (tmp_path / f"tls.{name}").write_text("".join(part.read_text() for part in parts))
    with reserved_ports(5) as (plain, tls, streams, tls_streams, replica):
        if balancer == "haproxy":
            command, text = haproxy_command(conf), balanced.HAPROXY_CONF.read_text()
            places = {
                "bind :8080": f"bind 127.0.0.1:{plain}",
                "bind :8443": f"bind 127.0.0.1:{tls}",
            }
        else:
            command, text = nginx_command(conf), f"daemon off;\n{balanced.NGINX_CONF.read_text()}"
            listens = {8080: plain, 8443: tls, 8081: streams, 8444: tls_streams}
            places = {f"listen {old}": f"listen 127.0.0.1:{new}" for old, new in listens.items()}
        text = re.sub(r"xylem-\d:8080", f"127.0.0.1:{replica}", text)
        text, n_lines = re.subn(r"^(\s+)#(bind|listen|ssl_)", r"\1\2", text, flags=re.MULTILINE)
        assert n_lines
        text = text.replace("/tmp/", f"{tmp_path}/").replace("/etc/xylem/", f"{tmp_path}/")
        conf.write_text(balanced.replaced(text, places))
        database_url = f"sqlite:///{tmp_path}/xylem.db"
        with (
            Replica(shared_store, replica, database_url=database_url),
            balanced.running(command, tls),
        ):
            context = ssl.create_default_context(cafile=certificate)
            for port in [tls] if balancer == "haproxy" else [tls, tls_streams]:
                connection = http.client.HTTPSConnection(
                    "localhost", port, context=context, timeout=60
                )
                connection.request("POST", PREDICT, BODY, {"content-type": JSON})
                response = connection.getresponse()
                assert response.status == 200 and json.loads(response.read())["predictions"]
                assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
                connection.close()
            strangers = http.client.HTTPSConnection("localhost", tls, timeout=60)
            with pytest.raises(ssl.SSLCertVerificationError):
                strangers.request("GET", "/v1/models")
