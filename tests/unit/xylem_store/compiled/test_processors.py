"""Which processors kernels are compiled for, and that a level's
kernels are found by what can run them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.kernel_processes import compiled, outputs_of

from xylem_store.compiled import processors
from xylem_store.compiled.processors import (
    GENERIC,
    LEVELS,
    PORTABLE,
    chosen_level,
    directory_for,
    levels_of,
)

V3 = "x86-64-v3"
CAN_V3 = pytest.mark.skipif(
    V3 not in processors.levels_here(), reason="this processor is below x86-64-v3"
)


def test_a_processor_runs_a_level_only_with_every_feature_of_it() -> None:
    features = dict.fromkeys(LEVELS[V3], True)
    assert levels_of(features | {"avx512f": False}) == [V3, GENERIC]
    for missing in LEVELS[V3]:
        others = {name: True for name in features if name != missing}
        assert (
            levels_of(others) == levels_of({**others, missing: False}) == levels_of({}) == [GENERIC]
        )


def test_portable_is_the_best_level_with_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "python"
    monkeypatch.setenv("XYLEM_KERNEL_CPU", PORTABLE)
    monkeypatch.setattr(processors, "levels_here", lambda: [V3, GENERIC])
    assert chosen_level(cache) == GENERIC
    for level in (GENERIC, V3):
        directory_for(cache, level).mkdir()
        assert chosen_level(cache) == level
    monkeypatch.setattr(processors, "levels_here", lambda: [GENERIC])
    assert chosen_level(cache) == GENERIC


def test_a_level_that_cannot_run_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "levels_here", lambda: [GENERIC])
    for level, fault in (
        ("haswell", "expected portable, x86-64-v3 or generic, found 'haswell'"),
        (V3, "expected a level that this processor can run, generic, found x86-64-v3"),
    ):
        monkeypatch.setenv("XYLEM_KERNEL_CPU", level)
        with pytest.raises(ValueError, match=fault):
            chosen_level(tmp_path)
    monkeypatch.setenv("XYLEM_KERNEL_CPU", "")
    assert chosen_level(tmp_path) is None


@CAN_V3
def test_kernels_of_two_levels_coexist_and_the_better_is_loaded(tmp_path: Path) -> None:
    for level in (GENERIC, V3):
        assert compiled(tmp_path, XYLEM_KERNEL_CPU=level)[0] == 2
    names = [path.name.partition("numpy")[2] for path in (tmp_path / "cache" / "plain").iterdir()]
    assert {name.partition("-")[2] for name in names} == {GENERIC, V3}
    assert compiled(tmp_path, XYLEM_KERNEL_CPU=PORTABLE)[0] == 0


@CAN_V3
def test_numba_compiles_for_the_level_and_not_for_this_machine(tmp_path: Path) -> None:
    script = (
        "import xylem_store.compiled.decorators; from numba.core.registry import cpu_target;"
        "print(cpu_target.target_context.codegen().magic_tuple()[1:])"
    )
    for level in LEVELS:
        assert outputs_of(tmp_path, script, XYLEM_KERNEL_CPU=level)[0] == f"('{level}', '')\n"


@pytest.mark.parametrize(
    "command", ["xylem serve --port 0", "xylem models list", "xylem predict m@1", "xylem.warm"]
)
def test_the_command_says_so_in_one_line(tmp_path: Path, command: str) -> None:
    environment = {**os.environ, "XYLEM_KERNEL_CPU": "haswell", "XYLEM_STORE": str(tmp_path)}
    asked = [sys.executable, "-m", *command.split()]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    expected = "xylem: XYLEM_KERNEL_CPU: expected portable, x86-64-v3 or generic, found 'haswell'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
