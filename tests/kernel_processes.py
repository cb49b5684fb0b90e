"""Processes that compile two kernels into a cache of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.checkout import PYTHONPATH

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
"""Keeps the functions that a process compiles from here on."""

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
    """A process that compiles two kernels when a line is written to
    it, and says how many it compiled.

    Its cache is beside the test, unless `changes` of its environment say otherwise.
    """
    (tmp_path / "kernels.py").write_text(KERNELS)
    own = {"PYTHONPATH": f"{PYTHONPATH}:{tmp_path}", "XYLEM_KERNEL_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **own, **changes},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def said_by(tmp_path: Path, script: str, **changes: str) -> tuple[str, str]:
    """What such a process of a script says on both outputs; it succeeds."""
    process = compiler(tmp_path, script, stderr=subprocess.PIPE, **changes)
    said, complaints = process.communicate("\n")
    assert process.returncode == 0, complaints
    return said, complaints


def compiled(tmp_path: Path, script: str = COMPILE, **changes: str) -> tuple[int, str]:
    """How many of the two kernels a process compiles, and what it
    complains of; their result is checked.
    """
    said, complaints = said_by(tmp_path, script, **changes)
    return int(said), complaints
