"""`xylem serve` as a process: start to ready, and the memory of one worker and of two."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.data import Prepared
from benchmarks.ours import store_of
from benchmarks.runs import Settings, show, trained
from benchmarks.systems import OURS

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS_MAX = 120
SAID_BYTES = 4000
"""Of what a server that does not become ready has said, so much is shown."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(
    store: Path,
    workers: int,
    checkout: Path = ROOT,
    *,
    own_database: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, float, int]]:
    """Run a server; yield its process id, the seconds that it took to be ready, and its port.

    checkout      the sources, of this release or of another one
    own_database  not the store's, which another release may have brought to another schema
    variables     of its environment, beside ours
    """
    port = free_port()
    options = ["--store", store, "--port", str(port), "--workers", str(workers)]
    environment = {**os.environ, **(variables or {}), "PYTHONPATH": source_path(checkout)}
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as own,
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [*command_of(checkout), "serve", *options],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={
                **environment,
                **({"XYLEM_DATABASE_URL": f"sqlite:///{own}/xylem.db"} if own_database else {}),
            },
            cwd=checkout,
        ) as process,
    ):
        try:
            while True:
                try:
                    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                        break
                except (URLError, OSError):
                    if (
                        process.poll() is not None
                        or time.perf_counter() - start > READY_SECONDS_MAX
                    ):
                        raise SystemExit(
                            f"the server did not become ready: {_end_of(said)}"
                        ) from None
                    time.sleep(0.01)
            yield process.pid, time.perf_counter() - start, port
        finally:
            process.terminate()
            process.wait()


def command_of(checkout: Path) -> list[str]:
    """Return the words that run the command line of a checkout, an older one too."""
    is_old = (checkout / "xylem").is_dir() and not (checkout / "xylem" / "command.py").exists()
    return [
        sys.executable,
        "-c",
        f"from {'xylem.cli' if is_old else 'xylem.command'} import main; main()",
    ]


def source_path(checkout: Path) -> str:
    """Return where Python finds the packages of a checkout; those
    of an older one stand in its root.
    """
    roots = checkout, checkout / "service", checkout / "model_store"
    return os.pathsep.join(map(str, roots[:1] if (checkout / "xylem").is_dir() else roots[1:]))


def run_cli(checkout: Path, *arguments: str) -> None:
    """Run the command line of a checkout."""
    environment = {**os.environ, "PYTHONPATH": source_path(checkout)}
    subprocess.run(
        [*command_of(checkout), *arguments],
        cwd=checkout,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end_of(said: IO[bytes]) -> str:
    """Return the last of what a server has said."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES))
    return said.read().decode(errors="replace")


def pss(pid: int, under: Path | None = None) -> int:
    """Return the proportional set size of a process: of all it maps,
    or of the files under a directory.
    """
    total, counted = 0, under is None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counted = under is None or str(under.resolve()) in line
        elif counted and line.startswith("Pss:"):
            total += 1024 * int(line.split()[1])
    return total


def cpu_seconds(pid: int) -> float:
    """Return the processor's seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_nanoseconds(pid: int) -> int:
    """Return the processor's nanoseconds that the threads of a process
    have used, as its scheduler counts.
    """
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            used += int((task / "schedstat").read_text().split()[0])
    return used


def family(pid: int) -> list[int]:
    """Return a process and those that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except OSError:
                continue
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def memory_of(data: Prepared, workers: int) -> tuple[int, int]:
    """Return the PSS of all processes of a server with so many
    workers: in all, and of the model's files.
    """
    store = store_of(data.work, 1)
    with served(store, workers) as (pid, _, _):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            members = [member for member in family(pid) if pss(member, store)]
            if len(members) == workers:
                break
            time.sleep(0.2)
        time.sleep(1.0)
        return sum(map(pss, family(pid))), sum(pss(member, store) for member in family(pid))


def memory(settings: Settings) -> None:
    """Print what a second worker adds to the memory of the model's files and of all."""
    rows = []
    for data in settings.data:
        model_bytes = trained(OURS, data, settings.threads)["model_bytes"]
        whole_1, model_1 = memory_of(data, 1)
        whole_2, model_2 = memory_of(data, 2)
        rows.append(
            (
                data.name,
                f"{model_bytes / 1e6:,.1f}",
                f"{model_1 / 1e6:,.1f}",
                f"{model_2 / 1e6:,.1f}",
                f"{100 * (model_2 - model_1) / model_bytes:.1f} %",
                f"{whole_1 / 1e6:,.0f}",
                f"{whole_2 / 1e6:,.0f}",
            )
        )
    columns = (
        "",
        "model, MB",
        "of it mapped: 1 worker",
        "2 workers",
        "second adds",
        "in all: 1",
        "2",
    )
    show(
        settings,
        "Memory of workers (PSS, MB; in all: with interpreter and libraries)",
        columns,
        rows,
    )
