"""Kernels where numba lacks an inner part that they are quicker with: each part is hidden in a process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from model_store.compiled import inner_parts
from model_store.compiled.cache import ROOT
from tests.hidden_parts import IMPORT_WITHOUT

_TRY = """
import logging, os, sys
import numba
import numpy as np
import numba.core.codegen, numba.core.dispatcher
sys.path.insert(0, sys.argv[2])
from hidden import import_without

numba.njit("int64(int64)")(lambda n: n + n)  # what a first kernel sets up: once, not for each part

for part in sys.argv[3:]:
    out, into = os.pipe()
    if child := os.fork():
        os.close(into)
        with open(out) as said:
            print(part, said.read().strip(), sep="|")
        os.waitpid(child, 0)
        continue
    os.dup2(into, 1), os.dup2(into, 2)
    sys.path.insert(0, sys.argv[1])
    import_without(part)
    from model_store.compiled.bits import count_below
    from model_store.compiled.calls import address_of, caller
    from model_store.compiled.decorators import inlined, kernel, nonallocating_kernel
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
    "parts", [inner_parts.PARTS, [OPTIONS + name for name in inner_parts.OPTIONS]], ids=["parts", "options"]
)
def test_without_a_part_kernels_are_right_and_one_line_says_so(parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(IMPORT_WITHOUT)
    command = [sys.executable, "-c", _TRY, str(ROOT), str(tmp_path), *parts]
    lines = subprocess.check_output(command, text=True).splitlines()
    for part, complaint, found in zip(parts, lines[::2], lines[1::2], strict=True):
        name = re.escape(part.removeprefix(OPTIONS))
        assert re.fullmatch(rf"{re.escape(part)}\|kernels are slower, .* numba \S+ has no {name}", complaint)
        assert found == "6"


def test_the_numba_that_is_pinned_has_all_and_the_table_names_all() -> None:
    assert (inner_parts.missing_parts(), inner_parts.missing_options()) == ([], [])
    page = (ROOT / "docs/adr/0018-numbas-inner-parts.md").read_text()
    told = set(re.findall(r"`([^`]+)`", page))
    names = {part.partition(":")[2].removeprefix("JITCodeLibrary.") for part in inner_parts.PARTS}
    assert names | set(inner_parts.OPTIONS) <= told
