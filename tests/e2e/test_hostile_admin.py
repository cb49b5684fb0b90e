"""Admin routes against clients that mean harm or know no better: names,
bodies, archives, readers that go.
"""

import concurrent.futures
import contextlib
import gzip
import hashlib
import io
import itertools
import json
import random
import shutil
import socket
import struct
import tarfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from tests.helpers.served_models import publish_all, publish_model
from tests.helpers.servers import KEY, ServerProcess, wait_for
from tests.helpers.small_models import small_draft

from xylem_store.store import Store

INSTANCE = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
PREDICT = "/v1/models/raw/predict"
STREAMS = 64
UPLOAD_MAX = 200_000
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a connection that is reset when it is closed."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a data directory with links that lead out of it, and what is outside."""
    root = tmp_path_factory.mktemp("hostile")
    publish_all(root / "store")
    for name in ("data/sub", "outside"):
        (root / name).mkdir(parents=True)
    for place in (
        "data/train.jsonl",
        "data/sub/more.jsonl",
        "outside/canary.jsonl",
        "canary.jsonl",
    ):
        (root / place).write_text('{"text": "a", "labels": ["b"]}\n')
    (root / "data" / "door").symlink_to(root / "outside")
    (root / "data" / "window.jsonl").symlink_to(root / "outside" / "canary.jsonl")
    return root


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ServerProcess]:
    with ServerProcess(
        home / "store",
        data_dir=home / "data",
        admin_key=f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}",
        body_seconds_max=1.0,
        data_bytes_max=UPLOAD_MAX,
        archive_bytes_max=64 << 20,
        store_poll_seconds=0.1,
    ) as process:
        yield process


def predicts(server: ServerProcess) -> None:
    assert server.ask("POST", PREDICT, {"instances": [INSTANCE]})[0] == 200


def files_below(*directories: Path) -> dict[Path, bytes]:
    """What is below some directories, links not followed."""
    paths = itertools.chain.from_iterable(directory.rglob("*") for directory in directories)
    return {path: path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}


