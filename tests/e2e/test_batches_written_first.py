"""Clients that write all of a batch before they read: `requests` and `httpx` as everybody uses
them. Their answers wait in a temporary file.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from tests.helpers.servers import ServerProcess, wait_for

N_LINES = 200_000
URL = "/v1/models/raw/batch?top_r=2"
HEADERS = {"content-type": "application/x-ndjson"}
POSTS: list[Callable[[str, Any], Any]] = [
    lambda url, file: requests.post(url, data=file, headers=HEADERS, timeout=60),
    lambda url, file: httpx.post(url, content=file, headers=HEADERS),
]
"""As people write it, with the timeouts that the clients have by default."""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    rows = ({"id": i, "indices": [i % 34], "values": [1 + i % 7]} for i in range(N_LINES))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the servers' temporary files."""
    path = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(path))
        yield path


@pytest.fixture(scope="module")
def server(shared_store: Path, folder: Path) -> Iterator[ServerProcess]:
    """A server that gives clients up that neither send nor read for two seconds."""
    assert folder
    with ServerProcess(shared_store, body_seconds_max=2) as process:
        yield process


def spooled(server: ServerProcess) -> float:
    """Return the bytes of answers that wait in files."""
    text = server.ask("GET", "/metrics")[1].decode()
    return float(text.partition('xylem_stream_spooled_bytes{stream="batch"} ')[2].split()[0])


def temporary_files(server: ServerProcess, folder: Path) -> list[str]:
    """Return the files below a folder that the server has open."""
    names = []
    for file in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(file.readlink()))
    return [name for name in names if name.startswith(str(folder))]


@pytest.mark.parametrize("post", POSTS, ids=["requests", "httpx"])
def test_all_lines_are_answered(
    server: ServerProcess, lines: Path, folder: Path, post: Any
) -> None:
    with lines.open("rb") as file:
        answer = post(f"{server.url}{URL}", file)
    assert answer.status_code == 200
    answers = answer.content.splitlines()
    assert len(answers) == N_LINES
    assert all(b'"id":%d,' % i in line for i, line in enumerate(answers))
    wait_for(lambda: spooled(server) == 0)
    assert temporary_files(server, folder) == []


@contextlib.contextmanager
def written_but_not_read(server: ServerProcess, lines: Path) -> Iterator[socket.socket]:
    """Yield a connection on which half of the lines of a batch were sent, and nothing is read."""
    content = lines.read_bytes()
    head = f"POST {URL} HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode())
        connection.sendall(content[: len(content) // 2])
        yield connection


def test_who_sends_slowly_and_reads_nothing_gets_all_lines(
    server: ServerProcess, lines: Path
) -> None:
    """It sends for longer than the server waits for clients that read nothing."""
    content = lines.read_bytes()
    n_sent = len(content) // 2
    with written_but_not_read(server, lines) as connection:
        wait_for(lambda: spooled(server) > 1 << 20)
        until = time.monotonic() + 7
        while time.monotonic() < until:
            connection.sendall(content[n_sent : n_sent + 2000])
            n_sent += 2000
            time.sleep(0.5)
        connection.sendall(content[n_sent:])
        answer = bytearray()
        while not answer.endswith(b"0\r\n\r\n"):
            part = connection.recv(1 << 20)
            assert part
            answer += part
    assert answer.count(b'"labels":') == N_LINES


def test_no_file_outlives_its_batch_or_a_killed_server(
    server: ServerProcess, shared_store: Path, lines: Path, folder: Path
) -> None:
    with written_but_not_read(server, lines):
        wait_for(lambda: spooled(server) > 1 << 20)
        assert len(temporary_files(server, folder)) == 1
        assert list(folder.iterdir()) == []
    wait_for(lambda: temporary_files(server, folder) == [])
    assert spooled(server) == 0
    with ServerProcess(shared_store) as other, written_but_not_read(other, lines):
        wait_for(lambda: spooled(other) > 1 << 20)
        other.process.kill()
        other.process.wait()
        assert list(folder.iterdir()) == []


def test_beyond_the_bound_a_client_that_reads_nothing_is_cut_off(
    shared_store: Path, lines: Path, folder: Path
) -> None:
    settings = {"batch_spool_mib": 1, "body_seconds_max": 2}
    with ServerProcess(shared_store, **settings) as server, lines.open("rb") as file:
        with pytest.raises(requests.RequestException):
            POSTS[0](f"{server.url}{URL}", file)
        wait_for(lambda: len(server.events("connection_aborted")) == 1)
        wait_for(lambda: temporary_files(server, folder) == [])
