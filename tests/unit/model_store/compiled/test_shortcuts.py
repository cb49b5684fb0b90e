"""Kernels that are compiled with the shortcuts are those that numba makes without them, bit for bit."""

from pathlib import Path

from tests.kernel_processes import compiler

_KERNELS = """
import hashlib, sys
import numpy as np
import model_store.compiled.shortcuts as shortcuts
if sys.argv[1:] == ["without"]:
    shortcuts.remember_calls = lambda: None
from numba import types
from numba.core.types.functions import BaseFunction
from model_store.compiled.decorators import inlined, kernel, nonallocating_inlined, nonallocating_kernel

@inlined
def larger(a, b):
    return max(a, b) * np.float32(0.5)

@kernel
def allocated(values, n):
    found = np.empty(n, np.float32)
    for i in range(n):
        found[i] = larger(values[i], values[-1]) + values[0:2][1]
    return found

@nonallocating_inlined
def smaller(a, b):
    return min(max(a, b), a)

@nonallocating_kernel
def summed(values, n):
    total = np.float32(0)
    for i in range(n):
        total += smaller(values[i], values[-1]) + values[0:2][1]
    return total

values = np.array([1, 5, 3], np.float32)
print(BaseFunction.get_call_type.__module__ == shortcuts.__name__)
print(allocated(values, 3).tolist(), summed(values, 3), allocated(values[:2], 1).tolist())
for function in (allocated, summed):
    for compiled in function.overloads.values():
        print(hashlib.sha256(compiled.library._compiled_object).hexdigest())
"""


def test_the_machine_code_is_that_without_shortcuts(tmp_path: Path) -> None:
    said = []
    for argument in ("", "without"):
        script = f"import sys; sys.argv[1:] = {argument.split()}\n{_KERNELS}"
        (tmp_path / "compiled.py").write_text(script)
        process = compiler(tmp_path, "import compiled", XYLEM_KERNEL_CACHE=str(tmp_path / argument / "cache"))
        said.append(process.communicate()[0].splitlines())
        assert process.returncode == 0
    assert [lines[0] for lines in said] == ["True", "False"]
    assert said[0][1] == "[6.5, 7.5, 6.5] 24.0 [7.5]"
    assert len(said[0]) >= 4
    assert said[0][1:] == said[1][1:]
