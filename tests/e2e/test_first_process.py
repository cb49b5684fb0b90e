"""SIGTERM to commands that are the first process of a container, as in the image: at any moment."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers.checkout import PYTHONPATH
from tests.helpers.first_process import FirstProcess, is_available
from tests.helpers.replicas import reserved_ports

from xylem.base.start import TERMINATED
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

pytestmark = pytest.mark.skipif(not is_available(), reason="needs a PID namespace (root, unshare)")

SERVERS = ("serve --port 0", "serve --port 0 --workers 2", "worker", "worker --metrics-port 0")
WRITERS = (
    "train label-tree --model m --data rows.jsonl",
    "extend m@1 --data new.jsonl --rows rows.jsonl",
    "tune --model m --data rows.jsonl --trials 2",
    "thresholds m@1 --data rows.jsonl",
    "combine --member m@1 --member other@1 --model both --data held.jsonl",
    "calibrate m@1 --data held.jsonl",
    "models export m@1 --file m.tar",
)
MODELS = [("m", 1), ("other", 1)]
SECONDS_MAX = 2.0
"""The latest moment: by then most of these serve, or have ended."""

N_MOMENTS = 20  # of a command, at full size


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store of two models, their rows, rows held out, and rows of
    a new label.
    """
    place = tmp_path_factory.mktemp("trained")
    for file, first in {"rows.jsonl": 0, "held.jsonl": 120}.items():
        numbers = range(first, first + 120)
        rows = [{"text": f"word{n} editor{n % 3}", "labels": [f"label{n % 5}"]} for n in numbers]
        (place / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "new.jsonl").write_text(
        json.dumps({"text": "editor1 word8", "labels": ["new"]}) + "\n"
    )
    request = TrainRequest(trainer="label-tree", data=place / "rows.jsonl")
    for name, version in MODELS:
        assert train_and_publish(Store(place / "store"), name, request).version == version
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "place"))


def environment(place: Path) -> dict[str, str]:
    ours = {"XYLEM_STORE": str(place / "store"), "XYLEM_DRAIN_SECONDS": "0"}
    return {**os.environ, **ours, "PYTHONPATH": PYTHONPATH}


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def end_of(command: str, place: Path, seconds: float) -> int:
    """The status of a command that gets SIGTERM so long after it has a handler."""
    process = FirstProcess.of_xylem(*command.split(), cwd=place, env=environment(place), **QUIET)
    with process:
        process.wait_for_handler()
        time.sleep(seconds)
        return process.terminate()


def versions_of(store: Store) -> list[tuple[str, int]]:
    """All versions, each of which was opened."""
    versions = [(model.name, version) for model in store.models() for version in model.versions]
    for name, version in versions:
        store.open(name, version)
    return versions


def check_server(command: str, place: Path, moments: list[float]) -> None:
    """Before it takes signals itself it ends as any process, later in good order."""
    for seconds in moments:
        assert end_of(command, place, seconds) in (0, TERMINATED), seconds


def check_writer(command: str, place: Path, moments: list[float]) -> None:
    """What it writes is there whole or not at all, and it writes it when it is called again."""
    store = Store(place / "store")
    assert (end_of(command, place, 0.0), versions_of(store)) == (TERMINATED, MODELS)
    for seconds in moments:
        assert end_of(command, place, seconds) in (0, TERMINATED), seconds
        assert set(MODELS) <= set(versions_of(store)), seconds
    call = [sys.executable, "-m", "xylem", *command.split()]
    done = subprocess.run(
        call, cwd=place, env=environment(place), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", SERVERS)
def test_a_server_ends_at_a_sigterm_at_any_moment(command: str, place: Path, seed: int) -> None:
    check_server(command, place, [0.0, random.Random(seed).uniform(0, SECONDS_MAX), SECONDS_MAX])


@pytest.mark.parametrize("command", WRITERS)
def test_a_command_that_writes_ends_at_a_sigterm_at_any_moment(
    command: str, place: Path, seed: int
) -> None:
    check_writer(command, place, [random.Random(seed).uniform(0, SECONDS_MAX)])


@pytest.mark.soak
@pytest.mark.parametrize("command", (*SERVERS, *WRITERS))
def test_every_command_ends_at_many_moments(command: str, place: Path, seed: int) -> None:
    draw = random.Random(seed)
    check = check_server if command in SERVERS else check_writer
    check(command, place, [draw.uniform(0, SECONDS_MAX) for _ in range(N_MOMENTS)])


@pytest.mark.parametrize("phase", ["0.0", "1.0"])
def test_the_first_model_ends(place: Path, phase: str) -> None:
    with reserved_ports(1) as [port]:
        assert end_of(f"try rows.jsonl --port {port}", place, float(phase)) in (0, TERMINATED)


def test_a_training_that_waits_for_rows_publishes_nothing(place: Path) -> None:
    command = ("train", "lomtree", "--model", "new", "--data", "-")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with FirstProcess.of_xylem(*command, cwd=place, env=environment(place), **pipes) as process:
        assert process.stdin and process.stderr
        process.stdin.write((place / "rows.jsonl").read_bytes())
        process.stdin.flush()
        assert b"Learning from standard input" in process.stderr.readline()
        assert process.terminate() == TERMINATED
    assert versions_of(Store(place / "store")) == MODELS


def test_the_compilation_of_kernels_ends(place: Path) -> None:
    command = (sys.executable, "-m", "xylem.warm", "answers")
    cache = {"XYLEM_KERNEL_CACHE": str(place / "kernels")}
    with FirstProcess(command, env={**environment(place), **cache}) as process:
        process.wait_for_handler()
        assert process.terminate() == TERMINATED
