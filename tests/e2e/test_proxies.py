"""The service under a prefix of a real nginx, which cuts it off or
leaves it; clients that ask to upgrade.
"""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.balanced import ignore_upgrades, nginx_command, running
from tests.helpers.browser import CHROMIUM, FLAGS
from tests.helpers.replicas import BODY, PREDICT, reserved_ports
from tests.helpers.servers import ServerProcess, exchange

ROOT = "/apps/xylem"
KEY = "the-admin-key-of-this-test"
CONF = """daemon off;
pid {directory}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location {root}/ {{
            proxy_pass http://127.0.0.1:{service}{path};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
        }}
    }}
}}
"""


@pytest.fixture(scope="module", params=["/", ""], ids=["cut off", "left"])
def port(
    request: pytest.FixtureRequest, shared_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("nginx")
    (directory / "rows.jsonl").write_text('{"text": "a game of chess"}\n')
    command = nginx_command(directory / "nginx.conf")
    database = {"database_url": f"sqlite:///{directory}/xylem.db"}
    settings = {"root_path": ROOT, "data_dir": directory, "admin_key": KEY, **database}
    with ServerProcess(shared_store, **settings) as server, reserved_ports(1) as [port]:
        conf = CONF.format(
            directory=directory, port=port, service=server.port, root=ROOT, path=request.param
        )
        (directory / "nginx.conf").write_text(conf)
        with running(command, port):
            yield port


def test_predictions_and_refusals(port: int) -> None:
    body = json.dumps({"instances": [{"text": "a game of chess"}] * 4, "top_r": 10}).encode()
    for _ in range(3):  # by the route, and then from the bytes
        headers = {"accept-encoding": "gzip", "content-encoding": "gzip"}
        path = f"{ROOT}/v1/models/text/predict"
        status, given, packed = exchange(port, "POST", path, gzip.compress(body), **headers)
        assert (status, given["content-encoding"]) == (200, "gzip")
        assert len(json.loads(gzip.decompress(packed))["predictions"]) == 4
        status, given, plain = exchange(port, "POST", path, body)
        assert len(json.loads(plain)["predictions"]) == 4
        status, _, problem = exchange(port, "POST", path, b'{"instances": 1}')
        assert (status, json.loads(problem)["instance"]) == (422, path)
        assert json.loads(problem)["type"] == f"{ROOT}/docs#bad-request"


def test_a_job_is_found_where_its_location_says(port: int) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    job = json.dumps({"model": "text", "data": "rows.jsonl"}).encode()
    status, given, _ = exchange(port, "POST", f"{ROOT}/v1/admin/batch-jobs", job, **key)
    assert status == 202
    assert exchange(port, "GET", given["location"], **key)[0] == 200


@pytest.mark.parametrize(
    ("page", "shows"),
    [("/", '<option value="text"'), ("/docs#/predict/predict", "labels an instance gets, at most")],
)
def test_the_pages_work(port: int, tmp_path: Path, page: str, shows: str) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    url = f"http://127.0.0.1:{port}{ROOT}{page}"
    options = ("--virtual-time-budget=20000", f"--user-data-dir={tmp_path}", "--dump-dom")
    assert shows in subprocess.check_output(
        [CHROMIUM, *FLAGS, *options, url], text=True, timeout=300
    )


# --- clients and a proxy that ask for another protocol by default: Java's HttpClient, a real Caddy

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
        file = tmp_path / "Caddyfile"
        file.write_text(CADDYFILE % (tmp_path, port, server.port))
        command = [
            "env",
            f"HOME={tmp_path}",
            caddy,
            "run",
            "--adapter",
            "caddyfile",
            "--config",
            file,
        ]
        with running(command, port):
            ignore_upgrades(port)


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
