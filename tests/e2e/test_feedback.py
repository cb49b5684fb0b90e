"""Feedback by the command, to a database and to a server; and with
a full disk and without a database.
"""

import codecs
import gzip
import json
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from tests.conftest import Run
from tests.helpers.databases import forward, socket_path
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.scripted_server import ScriptedServer, answer
from tests.helpers.served_models import publish_all, publish_model
from tests.helpers.servers import ServerProcess, wait_for
from tests.helpers.tls_relay import make_certificate, relay

from xylem.base.db.engine import Database, default_url
from xylem.cli.feedback import RESULTS
from xylem.thresholds.store.state import ThresholdDatabase
from xylem_store.store import Store

_RUN = "from xylem.cli.application import main; main()"
RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
TUNED = {"instances": [RAW], "threshold": "tuned"}
PREDICT, FEEDBACK = "/v1/models/raw/predict", "/v1/models/raw/feedback"
Done = subprocess.CompletedProcess[str]
Send = Callable[..., Done]


def event(event_id: str = "e", **changes: Any) -> dict[str, Any]:
    return {"event_id": event_id, "instance": RAW, "labels": [], **changes}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("feedback")
    publish_model(publish_all(root), "once", "raw")
    with ServerProcess(root) as process:
        yield process
        assert process.terminate() == 0


@pytest.fixture
def send(own_store: Store, tmp_path: Path, run_here: Run) -> Send:
    """Send events, or the bytes of a file, by the command in this process."""

    def run(
        events: Iterable[object] | bytes,
        *options: object,
        model: str = "raw",
        store: Path = own_store.root,
    ) -> Done:
        file = tmp_path / "events.jsonl"
        if isinstance(events, bytes):
            file.write_bytes(events)
        else:
            write_lines(file, events)
        return run_here("feedback", model, "--data", file, *options, store=store)

    return run


@pytest.fixture
def predict(own_store: Store, run_here: Run) -> Send:
    """Predict a row by the command in this process."""

    def run(model: str = "raw", *options: object, store: Path = own_store.root) -> Done:
        return run_here("predict", model, *options, store=store, input=json.dumps(RAW) + "\n")

    return run


def id_of(done: Done) -> str:
    return str(json.loads(done.stdout)["prediction_id"])


def test_a_file_is_sent_twice_and_counts_once(server: ServerProcess, tmp_path: Path) -> None:
    events = [event(f"e{i}", labels=[f"label::{i % 11}"]) for i in range(100)]
    file = write_lines(tmp_path / "events.jsonl", events[:70])

    def sent(*options: str) -> tuple[int, list[int]]:
        command = [
            sys.executable,
            "-c",
            _RUN,
            "feedback",
            "once",
            "--data",
            str(file),
            "--json",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout.splitlines()[-1])
        return done.returncode, [found[result] for result in RESULTS]

    assert RESULTS == ("applied", "duplicate", "late", "rejected")
    assert sent("--store", str(server.store)) == (0, [70, 0, 0, 0])
    write_lines(file, events)
    with file.open("a") as out:
        out.write("{\n")
    assert sent("--url", server.url) == (2, [30, 70, 0, 1])
    status, thresholds = server.ask("GET", "/v1/models/once/thresholds")
    assert (status, thresholds["n_events"]) == (200, 100)


def test_an_address_that_is_none_is_refused_by_name(send: Send) -> None:
    done = send([], "--url", "http://user:secret@x")
    said = "xylem: --url: expected http://HOST:PORT or https://HOST:PORT, found 'http://...@x'\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "expected JSON, found bytes that are not"),
        ("", "expected JSON, found bytes that are not"),
        ('"' + 200 * "a" + '"', "expected a line of at most 200 bytes"),
        ("[]", "expected an object"),
    ],
    ids=["no JSON", "empty", "long", "no object"],
)
def test_a_line_that_is_no_event(
    send: Send, monkeypatch: pytest.MonkeyPatch, line: str, fault: str
) -> None:
    monkeypatch.setenv("XYLEM_LINE_BYTES_MAX", "200")
    good = json.dumps(event()).encode()  # a byte order mark before it is no fault
    done = send(codecs.BOM_UTF8 + b"\n".join([good, line.encode(), good, b""]), "--json")
    assert (done.returncode, json.loads(done.stdout)["rejected"]) == (2, 1)
    assert f"found 1 others, at first line 2: {fault}" in done.stderr


