"""`xylem feedback`: to a database and to a server, twice the same file; files and addresses at fault."""

import codecs
import contextlib
import gzip
import http.server
import json
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from model_store.store import Store
from service.cli.feedback import RESULTS
from service.db.engine import Database, default_url
from service.thresholds.store.state import ThresholdDatabase
from tests.conftest import Run
from tests.datasets_helpers import write_lines
from tests.servers import ServerProcess
from tests.tls_relay import make_certificate

_RUN = "from service.cli import main; main()"
RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
EVENT = {"event_id": "e", "instance": RAW, "labels": []}


def test_a_file_is_sent_twice_and_counts_once(own_store: Store, tmp_path: Path) -> None:
    lines = [{"event_id": f"e{i}", "instance": RAW, "labels": [f"label::{i % 11}"]} for i in range(100)]
    file = tmp_path / "events.jsonl"
    write_lines(file, lines[:70])

    def send(*options: str) -> tuple[int, dict[str, int]]:
        command = [sys.executable, "-c", _RUN, "feedback", "raw", "--data", str(file), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return done.returncode, {result: found[result] for result in RESULTS}

    store = ("--store", str(own_store.root))
    assert send(*store) == (0, {"applied": 70, "duplicate": 0, "late": 0, "rejected": 0})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
    with ServerProcess(own_store.root) as server:
        url = ("--url", f"http://127.0.0.1:{server.port}")
        assert send(*url) == (2, {"applied": 30, "duplicate": 70, "late": 0, "rejected": 1})
        status, thresholds = server.ask("GET", "/v1/models/raw/thresholds")
        assert (status, thresholds["n_events"]) == (200, 100)
        assert server.terminate() == 0


def test_an_address_that_is_none_is_refused_by_name(own_store: Store, tmp_path: Path, run_here: Run) -> None:
    (tmp_path / "events.jsonl").touch()
    given = ("raw", "--data", tmp_path / "events.jsonl", "--url", "http://user:secret@x")
    done = run_here("feedback", *given, store=own_store.root)
    said = "xylem: --url: expected http://HOST:PORT or https://HOST:PORT, found 'http://...@x'\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_line_that_is_no_event_is_told_by_its_fault(
    own_store: Store, tmp_path: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = json.dumps(EVENT)
    marked = codecs.BOM_UTF8.decode() + event  # a byte order mark is no fault
    monkeypatch.setenv("XYLEM_LINE_BYTES_MAX", "200")
    for line, fault in (
        ("{", "expected JSON, found bytes that are not"),
        ("", "expected JSON, found bytes that are not"),
        ('"' + 200 * "a" + '"', "expected a line of at most 200 bytes"),
        ("[]", "expected an object"),
    ):
        file = tmp_path / "events.jsonl"
        file.write_text(f"{marked}\n{line}\n{event}\n")
        done = run_here("feedback", "raw", "--data", file, "--json", store=own_store.root)
        assert (done.returncode, json.loads(done.stdout)["rejected"]) == (2, 1)
        assert f"found 1 others, at first line 2: {fault}" in done.stderr


def test_an_id_that_the_command_gave_is_taken_by_a_server(
    own_store: Store, tmp_path: Path, run_here: Run
) -> None:
    row, events = tmp_path / "rows.jsonl", tmp_path / "events.jsonl"
    row.write_text(json.dumps(RAW) + "\n")

    def predicted() -> str:
        done = run_here("predict", "raw", "--data", row, store=own_store.root)
        found: str = json.loads(done.stdout)["prediction_id"]
        return found

    with ServerProcess(own_store.root) as server:
        event = {"event_id": "a", "prediction_id": predicted(), "labels": ["label::1"]}
        status, answer = server.ask("POST", "/v1/models/raw/feedback", event)
        assert (status, answer["results"]) == (200, [{"event_id": "a", "result": "applied"}])
        _, answer = server.ask("POST", "/v1/models/raw/predict", {"instances": [RAW]})
        served = answer["predictions"][0]["prediction_id"]
        assert server.terminate() == 0
    ids = enumerate((served, predicted()))
    write_lines(events, ({"event_id": f"e{i}", "prediction_id": one, "labels": []} for i, one in ids))
    done = run_here("feedback", "raw", "--data", events, "--json", store=own_store.root)
    assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, 2)


