"""Processes that compile two kernels into a cache of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.checkout import PYTHONPATH

KERNELS = """
from xylem_store.compiled.decorators import inlined, kernel

@inlined
def plus(a, b):
    return a + b

@kernel
def total(n):
    found = 0
    for i in range(n):
        found = plus(plus(found, i), 1)
    return plus(0, found)
"""

RECORDER = """
from numba.core import event

class Recorder(event.Listener):
    def __init__(self):
        self.compiled = []
    def on_start(self, e):
        self.compiled.append(e.data["dispatcher"].py_func)
    def on_end(self, e):
        pass

recorder = Recorder()
event.register("numba:compile", recorder)
"""
"""Code that records the functions that a process compiles after it."""

COMPILE = f"""
import sys
from kernels import plus, total
{RECORDER}
print(flush=True)
sys.stdin.readline()
assert total(4) == 10
print(sum(function in (plus.py_func, total.py_func) for function in recorder.compiled))
"""


def compiler(
    tmp_path: Path, script: str = COMPILE, *, stderr: int | None = None, **changes: str
) -> subprocess.Popen[str]:
    """Start a process that reads a line, compiles two kernels, and prints how many it compiled.

    Its cache is in the directory of the test, unless `changes` of its environment differ.
    """
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = {
        "PYTHONPATH": f"{PYTHONPATH}:{tmp_path}",
        "XYLEM_KERNEL_CACHE": str(tmp_path / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **environment, **changes},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def outputs_of(tmp_path: Path, script: str, **changes: str) -> tuple[str, str]:
    """Run a script in such a process, which must succeed; return its output and its errors."""
    process = compiler(tmp_path, script, stderr=subprocess.PIPE, **changes)
    output, complaints = process.communicate("\n")
    assert process.returncode == 0, complaints
    return output, complaints


def compiled(tmp_path: Path, script: str = COMPILE, **changes: str) -> tuple[int, str]:
    """Return how many of the two kernels a process compiles, and its standard error.

    The script checks the result of the kernels.
    """
    output, complaints = outputs_of(tmp_path, script, **changes)
    return int(output), complaints