def test_a_server_takes_an_id_of_the_command(
    server: ServerProcess, send: Send, predict: Send
) -> None:
    ids = [id_of(predict(store=server.store)) for _ in range(2)]
    told = {"event_id": "a", "prediction_id": ids[0], "labels": ["label::1"]}
    status, answer = server.ask("POST", FEEDBACK, told)
    assert (status, answer["results"]) == (200, [{"event_id": "a", "result": "applied"}])
    _, answer = server.ask("POST", PREDICT, {"instances": [RAW]})
    ids[0] = answer["predictions"][0]["prediction_id"]
    events = [
        {"event_id": f"given{i}", "prediction_id": one, "labels": []} for i, one in enumerate(ids)
    ]
    done = send(events, "--json", store=server.store)
    assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, 2)


def test_predictions_do_not_wait_for_a_database(
    own_store: Store, send: Send, predict: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert predict().returncode == 0
    assert not (own_store.root / "xylem.db").exists(), "a prediction made a database"
    monkeypatch.setenv("XYLEM_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    done = predict()
    assert (
        done.returncode == 0 and "feedback to these predictions will not be accepted" in done.stderr
    )
    for done in (predict("raw", "--threshold", "tuned"), send([event()])):
        (said,) = done.stderr.splitlines()
        assert done.returncode == 1 and "expected a database that answers" in said


def test_no_request_is_too_long(
    own_store: Store, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"indices": list(range(40)), "values": [1.0 + i / 3 for i in range(40)]}
    monkeypatch.setattr("xylem.client.calls.EVENT_BYTES_A_REQUEST", 4096)
    with ServerProcess(own_store.root, body_bytes_max=8192) as server:
        done = send(
            (event(f"e{i}", instance=many) for i in range(64)), "--json", "--url", server.url
        )
    assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, 64)


@pytest.mark.parametrize("is_remote", [False, True], ids=["database", "HTTP"])
def test_what_was_not_counted_is_told(server: ServerProcess, send: Send, is_remote: bool) -> None:
    """Of many faults the first ten, of all how often which; over HTTP and into the
    database alike.
    """
    faulty = [event(f"u{i}", labels=["none such"]) for i in range(8)]
    forged = [{"event_id": f"f{i}", "prediction_id": "nothing", "labels": []} for i in range(5)]
    lines = (
        b"".join(json.dumps(one).encode() + b"\n" for one in (event(), *faulty, *forged)) + b"{\n"
    )
    place = ("--url", server.url) if is_remote else ()
    done = send(lines, *place, "--json")
    found = json.loads(done.stdout)
    assert found["rejected"] == 14
    assert found["reasons"] == {"unknown-label": 8, "prediction-forged": 5, "malformed-json": 1}
    assert [fault["line"] for fault in found["faults"]] == list(range(2, 12))
    assert found["faults"][0].keys() == {"line", "result", "reason", "detail"}
    assert "none such" in found["faults"][0]["detail"]
    assert done.returncode == 2 and "found 14 others, at first line 2: " in done.stderr
    shown = send(lines, *place).stdout
    assert "Not counted, the first 10:" in shown and "because of unknown-label" in shown


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_server_behind_tls_is_trusted_by_its_certificate(
    server: ServerProcess, send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    with relay(server.port, certificate, key) as port:
        url = f"https://localhost:{port}"
        done = send([event("tls")], "--json", "--url", url)
        assert done.returncode == 1 and "certificate verify failed: self-signed" in done.stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert json.loads(send([event("tls")], "--json", "--url", url).stdout)["applied"] == 1
    done = send([event("tls")], "--json", "--url", f"https://localhost:{server.port}")
    assert done.returncode == 1 and "expected an answer, found ConnectError: [SSL" in done.stderr


RETRY = {"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}


def test_answers_of_another_kind_of_server_are_refused(send: Send) -> None:
    with ScriptedServer([answer(503, **RETRY), answer(200, b'{"results": []}')]) as server:
        done = send([event()], "--url", server.url)
    assert done.returncode == 1 and "expected the JSON of Feedback, found at model" in done.stderr


def test_files_that_are_no_lines_or_damaged(
    own_store: Store, tmp_path: Path, run_here: Run
) -> None:
    packed = bytearray(gzip.compress(b"".join(b'{"event_id": "%d"}\n' % i for i in range(1000))))
    damaged = packed.copy()
    damaged[60:90] = bytes(byte ^ 0x5A for byte in damaged[60:90])
    for name, data, said in (
        ("damaged.jsonl.gz", damaged, "expected whole gzip data, found damage"),
        ("cut.jsonl.gz", packed[:-20], "expected whole gzip data, found"),
        ("lines.jsonl.gz", b"{}\n", "expected gzip data, as the suffix .gz says, found other data"),
        (
            "packed.jsonl",
            packed,
            "expected no compression, found gzip data: let the file's name end in .gz",
        ),
    ):
        file = tmp_path / name
        file.write_bytes(data)
        for command in "feedback", "predict":
            done = run_here(command, "raw", "--data", file, store=own_store.root)
            assert done.returncode == 2 and f"{file}: {said}" in done.stderr


def test_what_ends_the_sending_says_how_far_it_came(send: Send) -> None:
    head = {"model": "raw", "version": 1, "threshold_epoch": 1}
    verdicts = json.dumps(
        {**head, "results": [{"event_id": "e", "result": "applied"}] * 64}
    ).encode()
    busy = answer(503, b'{"code": "overloaded", "detail": "expected less, found more"}', **RETRY)
    with ScriptedServer([answer(200, verdicts), *[busy] * 20]) as server:
        done = send((event(f"e{i}") for i in range(100)), "--url", server.url)
    assert done.returncode == 1 and "send it again" in done.stderr
    assert (
        f"{server.url}: 503 overloaded: expected less, found more; 64 lines of the" in done.stderr
    )


def test_a_prediction_counts_for_its_version(own_store: Store, send: Send, predict: Send) -> None:
    """As over HTTP, of the version named or another; late where
    thresholds are new or the version is gone.
    """
    for version in 1, 2:
        assert send([event(f"begin{version}")], model=f"raw@{version}").returncode == 0
    ids = {"a": id_of(predict("raw@1")), "b": id_of(predict("raw@2"))}

    def outcome(names: str) -> list[object]:
        events = [
            {"event_id": one, "prediction_id": ids[one[0]], "labels": []} for one in names.split()
        ]
        found = json.loads(send(events, "--json", model="raw@2").stdout)
        return [found["applied"], found["late"], found["reasons"]]

    assert outcome("a1 b1 a2") == [3, 0, {}]
    database = Database(default_url(own_store.root))
    ThresholdDatabase(database).restore("raw", 2, 1)
    database.close()
    assert outcome("b2 a3") == [1, 1, {"thresholds-replaced": 1}]
    own_store.promote("raw", 2, "stable")
    own_store.delete("raw", 1)
    assert outcome("a4 b3") == [0, 2, {"version-gone": 1, "thresholds-replaced": 1}]


def results_of(server: ServerProcess, first: int) -> set[str] | None:
    """What became of the events of a block; None: they were refused."""
    status, found = server.ask(
        "POST", FEEDBACK, {"events": [event(f"e{first + i}") for i in range(64)]}
    )
    if status == 503:
        assert found["code"] == "database-unavailable"
        return None
    assert status == 200, found
    return {one["result"] for one in found["results"]}


def has_failed(server: ServerProcess) -> bool:
    return "xylem_database_failed 1.0" in server.ask("GET", "/metrics")[1].decode()


def test_a_full_disk_refuses_feedback_and_counts_nothing_of_it(own_store: Store) -> None:
    """No file may grow beyond some bytes: what a full disk says to SQLite, and only
    to this server.
    """
    before = "import xylem.base.db.engine as engine; engine.WRITE_FAULT_SECONDS = 10;"
    settings: dict[str, Any] = {"access_log": False, "threshold_refresh_ms": 50}
    with ServerProcess(own_store.root, prelude=before, **settings) as server:
        assert results_of(server, 0) == {"applied"}
        assert not has_failed(server)
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (400_000, hard))
        first = 64
        while results_of(server, first) == {"applied"}:
            first += 64
            assert first < 100_000
        for _ in range(3):
            assert results_of(server, first) is None
            assert has_failed(server)
            status, answer = server.ask("POST", PREDICT, TUNED)
            assert (status, answer["predictions"][0].keys() >= {"labels"}) == (200, True)
        assert server.ask("GET", "/v1/models/raw/thresholds")[1]["n_events"] == first
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_for(lambda: not has_failed(server))  # though nobody sends feedback
        assert results_of(server, 0) == {"duplicate"}
        assert results_of(server, first) == {"applied"}
        assert server.ask("GET", "/v1/models/raw/thresholds")[1]["n_events"] == first + 64
        assert server.terminate() == 0


def test_a_database_that_comes_later_is_used_then(own_store: Store, postgresql: str) -> None:
    """It starts without its PostgreSQL, predicts, refuses feedback, and goes on when
    it is there.
    """
    url, path = make_url(postgresql), socket_path(postgresql)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        away = url.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        with ServerProcess(own_store.root, database_url=away, threshold_refresh_ms=50) as server:
            assert results_of(server, 0) is None
            assert server.ask("POST", PREDICT, {"instances": [RAW]})[0] == 200
            assert server.ask("POST", PREDICT, TUNED)[1]["code"] == "database-unavailable"
            line = json.dumps(event()).encode()
            _, refused = server.ask("POST", FEEDBACK, line, content_type="application/x-ndjson")
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