def test_predictions_do_not_wait_for_a_database_and_say_what_their_ids_are_worth(
    own_store: Store, tmp_path: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = tmp_path / "rows.jsonl"
    row.write_text(json.dumps(RAW) + "\n")
    given, store = ("raw", "--data", row), own_store.root
    assert run_here("predict", *given, store=store).returncode == 0
    assert not (own_store.root / "xylem.db").exists(), "a prediction made a database"
    monkeypatch.setenv("XYLEM_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    done = run_here("predict", *given, store=store)
    assert done.returncode == 0 and "feedback to these predictions will not be accepted" in done.stderr
    tuned = run_here("predict", *given, "--threshold", "tuned", store=store)
    write_lines(row, [EVENT])
    for done in (tuned, run_here("feedback", *given, store=store)):
        (said,) = done.stderr.splitlines()
        assert done.returncode == 1 and "expected a database that answers" in said


def test_events_are_sent_in_requests_that_a_server_takes(
    own_store: Store, tmp_path: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"indices": list(range(40)), "values": [1.0 + i / 3 for i in range(40)]}
    file = tmp_path / "events.jsonl"
    write_lines(file, ({"event_id": f"e{i}", "instance": many, "labels": []} for i in range(64)))
    monkeypatch.setattr("xylem.calls.EVENT_BYTES_A_REQUEST", 4096)
    with ServerProcess(own_store.root, body_bytes_max=8192) as server:
        url = f"http://127.0.0.1:{server.port}"
        done = run_here("feedback", "raw", "--data", file, "--json", "--url", url, store=own_store.root)
        assert server.terminate() == 0
    assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, 64)


def test_what_was_not_counted_is_told_by_reason_and_line(
    own_store: Store, tmp_path: Path, run_here: Run
) -> None:
    """Of many faults the first ten, of all how often which; over HTTP and into the database alike."""
    file = tmp_path / "events.jsonl"
    faulty = [{"event_id": f"u{i}", "instance": RAW, "labels": ["none such"]} for i in range(8)]
    forged = [{"event_id": f"f{i}", "prediction_id": "nothing", "labels": []} for i in range(5)]
    write_lines(file, (EVENT, *faulty, *forged))
    with file.open("a") as out:
        out.write("{\n")
    given = ("feedback", "raw", "--data", file)
    reasons = {"unknown-label": 8, "prediction-forged": 5, "malformed-json": 1}
    with ServerProcess(own_store.root) as server:
        for sent in (), ("--url", f"http://127.0.0.1:{server.port}"):
            done = run_here(*given, *sent, "--json", store=own_store.root)
            found = json.loads(done.stdout)
            assert (found["rejected"], found["reasons"]) == (14, reasons)
            assert [fault["line"] for fault in found["faults"]] == list(range(2, 12))
            assert found["faults"][0].keys() == {"line", "result", "reason", "detail"}
            assert "none such" in found["faults"][0]["detail"]
            assert done.returncode == 2 and "found 14 others, at first line 2: " in done.stderr
        done = run_here(*given, store=own_store.root)
        assert "Not counted, the first 10:" in done.stdout
        assert "because of unknown-label" in done.stdout
        assert server.terminate() == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_server_behind_tls_is_trusted_by_its_certificate(
    own_store: Store, tmp_path: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    write_lines(file, [EVENT])
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ServerProcess(own_store.root) as server, contextlib.ExitStack() as stack:

        def relay(path: str, body: bytes) -> tuple[int, bytes]:
            status, answer = server.ask("POST", path, body)
            return status, json.dumps(answer).encode()

        port = stack.enter_context(answering(relay, context))
        given = ("feedback", "raw", "--data", file, "--json", "--url", f"https://localhost:{port}")
        done = run_here(*given, store=own_store.root)
        assert done.returncode == 1
        assert "certificate verify failed: self-signed certificate" in done.stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert json.loads(run_here(*given, store=own_store.root).stdout)["applied"] == 1
        done = run_here(*given[:-1], f"https://localhost:{server.port}", store=own_store.root)
        assert done.returncode == 1
        assert "expected an answer, found ConnectError: [SSL" in done.stderr
        assert server.terminate() == 0


class _Quiet(http.server.BaseHTTPRequestHandler):
    """Answers POST by what `answer` of its server says, and does not log."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status, said = self.server.answer(self.path, body)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def answering(
    answer: Callable[[str, bytes], tuple[int, bytes]], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """A server on the yielded port that answers so, over TLS with a context."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Quiet) as server:
        server.answer = answer  # type: ignore[attr-defined]
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_answers_of_another_kind_of_server_are_refused(tmp_path: Path, run_here: Run) -> None:
    file = tmp_path / "events.jsonl"
    write_lines(file, [EVENT])
    answers = iter([(503, b"{}"), (200, b'{"results": []}')])
    with answering(lambda *_: next(answers)) as port:
        url = f"http://127.0.0.1:{port}"
        done = run_here("feedback", "raw", "--data", file, "--url", url, store=tmp_path)
    assert done.returncode == 1 and "expected the JSON of Feedback, found at model" in done.stderr


def test_files_that_are_no_lines_or_damaged_are_refused_by_name(
    own_store: Store, tmp_path: Path, run_here: Run
) -> None:
    packed = bytearray(gzip.compress(b"".join(b'{"event_id": "%d"}\n' % i for i in range(1000))))
    damaged = packed.copy()
    damaged[60:90] = bytes(byte ^ 0x5A for byte in damaged[60:90])
    for name, data, said in (
        ("damaged.jsonl.gz", damaged, "expected whole gzip data, found damage"),
        ("cut.jsonl.gz", packed[:-20], "expected whole gzip data, found"),
        ("lines.jsonl.gz", b"{}\n", "expected gzip data, as the suffix .gz says, found other data"),
        ("packed.jsonl", packed, "expected no compression, found gzip data: let the file's name end in .gz"),
    ):
        file = tmp_path / name
        file.write_bytes(data)
        for command in "feedback", "predict":
            done = run_here(command, "raw", "--data", file, store=own_store.root)
            assert done.returncode == 2 and f"{file}: {said}" in done.stderr


def test_what_ends_the_sending_says_how_far_it_came(own_store: Store, tmp_path: Path, run_here: Run) -> None:
    file = tmp_path / "events.jsonl"
    write_lines(file, ({**EVENT, "event_id": f"e{i}"} for i in range(100)))
    head = {"model": "raw", "version": 1, "threshold_epoch": 1}
    verdicts = json.dumps({**head, "results": [{"event_id": "e", "result": "applied"}] * 64}).encode()
    answers = chain(
        [(200, verdicts)], repeat((503, b'{"code": "overloaded", "detail": "expected less, found more"}'))
    )
    with answering(lambda *_: next(answers)) as port:
        url = f"http://127.0.0.1:{port}"
        done = run_here("feedback", "raw", "--data", file, "--url", url, store=own_store.root)
    assert done.returncode == 1 and "send it again" in done.stderr
    assert f"{url}: 503 overloaded: expected less, found more; 64 lines of the" in done.stderr


def test_a_prediction_counts_for_the_version_that_made_it(
    own_store: Store, tmp_path: Path, run_here: Run
) -> None:
    """As over HTTP, of the version named or another; late where thresholds are new or the version is gone."""
    store = own_store.root
    row, events = tmp_path / "row.jsonl", tmp_path / "events.jsonl"
    row.write_text(json.dumps(RAW) + "\n")

    def send(names: str, ids: dict[str, str], model: str) -> list[object]:
        lines = [{"event_id": name, "prediction_id": ids[name[0]], "labels": []} for name in names.split()]
        write_lines(events, lines)
        found = json.loads(run_here("feedback", model, "--data", events, "--json", store=store).stdout)
        return [found["applied"], found["late"], found["reasons"]]

    begin = tmp_path / "begin.jsonl"
    for version in 1, 2:
        write_lines(begin, [{**EVENT, "event_id": f"begin{version}"}])
        assert run_here("feedback", f"raw@{version}", "--data", begin, store=store).returncode == 0
    ids = {}
    for name, version in ("a", 1), ("b", 2):
        done = run_here("predict", f"raw@{version}", "--data", row, store=store)
        ids[name] = json.loads(done.stdout)["prediction_id"]
    assert send("a1 b1 a2", ids, "raw@2") == [3, 0, {}]
    database = Database(default_url(own_store.root))
    ThresholdDatabase(database).restore("raw", 2, 1)
    database.close()
    assert send("b2 a3", ids, "raw@2") == [1, 1, {"thresholds-replaced": 1}]
    own_store.promote("raw", 2, "stable")
    own_store.delete("raw", 1)
    assert send("a4 b3", ids, "raw@2") == [0, 2, {"version-gone": 1, "thresholds-replaced": 1}]
