"""Clients and a proxy that ask for another protocol by default: Java's HttpClient, and a real Caddy."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.balanced import ignore_upgrades
from tests.replicas import BODY, PREDICT, listens, reserved_ports, wait_until
from tests.servers import ServerProcess

JAVA = Path(__file__).resolve().parents[1] / "java" / "Predict.java"
CADDYFILE = """{
    admin off
    auto_https off
    storage file_system %s
}
http://:%d {
    bind 127.0.0.1
    reverse_proxy 127.0.0.1:%d
}
"""


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store) as process:
        yield process
        assert process.terminate() == 0, process.log()


def test_without_a_proxy(server: ServerProcess) -> None:
    ignore_upgrades(server.port)


def test_behind_caddy(server: ServerProcess, tmp_path: Path) -> None:
    caddy = shutil.which("caddy")
    if caddy is None:
        pytest.skip("caddy is not installed")
    with reserved_ports(1) as [port]:
        (tmp_path / "Caddyfile").write_text(CADDYFILE % (tmp_path, port, server.port))
        command = [caddy, "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env={"HOME": str(tmp_path)}) as process:
            try:
                wait_until(lambda: process.poll() is None and listens(port))
                ignore_upgrades(port)
            finally:
                process.terminate()


def test_a_client_of_javas_predicts(server: ServerProcess, tmp_path: Path) -> None:
    """It asks for HTTP/2 with each request, and sends the body behind the head."""
    java = shutil.which("java")
    if java is None or "jdk.compiler" not in _out([java, "--list-modules"]):
        pytest.skip("a JDK is not installed")
    body = tmp_path / "body.json"
    body.write_text(BODY)
    url = f"http://127.0.0.1:{server.port}{PREDICT}"
    for line in _out([java, str(JAVA), url, str(body), "3"]).splitlines():
        status, _, answer = line.partition(" ")
        assert (status, len(json.loads(answer)["predictions"])) == ("200", 1)


def _out(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
