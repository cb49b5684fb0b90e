"""Run the load balancers for which configurations are shipped, with replicas on loopback."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.replicas import BODY, PREDICT, Replica, listens
from tests.helpers.servers import answer_on, wait_for

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HAPROXY_CONF, NGINX_CONF = DEPLOY / "haproxy.cfg", DEPLOY / "nginx.conf"
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
UPGRADES = [
    "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: "
    "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    "Upgrade: h2c\r\nUser-Agent: Java-http-client/17.0.15\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\nUser-Agent: Go-http-client/1.1\r\n",
]
"""Headers with which clients of Java and Go ask for another protocol."""


class Cluster(NamedTuple):
    """A balancer with its port for requests, its port for streams, and its replicas."""

    port: int
    stream_port: int
    replicas: list[Replica]


def haproxy_command(conf: Path) -> list[object]:
    """Return the command that runs haproxy; skip the test if it is not installed."""
    if not Path(HAPROXY).exists():
        pytest.skip("haproxy is not installed")
    return [HAPROXY, "-f", conf]


def nginx_command(conf: Path) -> list[object]:
    """Return the command that runs nginx; skip the test if it is missing or cannot balance TCP."""
    if not Path(NGINX).exists():
        pytest.skip("nginx is not installed")
    command = [NGINX, "-c", conf]
    built = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=True).stderr
    if re.search(r"--with-stream(\s|$)", built):
        return command
    if not STREAM_MODULE.exists():
        pytest.skip("nginx is installed without its stream module")
    if any(Path("/etc/nginx/modules-enabled").glob("*stream*.conf")):
        return command  # the shipped file includes it
    return [*command, "-g", f"load_module {STREAM_MODULE};"]


@contextmanager
def running(command: list[object], port: int) -> Iterator[None]:
    """Run a balancer while the block runs, from when it listens on the port."""
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: process.poll() is None and listens(port))
            yield
        finally:
            process.terminate()


def replaced(text: str, changes: dict[str, str]) -> str:
    """Return a configuration with words replaced, each of which must occur exactly once."""
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@contextmanager
def haproxy(port: int, replicas: list[int], directory: Path) -> Iterator[None]:
    """Run haproxy with the shipped file; only the port and the names of replicas are changed."""
    names = {f"xylem-{i}:8080": f"127.0.0.1:{replica}" for i, replica in enumerate(replicas, 1)}
    conf = directory / "haproxy.cfg"
    conf.write_text(
        replaced(HAPROXY_CONF.read_text(), {"bind :8080": f"bind 127.0.0.1:{port}", **names})
    )
    with running(haproxy_command(conf), port):
        yield


@contextmanager
def nginx(port: int, stream_port: int, replicas: list[int], directory: Path) -> Iterator[None]:
    """Run nginx with the shipped file.

    Only the ports, the names of replicas and the paths of temporary files are changed.
    """
    text = NGINX_CONF.read_text().replace("/tmp/", f"{directory}/")
    ports = {"listen 8080": port, "listen 8081": stream_port}
    text = replaced(text, {old: f"listen 127.0.0.1:{new}" for old, new in ports.items()})
    for number, replica in enumerate(replicas, 1):
        assert text.count(f"xylem-{number}:8080") == 2
        text = text.replace(f"xylem-{number}:8080", f"127.0.0.1:{replica}")
    conf = directory / "nginx.conf"
    conf.write_text(f"daemon off;\n{text}")
    with running(nginx_command(conf), port):
        yield


def ignore_upgrades(port: int) -> None:
    """Check that a request for another protocol gets one answer, whatever its body is.

    A body that looks like a request must not be answered as one.
    """
    hidden = f"GET {PREDICT.removesuffix('/predict')} HTTP/1.1\r\nhost: x\r\n\r\n"
    for upgrade in UPGRADES:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for body, status in [(BODY, 200), (hidden, 400), (hidden, 400), (BODY, 200)] * 3:
                head = (
                    f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n{upgrade}Content-Type: "
                    "application/json\r\n"
                )
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
                time.sleep(0.02)  # the body comes in a packet of its own
                connection.sendall(body.encode())
                answered, answer = answer_on(connection)
                assert (answered, "predictions" in answer) == (status, status == 200)