NAMES = [
    *("..%2fcanary.jsonl", "%2e%2e%2fcanary.jsonl", "%2E%2E/canary.jsonl", "../canary.jsonl"),
    *("sub/../../canary.jsonl", "sub%2f..%2f..%2fcanary.jsonl"),
    *("..%5ccanary.jsonl", "..%5C..%5Ccanary.jsonl"),
    *("..%c0%afcanary.jsonl", "..%252fcanary.jsonl"),  # coded as no server may read it
    *("%00", "train.jsonl%00.gz", "..%2fcanary.jsonl%00"),
    *("%2fetc%2fpasswd", "/etc/passwd", "{outside}/canary.jsonl", "%2f{outside}%2fcanary.jsonl"),
    *("door/canary.jsonl", "door/new.jsonl", "door%2fnew.jsonl"),  # through a link
    *("sub", "sub/", ".", "..", ".hidden", ".upload-00", "~root", "-rf", "%ff%fe", "a%0d%0ab"),
    *("x" * 600, "a/" * 300 + "b"),
    "window.jsonl",  # is a link itself
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_data_directory(
    server: ServerProcess, home: Path, name: str
) -> None:
    name = name.replace("{outside}", str(home / "outside")[1:])
    before = files_below(home / "outside", home / "data"), (home / "canary.jsonl").read_bytes()
    for method, body in (("DELETE", None), ("PUT", b"taken over"), ("DELETE", None)):
        status, answer = server.admin(method, f"/data/{name}", body)
        if name == "window.jsonl" and (method, status) == ("PUT", 200):
            break  # the link is replaced, what it leads to stays
        assert status in (400, 404, 422), (method, answer)
        assert "root:" not in str(answer)
    after = files_below(home / "outside", home / "data"), (home / "canary.jsonl").read_bytes()
    after[0].pop(home / "data" / "window.jsonl", None)
    assert after == before


def test_no_name_for_a_job_leads_out_of_the_data_directory(
    server: ServerProcess, home: Path
) -> None:
    before = server.admin("GET", "/jobs")
    names = [
        *(
            "../canary.jsonl",
            f"{home}/outside/canary.jsonl",
            "door/canary.jsonl",
            "sub/../../canary.jsonl",
        ),
        *(
            "..\\canary.jsonl",
            "train.jsonl\0",
            "\0",
            "/etc/passwd",
            "/dev/zero",
            "/proc/self/environ",
        ),
        *(".", "", "x" * 513, "\u2024\u2024/canary.jsonl"),
    ]
    training = {"model": "m", "trainer": "label-tree"}
    tuning = {"model": "raw", "data": "train.jsonl"}
    for name in names:
        for kind, body, fields in (
            ("batch", {"model": "raw"}, ["data"]),
            ("threshold-tuning", tuning, ["test"]),
            ("training", training, ["data", "valid", "label_names"]),
        ):
            status, answer = server.admin(
                "POST", f"/{kind}-jobs", {**body, **dict.fromkeys(fields, name)}
            )
            assert status == 422, (name, answer)
            assert set(fields) <= {fault["path"] for fault in answer["errors"]}, (name, answer)
    assert server.admin("GET", "/jobs") == before


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc", "Raw", "%00", "a%2fb", "-", "x" * 300]
)
def test_no_name_leads_out_of_the_store(server: ServerProcess, home: Path, name: str) -> None:
    before = files_below(home / "store" / "models")
    for method, path, body in (
        ("POST", f"/models/{name}/promote", {"version": 1}),
        ("POST", f"/models/{name}/rollback", {"alias": "stable"}),
        ("DELETE", f"/models/{name}?confirm={name}", None),
        ("DELETE", f"/models/{name}/versions/1", None),
        ("DELETE", f"/models/raw/versions/{name}", None),
        ("DELETE", f"/models/raw/aliases/{name}", None),
        ("GET", f"/models/{name}/history", None),
        ("GET", f"/models/{name}/archive", None),
        ("GET", f"/models/raw/archive?version={name}", None),
        ("GET", f"/models/raw/versions/{name}/provenance", None),
        ("POST", f"/models/{name}/archive", b"no tar"),
        ("GET", f"/jobs/{name}", None),
        ("GET", f"/jobs/{name}/log", None),
        ("GET", f"/jobs/{name}/result", None),
        ("DELETE", f"/keys/{name}", None),
    ):
        status, answer = server.admin(method, path, body)
        assert 400 <= status < 500, (method, path, answer)
    assert files_below(home / "store" / "models") == before


def test_uploads_have_a_limit_and_leave_nothing_when_they_break(
    server: ServerProcess, home: Path
) -> None:
    assert server.admin("PUT", "/data/empty.jsonl", b"")[1]["bytes"] == 0
    assert server.admin("DELETE", "/data/empty.jsonl")[0] == 204
    put = "/data/large.jsonl"
    assert server.admin("PUT", put, b"x" * UPLOAD_MAX)[0] == 200
    status, answer = server.admin("PUT", put, b"y" * (UPLOAD_MAX + 1))
    assert (status, answer["code"]) == (422, "limit-exceeded")
    head = head_of("PUT", put, "transfer-encoding: chunked", "connection: close")
    chunked = server.raw(head + 6 * (b"c350\r\n" + b"z" * 0xC350 + b"\r\n") + b"0\r\n\r\n")
    assert chunked.startswith(b"HTTP/1.1 422") and b"data_bytes_max" in chunked
    assert (home / "data" / "large.jsonl").read_bytes() == b"x" * UPLOAD_MAX
    for cut in (0, 1, 5000):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head_of("PUT", put, f"content-length: {UPLOAD_MAX}") + b"w" * cut)
    wait_for(lambda: not list((home / "data").glob(".upload-*")))
    assert (home / "data" / "large.jsonl").read_bytes() == b"x" * UPLOAD_MAX
    (home / "data" / "large.jsonl").unlink()


