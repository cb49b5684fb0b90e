"""No kernel reads or writes beyond an array: the tests of kernels again, with every
index checked.
"""

import re
import subprocess
from pathlib import Path

import pytest
from tests.helpers.modules import ROOT, run_module

ABOUT_KERNELS = re.compile(r"service\.(kernels|trainers|inference|features|datasets)")
TESTS = sorted(
    str(file.relative_to(ROOT))
    for kind in ("unit", "property", "golden")
    for file in (ROOT / "tests" / kind).rglob("test_*.py")
    if ABOUT_KERNELS.search(file.read_text())
)

_BEYOND = """
import numpy as np
from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.vectors import vload, vstore

@kernel
def item(array, i):
    return array[i]

@kernel
def lanes(array, i):
    vstore(array, 0, vload(array, i))

def test_item_beyond(): item(np.zeros(20, np.float32), 20)
def test_item_before(): item(np.zeros(20, np.float32), -1)
def test_lanes_beyond(): lanes(np.zeros(20, np.float32), 5)
def test_lanes_before(): lanes(np.zeros(20, np.float32), -1)
def test_within(): item(np.zeros(20, np.float32), 19), lanes(np.zeros(20, np.float32), 4)
"""
READERS = "tests/fuzz/kernel_readers.py"
READER_SECONDS = 180
"""Of each of some twenty readers, in the long run: an hour."""

CACHE = Path.home() / ".cache" / "xylem" / "checked-kernels"
"""For kernels of this kind alone: the next run need not compile them again."""


def run(cache: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    checked = {"NUMBA_BOUNDSCHECK": "1", "XYLEM_KERNEL_CACHE": str(cache), **more}
    return run_module(
        "tests.checked", "-q", "-p", "no:cacheprovider", "--timeout=0", *arguments, **checked
    )


def check(*arguments: str, **more: str) -> None:
    done = run(CACHE, *arguments, **more)
    assert done.returncode == 0, done.stdout[-10_000:]


def test_readers_of_requests_stay_within_their_arrays() -> None:
    check(READERS)


@pytest.mark.soak
def test_readers_of_requests_stay_within_their_arrays_for_long(seed: int) -> None:
    check(READERS, SEED=str(seed), READER_SECONDS=str(READER_SECONDS))


@pytest.mark.soak
def test_kernels_stay_within_their_arrays() -> None:
    assert len(TESTS) > 80
    check(*TESTS)


@pytest.mark.soak
def test_what_is_outside_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "test_beyond.py"
    file.write_text(_BEYOND)
    done = run(tmp_path / "cache", str(file), "-c", "/dev/null")
    assert "4 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("index is out of bounds") >= 4
