"""Kernels that are compiled with the shortcuts are those that numba makes without them, bit for bit."""

from pathlib import Path
from typing import Any

from numba.core import ir
from numba.core.compiler import Flags, run_frontend

import model_store.compiled.decorators  # noqa: F401 - takes the shortcuts
from tests.kernel_processes import compiler

_KERNELS = """
import hashlib, sys
import numpy as np
import model_store.compiled.shortcuts as shortcuts
if sys.argv[1:] == ["without"]:
    shortcuts.use_shortcuts = lambda: None
from numba import types
from numba.core.targetconfig import TargetConfig
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
print(TargetConfig.values is shortcuts._values)
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


def every_variable(value: Any) -> list[Any]:
    """As numba lists them: a part after the other."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return every_variable(value._kws if isinstance(value, ir.Expr) else vars(value))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [found for part in parts for found in every_variable(part)]


def _calls(a: Any, b: Any) -> Any:
    found = (a, [b, {"c": a}], max(a, b, key=lambda x: -x))
    for i in range(len(a)):
        found[1][i] = a[i : b + 1] if b else print(f"{a} of {b}")
    a.x, a[0] = b[1], found
    return found


def test_the_variables_of_each_instruction_are_those_that_are_in_it() -> None:
    statements = [each for block in run_frontend(_calls).blocks.values() for each in block.body]
    for statement in statements:
        if not isinstance(statement, ir.Del):
            assert statement.list_vars() == every_variable(statement)
    assert any(len(each.list_vars()) > 3 for each in statements)


def test_options_that_were_set_and_those_that_were_not() -> None:
    flags, others = Flags(), Flags()
    assert (flags, hash(flags)) == (others, hash(others))
    flags.nrt = True
    assert flags.values() == {name: getattr(flags, name) for name in flags.options}
    assert (flags.values()["nrt"], flags == others) == (True, False)
    others.nrt = True
    assert (flags, hash(flags)) == (others, hash(others))
