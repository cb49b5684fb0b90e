"""What README shows, run as it stands there; `make replicas`, on other ports, with a
small model.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from deploy.rolling_restart import command_for, main
from tests.helpers.replicas import BROKEN, N_CLIENTS, listens, load, reserved_ports, wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_the_lines_of_python_print_what_readme_shows() -> None:
    [shown] = re.findall(
        r"```python\n(.*?)```\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert (
        subprocess.check_output([sys.executable, "-c", shown[0]], cwd=ROOT, text=True) == shown[1]
    )


Started: TypeAlias = "tuple[int, Path, subprocess.Popen[str], str]"
"""The port of the service, its directory, the process, and what it said when all was ready."""


@pytest.fixture(scope="module")
def started(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    if not shutil.which("haproxy") and not Path("/usr/sbin/haproxy").exists():
        pytest.skip("haproxy is not installed")
    home = tmp_path_factory.mktemp("replicas")
    (home / "store").symlink_to(shared_store)
    with reserved_ports(3) as (port, *others):
        ports = {"PORT": str(port), "REPLICA_PORTS": " ".join(map(str, others))}
        environment = {**os.environ, **ports, "REPLICAS_HOME": str(home), "MODEL": "raw"}
        command = [sys.executable, ROOT / "examples" / "replicas.py"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            said = ""
            while "Ctrl+C" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield port, home, process, said
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)


def pid(home: Path, name: str) -> int:
    return int((home / f"{name}.pid").read_text())


def test_the_printed_rolling_restart_fails_no_request(started: Started) -> None:
    port, home, _, said = started
    before = [pid(home, f"replica-{n}") for n in (1, 2)]
    command = re.findall(r"^Restart both: +python3 (.*)$", said, re.MULTILINE)[0]
    with load(port) as counts:
        wait_until(lambda: counts[200] > 50)
        done = subprocess.run(
            f"{sys.executable} {command}", shell=True, cwd=ROOT, timeout=200, check=False
        )
        seen = counts[200]
        wait_until(lambda: counts[200] > seen + 50)
    assert done.returncode == 0
    assert counts.keys() == {200}
    assert all(old != pid(home, f"replica-{n}") for n, old in enumerate(before, 1))


def test_a_replica_that_dies_is_started_again(started: Started) -> None:
    port, home, *_ = started
    old = pid(home, "replica-1")
    with load(port) as counts:
        wait_until(lambda: counts[200] > 50)
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: pid(home, "replica-1") != old)
        seen = counts[200]
        wait_until(lambda: counts[200] > seen + 50)
    assert counts.keys() <= {200, BROKEN}, counts
    assert counts[BROKEN] <= N_CLIENTS


def test_at_the_end_nothing_is_left_running(started: Started) -> None:
    """Ctrl+C: the processes are gone, and so are their ports."""
    port, home, process, said = started
    ports = {port, *map(int, re.findall(r"http://127\.0\.0\.1:(\d+)", said))}
    assert len(ports) == 3
    pids = [int(file.read_text()) for file in home.glob("*.pid")]
    assert len(pids) == 4
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    assert [number for number in pids if Path(f"/proc/{number}").exists()] == []
    assert not any(map(listens, ports)) and not list(home.glob("*.pid"))


def test_a_replica_not_ready_stops_the_round(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with reserved_ports(1) as (port,):
        url = f"http://127.0.0.1:{port}"
        assert main([url, "--restart", f"touch {tmp_path}/ran", "--timeout", "0.3"]) == 1
        assert f"{url}: expected it to be ready within 0.3 s" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["http://a:1"], ["a:1", "--restart", "x"], ["http://a:1", "--restart", "{nobody}"],
     ["http://a:b", "--restart", "{port}"]],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_any_restart(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_commands_name_the_replica() -> None:
    command = command_for("ssh {host} restart {n} {port} {url}", "http://a:81", 2)
    assert command == "ssh a restart 2 81 http://a:81"
