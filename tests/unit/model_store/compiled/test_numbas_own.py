"""What numba adds to kernels, such as sorting, has no machine code of its own; others may use it too."""

import os
import subprocess
import sys
from pathlib import Path

_KERNELS = """
import numpy as np
from model_store.compiled.decorators import inlined, kernel

@inlined
def put(a, b, n):
    a[:n] = b[:3]

@kernel
def turned(a, b, n):
    put(a, b, n)
    found = np.sort(a)
    return found[::-1].copy()
"""

_USED = """
import sys
sys.path.insert(0, sys.argv[1])
import numba, numpy as np, kernels_here
from numba.core.dispatcher import Dispatcher
import gc

a, b = np.arange(5), np.arange(9, 4, -1)
print(kernels_here.turned(a.copy(), b, 3).tolist())
for n in (3, 2):
    try:
        kernels_here.turned(a.copy(), b, n)
    except ValueError as error:
        print(error)

@numba.njit
def of_another(a, b, n):
    a[:n] = b[:3]
    return np.sort(a)

print(of_another(a.copy(), b, 3).tolist())
try:
    of_another(a.copy(), b, 2)
except ValueError as error:
    print(error)
own = [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.py_func.__module__.startswith("numba.")]
sorts = [c for d in own if "quicksort" in d.py_func.__module__ for c in d.overloads.values()]
print(len(sorts) > 0, {type(c.library).__name__ for c in sorts})
"""


def test_kernels_link_what_numba_adds_and_so_do_functions_of_others(tmp_path: Path) -> None:
    (tmp_path / "kernels_here.py").write_text(_KERNELS)
    command = [sys.executable, "-c", _USED, str(tmp_path)]
    environment = {**os.environ, "XYLEM_KERNEL_CACHE": str(tmp_path / "kernels")}  # nothing is loaded
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "[9, 8, 7, 4, 3]"
    assert lines[2] == "[3, 4, 7, 8, 9]"
    assert lines[1] == lines[3] != ""
    assert "slice" in lines[1]
    assert lines[4] == "True {'_Library'}"