def head_of(method: str, path: str, *headers: str) -> bytes:
    lines = [
        f"{method} /v1/admin{path} HTTP/1.1",
        "host: x",
        f"authorization: Bearer {KEY}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/data/slow.jsonl"), ("POST", "/models/slow/archive")]
)
def test_bodies_that_drip_are_given_up(
    server: ServerProcess, home: Path, method: str, path: str
) -> None:
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        clients = [
            stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(20)
        ]
        for connection in clients:
            connection.sendall(head_of(method, path, "content-length: 100000"))
        waiting, said, deadline = set(clients), set[bytes](), time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline
            predicts(server)
            for connection in list(waiting):
                connection.settimeout(0.005)
                try:
                    connection.sendall(b"x")
                    said.add(connection.recv(65536))
                except TimeoutError:
                    continue
                except OSError:
                    pass
                waiting.remove(connection)
        said.discard(b"")
        assert said and all(b"408" in answer and b"body-timeout" in answer for answer in said)
    wait_for(lambda: not list((home / "data").glob(".upload-*")))
    assert server.admin("PUT", "/data/slow.jsonl", b"{}\n")[0] == 200
    assert server.admin("DELETE", "/data/slow.jsonl")[0] == 204


def packed(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def hostile_archives(good: bytes) -> Iterator[bytes]:
    """Archives that are none, or lead somewhere, or claim more than they have."""
    with tarfile.open(fileobj=io.BytesIO(good)) as tar:
        members = [(one.name, tar.extractfile(one).read()) for one in tar]  # type: ignore[union-attr]
    manifest, first, *rest = members
    for name in ("../../../canary", "/tmp/canary", "manifest.json/../x", "", "a\0b"):
        yield packed(manifest, (name, first[1]), *rest)
    document = json.loads(manifest[1])
    for change in (
        {"model": "../../x"},
        {"arrays": {}},
        {"n_labels": 1 << 60},
        {"schema_version": 999},
    ):
        yield packed((manifest[0], json.dumps({**document, **change}).encode()), first, *rest)
    yield packed((manifest[0], b"[" * 100_000), first, *rest)
    yield packed(first, manifest, *rest)
    yield packed(manifest, (first[0], b"\0" * (4 << 20)), *rest)
    yield from (b"", b"\0" * 10_240, b"\x1f\x8b" + good, good[: len(good) // 2])


def test_no_archive_brings_in_what_is_no_version(server: ServerProcess, home: Path) -> None:
    path = "/models/raw/archive"
    good = server.admin("GET", f"{path}?version=1")[1]
    store = Store(home / "store")
    before = files_below(home / "outside"), store.models()
    for archive in hostile_archives(good):
        status, answer = server.admin("POST", path, archive, content_type="application/x-tar")
        assert 400 <= status < 500, (answer, archive[:600])
    assert (files_below(home / "outside"), store.models()) == before
    assert not (home / "store" / "models" / "x").exists() and not Path("/tmp/canary").exists()
    for more in (b"more" * 1000, bytes(10_240)):  # a tar may be filled up
        status, answer = server.admin("POST", path, good + more, content_type="application/x-tar")
        assert status == 200, answer
        assert (
            store.open("raw", answer["version"]).manifest.arrays
            == store.open("raw", 1).manifest.arrays
        )
    packed = gzip.compress(good + bytes(64 << 20), 1)
    for body, encoding in ((good + bytes(10_241), "identity"), (packed, "gzip")):
        status, answer = server.admin(
            "POST", path, body, content_type="application/x-tar", content_encoding=encoding
        )
        assert status == 422, answer
        assert "expected at most 10240 bytes behind its end, found more" in answer["detail"]
    predicts(server)


def test_readers_that_go_leave_room_for_others(
    server: ServerProcess, home: Path, seed: int
) -> None:
    rng = random.Random(seed)
    large = small_draft(n_labels=400, n_features=20_000, share=0.2, n_trees=1)
    size = Store(home / "store").publish("large", large).model_bytes
    assert size > 16 << 20, size
    path = "/models/large/archive"
    for _ in range(16):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.sendall(head_of("GET", path))
            if rng.random() < 0.6:
                time.sleep(rng.random() * 0.2)
            for _ in range(rng.choice([0, 0, 1, 8])):
                connection.recv(65536)
    answers = [server.admin("GET", path) for _ in range(3)]
    assert [status for status, _ in answers] == [200] * 3
    assert len({hashlib.sha256(data).digest() for _, data in answers}) == 1
    predicts(server)


def test_streams_of_events_that_stay_open_are_bounded_and_end(server: ServerProcess) -> None:
    body = {"model": "m", "trainer": "label-tree", "data": "train.jsonl"}
    job = server.admin("POST", "/training-jobs", body)[1]["id"]
    path = f"/v1/admin/jobs/{job}/events"

    def opened(_: int = 0) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.request("GET", path, headers={"authorization": f"Bearer {KEY}"})
        return connection, connection.getresponse()

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        streams = list(pool.map(opened, range(100)))
    statuses = [answer.status for _, answer in streams]
    assert sorted(set(statuses)) == [200, 503] and statuses.count(200) == STREAMS
    for _, answer in streams:
        if answer.status == 200:  # each that was let in is told at once
            assert answer.readline() == b"event: job\n"
        else:
            assert answer.getheader("retry-after") == "1"
    predicts(server)
    assert server.admin("GET", f"/jobs/{job}")[0] == 200
    close_all(streams)
    while (last := opened())[1].status == 503:
        close_all([last])
        time.sleep(0.02)
    assert server.admin("DELETE", f"/jobs/{job}")[1]["state"] == "cancelled"
    assert b'"cancelled"' in last[1].read()
    close_all([last])


def close_all(streams: list[tuple[HTTPConnection, HTTPResponse]]) -> None:
    for connection, answer in streams:
        connection.close()
        answer.close()


def test_a_version_with_swapped_files_is_not_promoted_again(
    server: ServerProcess, home: Path
) -> None:
    """It was verified before; one that is damaged or another one's is
    a case of the registry's own tests.
    """
    store, versions = Store(home / "store"), home / "store" / "models" / "risky" / "versions"
    for seed in (0, 1):
        publish_model(store, "risky", "raw", seed=seed)
    promote = "/models/risky/promote"
    for version, alias in ((1, "stable"), (2, "once")):
        assert server.admin("POST", promote, {"version": version, "alias": alias})[0] == 200
    for path in (versions / "2").rglob("*"):
        other = versions / "1" / path.relative_to(versions / "2")
        if (
            path.is_file()
            and path.name != "manifest.json"
            and other.read_bytes() != path.read_bytes()
        ):
            path.unlink()
            shutil.copy(other, path)
    for alias in ("stable", "latest", "new"):
        status, answer = server.admin("POST", promote, {"version": 2, "alias": alias})
        assert (status, answer["code"]) == (503, "model-corrupt"), answer
    for version in (9, 999_999_999):
        assert server.admin("POST", promote, {"version": version, "alias": "stable"})[0] == 404
    assert dict(store.info("risky").aliases) == {"latest": 2, "once": 2, "stable": 1}
    status, answer = server.ask(
        "POST", "/v1/models/risky/aliases/stable/predict", {"instances": [INSTANCE]}
    )
    assert (status, answer["version"]) == (200, 1)
    changes = server.admin("GET", "/models/risky/history?alias=stable")[1]["changes"]
    assert [one["to_version"] for one in changes if one["action"] == "promoted"] == [1]


def test_a_405_names_all_methods_of_a_path(server: ServerProcess) -> None:
    for path, methods in (("/v1/admin/keys", "GET, POST"), ("/v1/admin/data/x", "DELETE, PUT")):
        status, headers, _ = server.exchange("PATCH", path, authorization=f"Bearer {KEY}")
        assert (status, headers["allow"]) == (405, methods)
