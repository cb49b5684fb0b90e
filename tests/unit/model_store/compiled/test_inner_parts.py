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


def said_without(parts: list[str], tmp_path: Path) -> list[str]:
    """What a process says, of each part that is hidden from it: a warning, and what a kernel returns."""
    (tmp_path / "hidden.py").write_text(IMPORT_WITHOUT)
    command = [sys.executable, "-c", _TRY, str(ROOT), str(tmp_path), *parts]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["parts", "options"])
def test_without_a_part_kernels_are_right_and_one_line_says_so(kind: str, tmp_path: Path) -> None:
    parts = list(inner_parts.PARTS)
    if kind == "options":
        parts = [f"numba.core.options:DefaultOptions.{name}" for name in inner_parts.OPTIONS]
    said = said_without(parts, tmp_path)
    for i, part in enumerate(parts):
        name = part.rpartition(".")[2] if kind == "options" else part
        assert re.fullmatch(
            rf"{re.escape(part)}\|kernels are slower, .* numba \S+ has no {re.escape(name)}", said[2 * i]
        )
        assert said[2 * i + 1] == "6"


def test_no_part_is_missing_from_the_numba_that_is_pinned() -> None:
    assert (inner_parts.missing_parts(), inner_parts.missing_options()) == ([], [])


def test_the_table_of_parts_names_all() -> None:
    page = (ROOT / "docs/adr/0018-numbas-inner-parts.md").read_text()
    told = set(re.findall(r"`([^`]+)`", page))
    names = {part.partition(":")[2].removeprefix("JITCodeLibrary.") for part in inner_parts.PARTS}
    assert names | set(inner_parts.OPTIONS) <= told
