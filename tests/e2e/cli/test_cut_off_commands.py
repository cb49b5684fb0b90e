"""Commands that are cut off by a full disk or by Ctrl+C leave the store as it was."""

import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.commands import XYLEM, answer, assert_refused, rows, xylem
from tests.helpers.datasets_helpers import write_lines

from xylem_store.store import Store


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def train_topics(data: Path, store: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    files = ("--data", data / "train.jsonl", "--model", "topics", "--store", store)
    return xylem("train", "label-tree", *files, "--json", **options)


def test_a_disk_full_while_publishing_leaves_the_store_as_it_was(data: Path, store: Path) -> None:
    done = train_topics(data, store, preexec_fn=limit_files)
    assert_refused(done, str(store), "expected", "bytes free and 'File too large'", status=1)
    assert Store(store).models()[0].aliases == {"latest": 1}
    assert answer(train_topics(data, store))["version"] == 2


def test_a_disk_that_is_full_while_exporting_leaves_no_file(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "topics.tar"
    given = ("models", "export", "topics", "--store", store, "--file", file)
    assert_refused(
        xylem(*given, preexec_fn=limit_files), str(file), "expected to read or write", status=1
    )
    assert list(tmp_path.glob("topics.tar*")) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if (
        os.geteuid() != 0
        or shutil.which("mount") is None
        or subprocess.run(mount, check=False).returncode
    ):
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_without_room_is_refused_before_publishing(data: Path, tiny_disk: Path) -> None:
    store = tiny_disk / "store"
    assert_refused(train_topics(data, store), str(store), "bytes free", status=1)
    assert Store(store).models() == []


def read_until(descriptor: int, word: bytes, seconds: float) -> bytes:
    """What a terminal shows until `word` stands there."""
    shown, end = b"", time.monotonic() + seconds
    while word not in shown:
        assert time.monotonic() < end, shown[-500:]
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                shown += os.read(descriptor, 65536)
            except OSError:  # nobody is left who could write
                assert word in shown, shown[-500:]
    return shown


def test_ctrl_c_while_training_publishes_nothing(store: Path, tmp_path: Path) -> None:
    slow = write_lines(tmp_path / "slow.jsonl", rows(3000))
    terminal, inner = pty.openpty()
    command = [XYLEM, "train", "ovr", "--data", slow, "--model", "topics", "--store", store]
    hard = ["-p", "cost=1000000", "-p", "eps=0.0001", "-p", "max_epochs=100000"]
    process = subprocess.Popen([*command, *hard], stdout=subprocess.PIPE, stderr=inner, text=True)
    os.close(inner)
    try:
        shown = read_until(terminal, b"classifiers", 120)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = read_until(terminal, b"xylem: interrupted", 120)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(terminal)
    assert (process.returncode, out) == (130, "")
    assert b"Traceback" not in shown + rest
    assert Store(store).models()[0].aliases == {"latest": 1}
    assert answer(xylem("models", "verify", "topics@1", "--store", store, "--json"))["verified"]
