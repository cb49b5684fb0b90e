"""Decorated kernels and helpers in processes of their own: from the
cache, and without parts of numba.
"""

import re
from pathlib import Path

import pytest
from tests.helpers.checkout import ROOT
from tests.helpers.hidden_parts import IMPORT_WITHOUT
from tests.helpers.kernel_processes import compiler, outputs_of

from xylem_store.compiled import inner_parts


def test_processes_that_share_a_cache_compile_a_kernel_once(tmp_path: Path) -> None:
    processes = [compiler(tmp_path) for _ in range(2)]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    # a constant is no other type: the helper is compiled once
    assert sum(int(process.communicate()[0]) for process in processes) == 2
    assert [process.returncode for process in processes] == [0, 0]


_RAISING = """
from xylem_store.compiled.decorators import inlined, kernel

@inlined
def item(array, place):
    if place < 0:
        raise ValueError("expected a place")
    if place >= len(array):
        raise IndexError("expected a place up to", len(array), "found", place)
    return array[place]

@kernel
def both(array, first, second):
    return item(array, first) + item(array, second)
"""

_RAISE = """
import numpy as np
from raising import both, item
for function, arguments in ((both, (1,)), (item, ())):
    assert function(np.arange(5), *arguments, 2) == 2 + sum(arguments)
    for place in (-1, 7):
        try:
            function(np.arange(5), *arguments, place)
        except Exception as error:
            print(repr(error))
"""


def test_errors_of_inlined_helpers_compiled_and_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "raising.py").write_text(_RAISING)
    expected = [
        "ValueError('expected a place')",
        "IndexError('expected a place up to', 5, 'found', 7)",
    ]
    for _ in range(2):
        assert outputs_of(tmp_path, _RAISE)[0].splitlines() == expected * 2


def test_an_inlined_helper_has_machine_code_only_if_called(
    tmp_path: Path,
) -> None:
    called = "print(len(plus.overloads)); assert plus(1, 2) == 3; print(len(plus.overloads))"
    script = f"from kernels import plus, total; assert total(4) == 10; {called}"
    for _ in range(2):
        assert outputs_of(tmp_path, script)[0].split() == ["0", "1"]


_CALLING = """
from xylem_store.compiled.decorators import kernel

@kernel
def inner(n):
    return n + 1

@kernel
def outer(n):
    return 2 * inner(n)
"""

_COUNT_PARSES = """
import llvmlite.binding
parse, parsed = llvmlite.binding.parse_bitcode, []
llvmlite.binding.parse_bitcode = lambda *given, **named: parsed.append(1) or parse(*given, **named)
from calling import inner, outer
for function in {functions}:
    print(function(3), end=" ")
print(len(parsed))
"""


def test_the_llvm_code_of_a_cached_kernel_is_parsed_to_link_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "calling.py").write_text(_CALLING)
    for functions, expected in (
        ("(inner,)", "4 0\n"),
        ("(inner,)", "4 0\n"),
        ("(outer, inner)", "8 4 1\n"),
        ("(inner, outer)", "4 8 0\n"),
    ):
        assert outputs_of(tmp_path, _COUNT_PARSES.format(functions=functions))[0] == expected, (
            functions
        )


def test_a_process_imports_no_linear_algebra_and_frees_nothing(
    tmp_path: Path,
) -> None:
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        "from kernels import total; assert total(4) == 10; print('scipy.linalg' in sys.modules);"
        "import scipy.linalg"
    )
    assert outputs_of(tmp_path, script)[0].split() == ["False", "True"]


_SORTING = """
import numpy as np
from xylem_store.compiled.decorators import inlined, kernel

@inlined
def put(a, b, n):
    a[:n] = b[:3]

@kernel
def turned(a, b, n):
    put(a, b, n)
    found = np.sort(a)
    return found[::-1].copy()
"""

_SORT = """
import numba, numpy as np, sorting
from numba.core.dispatcher import Dispatcher
import gc

a, b = np.arange(5), np.arange(9, 4, -1)

@numba.njit
def of_another(a, b, n):
    a[:n] = b[:3]
    return np.sort(a)

for function in (sorting.turned, of_another):
    print(function(a.copy(), b, 3).tolist())
    try:
        function(a.copy(), b, 2)
    except ValueError as error:
        print(error)
own = [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.py_func.__module__.startswith("numba.")]
sorts = [c for d in own if "quicksort" in d.py_func.__module__ for c in d.overloads.values()]
print(len(sorts) > 0, {type(c.library).__name__ for c in sorts})
"""  # noqa: E501


def test_what_numba_adds_has_no_machine_code(tmp_path: Path) -> None:
    (tmp_path / "sorting.py").write_text(_SORTING)
    turned, refused, of_another, refused_too, sorts = outputs_of(tmp_path, _SORT)[0].splitlines()
    assert (turned, of_another) == ("[9, 8, 7, 4, 3]", "[3, 4, 7, 8, 9]")
    assert refused == refused_too and "slice" in refused
    assert sorts == "True {'_Library'}"


_TRY = """
import logging, os, sys
import numba
import numpy as np
import numba.core.codegen, numba.core.dispatcher
from hidden import import_without

numba.njit("int64(int64)")(lambda n: n + n)  # what a first kernel sets up: once, not for each part

for part in parts:
    out, into = os.pipe()
    if child := os.fork():
        os.close(into)
        with open(out) as said:
            print(part, said.read().strip(), sep="|")
        os.waitpid(child, 0)
        continue
    os.dup2(into, 1), os.dup2(into, 2)
    import_without(part)
    from xylem_store.compiled.bits import count_below
    from xylem_store.compiled.calls import address_of, caller
    from xylem_store.compiled.decorators import inlined, kernel, nonallocating_kernel
    from numba import types

    call = caller(types.int64)

    @inlined
    def twice(n):
        return n + n

    @nonallocating_kernel
    def below(words, n):
        return count_below(words[0], n)

    @kernel
    def total(address, words, n):
        return call(address, (words, twice(n))) + twice(1)

    words = np.array([0xFF], np.uint32)
    address = address_of(below, types.int64, words, 0)
    sys.stdout.write(str(total(address, words, 2)))
    sys.stdout.flush()
    os._exit(0)
"""

OPTIONS = "numba.core.options:DefaultOptions."


@pytest.mark.parametrize(
    "parts",
    [inner_parts.PARTS, [OPTIONS + name for name in inner_parts.OPTIONS]],
    ids=["parts", "options"],
)
def test_without_a_part_kernels_are_right_and_one_line_says_so(
    parts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "hidden.py").write_text(IMPORT_WITHOUT)
    lines = outputs_of(tmp_path, f"parts = {list(parts)}\n{_TRY}")[0].splitlines()
    for part, complaint, found in zip(parts, lines[::2], lines[1::2], strict=True):
        name = re.escape(part.removeprefix(OPTIONS))
        assert re.fullmatch(
            rf"{re.escape(part)}\|kernels are slower, .* numba \S+ has no {name}", complaint
        )
        assert found == "6"


def test_the_pinned_numba_has_all_that_the_table_names() -> None:
    assert (inner_parts.missing_parts(), inner_parts.missing_options()) == ([], [])
    page = (ROOT / "docs/adr/0018-numbas-inner-parts.md").read_text()
    told = set(re.findall(r"`([^`]+)`", page))
    names = {part.partition(":")[2].removeprefix("JITCodeLibrary.") for part in inner_parts.PARTS}
    assert names | set(inner_parts.OPTIONS) <= told
