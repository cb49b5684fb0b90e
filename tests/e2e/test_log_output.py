"""Standard streams that are full, closed or never read: servers
and commands go on, and end in order.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.helpers.replicas import XYLEM, reserved_ports
from tests.helpers.served_models import publish_model
from tests.helpers.servers import KEY, STOP_SECONDS, Connection, wait_for

from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.access.ring import REFRESH_SECONDS
from xylem.base.db.engine import Database, default_url
from xylem_store.store import Store

PREDICT = "/v1/models/raw/predict"
BODY = {"instances": [{"indices": [1, 5], "values": [1.0, 0.5]}]}
N_PREDICTIONS = 3000
FOLLOWERS = {"access-keys", "feedback-rows", "job-figures", "key-usage", "store", "thresholds"}


class Server:
    """`xylem serve` whose standard error is a descriptor, so that its port is chosen for it."""

    def __init__(self, store: Path, port: int, stderr: int, **settings: object) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")
        }
        for name in ("XYLEM_KERNEL_CACHE",):
            if name in os.environ:
                environment[name] = os.environ[name]
        settings = {"jobs": 0, "drain_seconds": 0.1, "admin_key": KEY, **settings}
        environment |= {f"XYLEM_{name.upper()}": str(value) for name, value in settings.items()}
        self.port = port
        self.process = subprocess.Popen(
            [XYLEM, "serve", "--store", store, "--port", str(port)], stderr=stderr, env=environment
        )

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON of an answer; 0 where there is none."""
        with suppress(OSError), Connection(self.port) as connection:
            return connection.ask(method, path, body, **headers)
        return 0, None

    def figure(self, name: str) -> dict[str, float]:
        """The samples of a metric by their labels' values."""
        status, page = self.ask("GET", "/metrics", authorization=f"Bearer {KEY}")
        assert status == 200
        return {
            ",".join(sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(page.decode())
            for sample in family.samples
            if sample.name == name
        }

    def terminate(self) -> int:
        """The status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


@contextmanager
def serving(store: Path, stderr: int, **settings: object) -> Iterator[Server]:
    with reserved_ports(1) as [port]:
        server = Server(store, port, stderr, **settings)
        try:
            wait_for(
                lambda: server.ask("GET", "/readyz")[0] == 200 or server.process.poll() is not None
            )
            assert server.process.poll() is None
            yield server
        finally:
            server.process.kill()
            server.process.wait()


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_reads_the_log_and_all_are_answered(shared_store: Path, workers: int) -> None:
    reading, writing = os.pipe()
    with serving(shared_store, writing, workers=workers) as server:
        os.close(writing)
        wait_for(lambda: sum(server.figure("xylem_ready").values()) == workers)

        def predict() -> bool:
            """Ask for so many predictions; return whether lines were dropped by now."""
            with Connection(server.port) as connection:
                statuses = {connection.ask("POST", PREDICT, BODY)[0] for _ in range(N_PREDICTIONS)}
            assert statuses == {200}
            assert server.ask("GET", "/livez")[0] == 200
            return sum(server.figure("xylem_log_lines_dropped_total").values()) > 0

        wait_for(predict)
        assert server.terminate() == 0
    os.close(reading)


def without_reader() -> int:
    """The end of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("kind", ["full", "without a reader"])
def test_versions_and_keys_are_followed_without_a_writable_log(own_store: Store, kind: str) -> None:
    stderr = os.open("/dev/full", os.O_WRONLY) if kind == "full" else without_reader()
    keys = AccessKeys(Database(default_url(own_store.root)))
    revoked = keys.create("shop", [AccessScope.PREDICT])
    database = own_store.root / "xylem.db"
    with serving(own_store.root, stderr, open_scopes="none", store_poll_seconds=0.1) as server:
        os.close(stderr)

        def answer(text: str) -> tuple[int, Any]:
            return server.ask("POST", PREDICT, BODY, authorization=f"Bearer {text}")

        wait_for(lambda: answer(revoked.text)[0] == 200)
        version = publish_model(own_store, "raw", "raw", seed=5).version
        wait_for(lambda: server.figure("xylem_model_version")["latest,raw"] == version)
        # the database is away for a while: who follows it fails, and tells of it in vain
        away = list(own_store.root.glob("xylem.db*"))
        for file in away:
            file.rename(file.with_suffix(file.suffix + ".away"))
        database.mkdir()
        ages = partial(server.figure, "xylem_follower_age_seconds")
        wait_for(lambda: ages()["access-keys"] > REFRESH_SECONDS)
        publish_model(own_store, "raw", "raw", seed=6)
        wait_for(lambda: server.figure("xylem_model_version")["latest,raw"] == version + 1)
        database.rmdir()
        for file in away:
            file.with_suffix(file.suffix + ".away").rename(file)
        keys.revoke(revoked.key.id)
        made = keys.create("other", [AccessScope.PREDICT])
        wait_for(lambda: answer(revoked.text)[0] == 401)
        wait_for(lambda: answer(made.text)[0] == 200)
        wait_for(lambda: ages()["access-keys"] < 2 * REFRESH_SECONDS)
        assert ages().keys() == FOLLOWERS
        assert sum(server.figure("xylem_log_lines_dropped_total").values()) > 0
        assert server.terminate() == 0


REDIRECTIONS = ["2>/dev/full", "2>&-", ">&-", "<&-", ">/dev/full"]
FAILS = [">&-", ">/dev/full"]
"""Those where an answer on standard output is lost."""


def run_with(redirection: str, directory: Path, *arguments: object) -> tuple[int, str, str]:
    """The status of a command whose other streams are files, and what these have in the end."""
    command = f'exec "$@" >{directory}/out 2>{directory}/err {redirection}'
    environment = {**os.environ, "XYLEM_JOBS": "1", "XYLEM_DRAIN_SECONDS": "0.1"}
    process = subprocess.Popen(
        ["sh", "-c", command, "sh", *map(str, (XYLEM, *arguments))], env=environment
    )
    try:
        if arguments[0] in ("serve", "worker"):
            database = Path(str(arguments[2])) / "xylem.db"
            wait_for(lambda: is_served(arguments, database) or process.poll() is not None)
            process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
    return status, (directory / "out").read_text(), (directory / "err").read_text()


def is_served(arguments: tuple[object, ...], database: Path) -> bool:
    if arguments[0] == "worker":
        return database.exists() and database.stat().st_size > 0
    with suppress(OSError), Connection(int(str(arguments[4]))) as connection:
        return connection.ask("GET", "/readyz")[0] == 200
    return False


@pytest.mark.parametrize("redirection", REDIRECTIONS)
@pytest.mark.parametrize(
    "command", [("models", "list"), ("models", "list", "--json")], ids=" ".join
)
def test_a_status_says_whether_a_command_wrote_its_answer(
    shared_store: Path, tmp_path: Path, redirection: str, command: tuple[str, ...]
) -> None:
    status, out, err = run_with(redirection, tmp_path, *command, "--store", shared_store)
    assert status == (1 if redirection in FAILS else 0), err
    assert ("raw" in out) == (redirection not in FAILS)
    assert (redirection in FAILS) == err.startswith("xylem: ")
    assert err.count("\n") == (redirection in FAILS)


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_command_that_fails_keeps_its_status(tmp_path: Path, redirection: str) -> None:
    status, _, err = run_with(
        redirection, tmp_path, "models", "show", "none", "--store", tmp_path / "store"
    )
    assert status == 2
    assert redirection.startswith("2>") or err.startswith("xylem: ")


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_prediction_reads_and_writes_what_there_is(
    shared_store: Path, tmp_path: Path, redirection: str
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(BODY["instances"][0]) + "\n")
    arguments = "predict", "raw", "--data", data, "--store", shared_store
    status, out, err = run_with(redirection, tmp_path, *arguments)
    assert status == (1 if redirection in FAILS else 0), err
    assert bool(out) == (redirection not in FAILS)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- >&-"])
@pytest.mark.parametrize("command", ["serve", "serve 2", "worker"])
def test_what_runs_for_long_starts_and_stops(
    shared_store: Path, tmp_path: Path, redirection: str, command: str
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with reserved_ports(1) as [port]:
        more = (
            ()
            if command == "worker"
            else ("--port", port, "--workers", "2" if "2" in command else "1")
        )
        name = command.split()[0]
        status, _, err = run_with(redirection, tmp_path, name, "--store", store, *more)
    assert status == 0, err
    assert (
        redirection.startswith("2>") or '"event":"job_worker_started"' in err or '"stopped"' in err
    )
